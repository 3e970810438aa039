"""All of a program's memory at a point, as far as ggml's structs are known, and the images of points in turn."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from functools import cache, cached_property, partial

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.galloc import Galloc
from ggmltool.debugger.expressions.image.program import STRINGS, STRINGS_ROOM, TABLES, UNKNOWN, Program, program_of
from ggmltool.debugger.expressions.image.sched import Sched
from ggmltool.debugger.expressions.image.tensors import Graphs, Tensors
from ggmltool.debugger.expressions.memory import NOT_KNOWN, ImageMemory, Read, made_once
from ggmltool.ggml.events import AllocationStarted
from ggmltool.ggml.state import TensorState
from ggmltool.state.story.history import History
from ggmltool.state.story.points import AnyCells
from ggmltool.structs.declarations import NoMemoryError
from ggmltool.structs.layout import Layout

HALVES = 1 << 16
TABLE_NAMES = ("ggml_table_f32_f16", "table_f32_f16")
"""What the table of float16 values is called: now, and in ggml until October 2023."""


class Image:
    """The program in a state, in the structs of `layout`; `computed` reads what was computed by its address. `planned`
    gives the state in which the allocator began to walk a graph last, None for this one. `there`: the scheduler was
    made; before that there is nothing to see but the program's devices and contexts."""

    def __init__(
        self,
        program: Program,
        cells: AnyCells,
        layout: Layout,
        computed: Read,
        planned: Callable[[], AnyCells | None] = lambda: None,
    ) -> None:
        self.program = program
        self.cells = cells
        self.layout = layout
        self.there = ("sched", "n_splits") in cells
        self.memory = memory = ImageMemory()
        base = program, cells, layout, memory
        self.tensors = tensors = Tensors(base)
        self.devices = Devices(base)
        self.graphs = Graphs(base, tensors)
        tensors.buffer_of = self.devices.by_base()
        tensors.gpus = self.devices.gpu_bases()

        def walked() -> Tensors:
            then = planned()
            return tensors if then is None else Tensors((program, then, layout, ImageMemory()))

        self.galloc = Galloc(base, tensors, self.devices, walked)
        self.sched = Sched(base, tensors, self.devices, self.graphs, self.galloc)
        self._computed = computed
        for facts in self.devices.buffers:
            if facts is not None and facts.base and facts.size:
                memory.add(facts.base, facts.size, partial(self._contents, facts.base))
        memory.add(TABLES, 4 * HALVES, made_once(_halves), TABLE_NAMES[0])
        memory.add(UNKNOWN, 0, lambda offset, n: b"", NOT_KNOWN)
        memory.add(STRINGS, STRINGS_ROOM, program.strings)

    def _contents(self, base: int, offset: int, n: int) -> bytes:
        """So many bytes of a buffer, less if not all are known: what was computed there, and where nothing is computed
        what the scenario gives. Raises NoMemoryError if none are."""
        at, out = base + offset, b""
        while len(out) < n:
            part = self._computed(at + len(out), n - len(out)) or self._given(at + len(out), n - len(out))
            if not part:
                break
            out += part
        if not out:
            raise NoMemoryError(at)
        return out

    def _given(self, at: int, n: int) -> bytes:
        for first, raw in self._data:
            if first <= at < first + len(raw()):
                return raw()[at - first :][:n]
        return b""

    @cached_property
    def _data(self) -> list[tuple[int, Callable[[], bytes]]]:
        """Where the tensors with data of the scenario's lie, and what gives their bytes."""
        model = self.program.model
        given = {t.id: t for t in model.tensors() if t.data is not None}

        @cache
        def made(id: str) -> bytes:
            t = given[id]
            return b"" if t.data is None else t.data.raw(t.type, t.ne, t.nb, model.bounds)

        return [(cell.data, partial(made, cell.id)) for _, cell in self.tensors.all if cell.data and cell.id in given]


@cache
def _halves() -> bytes:
    halves = struct.unpack(f"<{HALVES}e", b"".join(i.to_bytes(2, "little") for i in range(HALVES)))
    return struct.pack(f"<{HALVES}f", *halves)


_LASTING = frozenset((
    "sched", "galloc", "tensor", "cgraph", "sched_graph", "split", "copies", "buffer", "node_alloc", "leaf_alloc",
    "node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids",
))  # fmt: skip
"""What an image is made of. The other areas change at almost every event, and it reads them when it is asked."""
_GRAPHS = frozenset(("sched_graph", "cgraph", "tensor"))
_ALL = _LASTING | {"id", "cause", "hash_node", "free", "max_size"}
"""What one of January 2024 is made of, whose tables are small."""


class Images:
    """A place that moves through a history, with the image there, in the structs of `layout`: what is the same at the
    next point is not made again."""

    def __init__(self, history: History, layout: Layout) -> None:
        self._history = history
        self._program = program_of(history)
        self.layout = layout
        self._areas = _LASTING if self._program.release.reserves else _ALL
        self._cursor = history.cursor()
        self._since = -2
        self._moment = -1, 0
        self._image: Image | None = None
        events = enumerate(point.event for point in history.points)
        self._walks = [-1, *(at for at, e in events if isinstance(e, AllocationStarted) and e.at == -1)]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names and ids of all tensors that there are at any point."""
        changes = (change for here in self._history.changes for change in here)
        cells = [value for key, value in changes if key[0] == "tensor" and isinstance(value, TensorState)]
        return frozenset(name for cell in cells for name in (cell.name, cell.id))

    def at(self, at: int, phase: int = 0) -> Image:
        """The image of a moment of point `at`, which holds until another one is asked for."""
        if self._image is None or self._moment != (at, phase):
            self._moment = at, phase
            seen, but = self._history.seen(at, phase)
            cells = self._cursor.move_to(seen, but)
            walk = self._walks[bisect_right(self._walks, seen) - 1]
            since = max(self._history.since(self._areas, seen), walk)
            since = -2 if any(key[0] in self._areas for key, _ in but) else since
            if self._image is None or since != self._since or since == -2:
                planned = partial(self._planned, walk, seen)
                self._image = Image(self._program, cells, self.layout, self._bytes, planned)
                self._since = since
        return self._image

    def _planned(self, walk: int, at: int) -> AnyCells | None:
        """The state at the point `walk` where the allocator began; None where no graph was split since."""
        return self._history.cells(walk) if self._history.since(_GRAPHS, at) > walk >= 0 else None

    def _bytes(self, address: int, n: int) -> bytes:
        return self._history.bytes_at(self._cursor.at, address, n)
