"""A screen that is driven by a test: keys and the mouse go in, what stands on it comes out as text."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual", reason="needs Textual: the extra tui")

from textual.pilot import Pilot

from ggmltool.debugger.prompt import Prompt
from ggmltool.debugger.screen.app import DebuggerApp
from ggmltool.debugger.screen.scene import Scene
from ggmltool.debugger.session import DebugSession
from ggmltool.debugger.terminal import Terminal
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.samples import scenario_path
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.show.table import Style
from ggmltool.state.story.history import History, record_history

SMALL, WIDE = (80, 24), (200, 60)
_TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_CELL, _LINE, _FIRST = 12.2, 24.4, 18.5
"""The size of a cell in rich's SVG, and the baseline of the first line."""
_PLAIN = str.maketrans("\xa0▁▂▃▄▅▆▇", " " * 8)
"""How a scroll bar ends within a cell does not matter."""


@cache
def history_of(name: str, compute: bool = False) -> tuple[Opened, History]:
    """A scenario by its name or path, and its history."""
    scenario = LoadedScenario(load_spec(scenario_path(name)))
    return Opened(scenario, name), record_history(scenario, compute)


def app_of(name: str, compute: bool = False, **how: Any) -> DebuggerApp:
    """The screen of a sample, at its first point, with a session that answers commands."""
    opened, history = history_of(name, compute)
    terminal = Terminal(Style(), interactive=False)
    session = DebugSession(history, opened.title, terminal)
    answer = Prompt(session, terminal).answer
    return DebuggerApp(Scene(opened, history, session.walker), answer, left=lambda: session.left, **how)


def drive(app: DebuggerApp, do: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = SMALL) -> None:
    """Run the app, and what `do` does with it."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await do(pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    """Until everything is drawn."""
    for _ in range(3):
        await pilot.pause()


async def press(pilot: Pilot[None], keys: str) -> None:
    """Press keys, one after the other: names between spaces, or `'text` for each of its letters."""
    for word in keys.split():
        if word.startswith("'"):
            await pilot.press(*(_NAMES.get(c, c) for c in word[1:]))
        else:
            await pilot.press(word)
    await settled(pilot)


_NAMES = {
    "-": "minus",
    "_": "underscore",
    "+": "plus",
    "~": "space",
    "(": "left_parenthesis",
    ">": "greater_than_sign",
}
"""What the keys of characters are called; a space is written as ~."""


def text_of(app: DebuggerApp) -> str:
    """What stands on the screen, in lines. (The SVG's own title is left out; where it writes what does not matter.)"""
    width, height = app.size
    rows = [[" "] * width for _ in range(height)]
    for x, y, text in _TEXT.findall(app.export_screenshot()):
        row = round((float(y) - _FIRST) / _LINE)
        column = round(float(x) / _CELL)
        for char in html.unescape(text).translate(_PLAIN):
            if 0 <= row < height and column < width:
                rows[row][column] = char
                column += 1
    return "".join("".join(row).rstrip() + "\n" for row in rows)


def screen(name: str, keys: str, size: tuple[int, int] = SMALL, compute: bool = False, **how: Any) -> str:
    """What stands on the screen after keys."""
    app = app_of(name, compute, **how)
    found: list[str] = []

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, keys)
        found.append(text_of(app))

    drive(app, do, size)
    return found[0]


GOLDEN = Path(__file__).parent / "golden"
