"""Finding: the points at which something with a word in its name happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.events import Entered, Event, Left
from ggmltool.state.story.points import about

if TYPE_CHECKING:
    from ggmltool.debugger.screen.scene import Scene


def find(scene: Scene, word: str) -> list[int]:
    """The points whose tensors (their names, their ops), function, kind, rule or backend have the word, in order; the
    case does not matter. A tensor of exactly this name is meant alone."""
    needle = word.casefold()
    exact = {m.label for program in scene.programs() for m in program.members if m.label.casefold() == needle}
    tensors = exact or _Tensors(scene, needle)
    out = []
    for at, point in enumerate(scene.history.points):
        event = point.event
        if event is None:
            if needle in scene.step_title(point.step).casefold():
                out.append(at)
        elif any(tensor in tensors for tensor in about(event)) or (not exact and _has(event, needle)):
            out.append(at)
    return out


class _Tensors:
    """The tensors whose names or ops have a word, found out once for each."""

    def __init__(self, scene: Scene, needle: str) -> None:
        self._needle = needle
        self._known: dict[str, bool] = {}
        for program in scene.programs():
            for m in program.members:
                self._known[m.label] = needle in m.label.casefold() or needle in m.op.casefold()

    def __contains__(self, tensor: str) -> bool:
        known = self._known.get(tensor)
        if known is None:
            known = self._known[tensor] = self._needle in tensor.casefold()
        return known


def _has(event: Event, needle: str) -> bool:
    if isinstance(event, Entered | Left):
        return needle in event.function.casefold()
    words = (type(event).__name__, getattr(event, "cause", ""), getattr(event, "backend", ""))
    return any(needle in word.casefold() for word in words)
