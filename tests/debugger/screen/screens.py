"""A screen that is driven by a test: keys and the mouse go in, what stands on it comes out as text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

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

    async def idle(_: float = 0) -> None:
        await asyncio.sleep(0.001)
        app.screen._on_timer_update()
        await asyncio.sleep(0.001)

    # Textual waits until its process has been idle for 20 ms, behind each key twice. The app has no threads: when its
    # loop has nothing to do, and the frame is drawn that a timer would draw, it is idle.
    with patch("textual.pilot.wait_for_idle", idle), patch("textual.app.wait_for_idle", idle):
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
    """What stands on the screen, in lines."""
    strips = app.screen._compositor.render_strips()
    return "".join(strip.text.translate(_PLAIN).rstrip() + "\n" for strip in strips)


T = TypeVar("T")


def seen(
    look: Callable[[DebuggerApp], T],
    *keys: str,
    sample: str = "inplace",
    size: tuple[int, int] = SMALL,
    compute: bool = False,
    **how: Any,
) -> list[T]:
    """What `look` sees of a sample's screen behind each of these, which are pressed one after the other."""
    app = app_of(sample, compute, **how)
    found: list[T] = []

    async def do(pilot: Pilot[None]) -> None:
        for some in keys:
            await press(pilot, some)
            found.append(look(app))

    drive(app, do, size)
    return found


GOLDEN = Path(__file__).parent / "golden"
