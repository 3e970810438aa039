"""An event as one line: a sign, what happened, and the reason in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ggmltool.debugger.lines import event_line as line_of_event
from ggmltool.ggml.events import (
    Allocated,
    AllocationStarted,
    Assigned,
    Computed,
    Entered,
    Event,
    Freed,
    Left,
    NotReused,
    PassedOver,
    Refused,
    Reused,
    SplitStarted,
    TensorCopied,
)
from ggmltool.show.text import printable
from ggmltool.views.explain.words import words

if TYPE_CHECKING:
    from rich.style import Style

    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Scene

INDENT = 2
_DEEPEST = 12
"""Columns of indentation at most: what is said needs the room."""


def event_text(event: Event) -> str:
    """What happened and why, in one line, with its names made safe to print."""
    match event:
        case Left(function):
            return printable(f"{function} is done")
        case PassedOver(tensor, _, cause, _, backend):
            on = f" for {backend}" if backend else ""
            return printable(f"{tensor} not by {cause}{on}: {words(event)}")
        case Entered(function, detail):
            return printable(f"{function}({detail})")
        case _:
            return printable(line_of_event(event))


def event_line(scene: Scene, look: Look, at: int) -> Text:
    """The line of a point: indented by how many calls are open, a sign in front."""
    point = scene.history.points[at]
    event = point.event
    if event is None:
        refused = at == scene.last and bool(scene.error)
        return Text(_step_text(scene, at, refused), look.face.bad if refused else look.face.bold)
    depth = scene.depth(at) - isinstance(event, Entered)
    sign, style = _sign(event, look)
    line = Text(" " * min(INDENT * depth, _DEEPEST))
    line.append(f"{sign} ", style)
    quiet = isinstance(event, (PassedOver, Left))
    strong = isinstance(event, (Entered, AllocationStarted, SplitStarted, Computed))
    line.append(event_text(event), look.face.soft if quiet else look.face.bold if strong else look.face.plain)
    return line


def _step_text(scene: Scene, at: int, refused: bool) -> str:
    point = scene.history.points[at]
    title = printable(scene.step_title(point.step))
    if refused:
        return f"✗ {title}: ggml refuses: {printable(scene.error)}"
    return f"■ {title} is done" if point.ends else f"▣ {title}"


def _sign(event: Event, look: Look) -> tuple[str, Style]:
    face = look.face
    match event:
        case Entered():
            return "┌", face.soft
        case Left():
            return "└", face.soft
        case Assigned(backend=backend):
            return "→", look.ink(backend)
        case SplitStarted(backend=backend) | Computed(backend=backend):
            return "━", look.ink(backend)
        case PassedOver() | NotReused():
            return "·", face.soft
        case Refused():
            return "✗", face.bad
        case Allocated():
            return "+", face.good
        case Freed():
            return "-", face.bad
        case Reused():
            return "=", face.good
        case AllocationStarted():
            return "▸", face.note
        case TensorCopied():
            return "»", face.note
        case _:
            return " ", face.soft
