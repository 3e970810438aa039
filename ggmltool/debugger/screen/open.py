"""Opening the screen: a history is shown until the user quits."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ggmltool.debugger.screen.app import DebuggerApp
from ggmltool.debugger.screen.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from ggmltool.debugger.walk import Walker
    from ggmltool.inspect.opened import Opened


def show(
    opened: Opened,
    walker: Walker,
    execute: Callable[[str, int], str] | None = None,
    dark: bool = True,
    colored: bool = True,
    left: Callable[[], bool] = lambda: False,
) -> None:
    """Walk through the history of a scenario from where the walker is, and leave it where the user quits. `execute`
    gives the answer of a command, in lines of so many columns; after it `left` says whether the user wants to quit."""
    scene = Scene(opened, walker.history, walker)
    gc.freeze()  # the history stays: looking through it again and again would stop the screen
    try:
        DebuggerApp(scene, execute, dark, colored, left).run()
    finally:
        gc.unfreeze()
