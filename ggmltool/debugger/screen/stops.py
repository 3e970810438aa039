"""Breakpoints on the screen: where they stand, what it says when one is set, and where it stopped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.debugger.walk import Reason, Stop
from ggmltool.show.text import count

if TYPE_CHECKING:
    from ggmltool.debugger.breakpoints import Breakpoints
    from ggmltool.debugger.screen.scene import Scene

_MOST_MARKS = 200
"""Points of a breakpoint that are marked."""


def marked(breakpoints: Breakpoints) -> list[int]:
    """The points of breakpoints, of each the first ones."""
    return [at for one in breakpoints if one.enabled for at in one.places[:_MOST_MARKS]]


def stands_at(breakpoints: Breakpoints, at: int) -> bool:
    """Whether a breakpoint stands at a point."""
    return any(is_in(one.places, at) for one in breakpoints if one.enabled)


def is_in(points: Sequence[int], at: int) -> bool:
    """Whether a point is one of these, which are in order."""
    place = bisect_left(points, at)
    return place < len(points) and points[place] == at


def toggled(breakpoints: Breakpoints, what: str, places: Sequence[int]) -> str:
    """Set a breakpoint, or delete the one that stands there; what was done."""
    there = next((one for one in breakpoints if one.what == what), None)
    if there is not None:
        breakpoints.delete(there.number)
        return f"Deleted breakpoint {there.number} at {what}"
    if not places:
        return f"Nothing happens to {what or 'nothing'}: no breakpoint."
    made = breakpoints.add(what, places)
    return f"Breakpoint {made.number} at {what}: {count(len(places), 'event')}. c and r go there."


def stop_text(stop: Stop, scene: Scene) -> str:
    """Why it stopped."""
    if stop.hits:
        return "; ".join(f"Breakpoint {hit.breakpoint.number}, {hit.breakpoint.what}" for hit in stop.hits)
    without = "" if len(scene.walker.breakpoints) else " b sets a breakpoint at the selected tensor."
    if stop.reason is Reason.START:
        return f"The beginning: no breakpoint before.{without}"
    if stop.reason is Reason.ABORTED:
        return f"The end: ggml refused to go on: {scene.error}"
    return f"The end: no breakpoint behind.{without}"
