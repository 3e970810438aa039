"""The images of a history's points, one after the other: what is the same at the next point is not made again."""

from __future__ import annotations

from functools import cached_property

from ggmltool.debugger.expressions.image.image import Image
from ggmltool.debugger.expressions.image.program import program_of
from ggmltool.ggml.state import TensorState
from ggmltool.state.story.history import History
from ggmltool.structs.layout import Layout

_LASTING = frozenset((
    "sched", "galloc", "tensor", "cgraph", "sched_graph", "split", "copies", "buffer", "node_alloc", "leaf_alloc",
    "node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids",
))  # fmt: skip
"""What an image is made of. The other areas change at almost every event, and it reads them when it is asked."""
_ALL = _LASTING | {"id", "cause", "hash_node", "free", "max_size"}
"""What one of January 2024 is made of, whose tables are small."""


class Images:
    """A place that moves through a history, with the image there, in the structs of `layout`."""

    def __init__(self, history: History, layout: Layout) -> None:
        self._history = history
        self._program = program_of(history)
        self.layout = layout
        self._areas = _LASTING if self._program.release.reserves else _ALL
        self._cursor = history.cursor()
        self._since = -2
        self._at = -1
        self._phase = 0
        self._image: Image | None = None

    @cached_property
    def names(self) -> frozenset[str]:
        """The names and ids of all tensors that there are at any point."""
        changes = (change for here in self._history.changes for change in here)
        cells = [value for key, value in changes if key[0] == "tensor" and isinstance(value, TensorState)]
        return frozenset(name for cell in cells for name in (cell.name, cell.id))

    def at(self, at: int, phase: int = 0) -> Image:
        """The image of a moment of point `at`, which holds until another one is asked for."""
        if self._image is None or (self._at, self._phase) != (at, phase):
            self._at, self._phase = at, phase
            seen, but = self._history.seen(at, phase)
            cells = self._cursor.move_to(seen, but)
            since = -2 if any(key[0] in self._areas for key, _ in but) else self._history.since(self._areas, seen)
            if self._image is None or since != self._since or since == -2:
                self._image, self._since = Image(self._program, cells, self.layout, self._bytes), since
        return self._image

    def _bytes(self, address: int, n: int) -> bytes:
        return self._history.bytes_at(self._cursor.at, address, n)
