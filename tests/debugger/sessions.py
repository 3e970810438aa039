"""Sessions of the debugger in tests: the lines of a script, and what is printed."""

from __future__ import annotations

from functools import cache
from typing import Any

import ggmltool
from ggmltool.debugger.prompt import Prompt
from ggmltool.debugger.session import DebugSession
from ggmltool.debugger.terminal import Terminal
from ggmltool.show.table import Style
from ggmltool.state.story.history import History, record_history

WIDTH = 100


@cache
def history_of(sample: str, compute: bool = True) -> History:
    return record_history(ggmltool.load(sample), compute)


def prompt_of(history: History, title: str = "graph.yaml", width: int = WIDTH, echo: bool = False) -> Prompt:
    terminal = Terminal(Style(width), interactive=False)
    return Prompt(DebugSession(history, title, terminal), terminal, echo)


def transcript(history: History, lines: list[str], title: str = "graph.yaml", width: int = WIDTH) -> str:
    """What somebody sees who types the lines."""
    prompt = prompt_of(history, title, width)
    out = []
    for line in lines:
        out.append(f"(ggml) {line}\n")
        out.append(prompt.said(line))
        if prompt.session.left:
            break
    return "".join(out)


def say(session: Any, line: str) -> str:
    """What one line prints."""
    return str(session.said(line))
