"""Opening the screen: a history is recorded, and shown until the user quits."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ggmltool.debugger.screen.app import DebuggerApp
from ggmltool.debugger.screen.scene import Scene
from ggmltool.inspect.history.history import record_history

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened


def open_screen(opened: Opened, compute: bool, dark: bool, colored: bool) -> None:
    """Record the run of a scenario and walk through it."""
    scene = Scene(opened, record_history(opened.scenario, compute))
    gc.freeze()  # the history stays: looking through it again and again would stop the screen
    try:
        DebuggerApp(scene, dark=dark, colored=colored).run()
    finally:
        gc.unfreeze()
