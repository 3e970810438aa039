"""The program that is looked at: what stays the same from point to point, where its things lie, a part of its image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ggmltool.debugger.expressions.memory import Fields, ImageMemory, made_once, pack, pack_array, records
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.interfaces import FunctionTable, tables_of
from ggmltool.ggml.version import pad
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.tensor_info import BUFFERS, BUFFERS_STEP, FIRST, STEP
from ggmltool.state.story.history import History
from ggmltool.state.story.points import AnyCells
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import VOID, Pointer

REBUILT = 0x1000_0000
"""How far apart the builds of an arena lie that each graph makes anew."""

_HEAP = 0x5552_0000_0000
_ROOM = 0x1000_0000
_THINGS = (
    "sched", "galloc", "galloc.bufts", "galloc.buffers", "galloc.buf_tallocs", "tallocrs", "chunks", "vbuffers",
    "galloc.hash_set.keys", "galloc.hash_set.used", "hash_values", "node_allocs", "leaf_allocs", "sched.hash_set.keys",
    "sched.hash_set.used", "hv_tensor_backend_ids", "hv_tensor_copies", "node_backend_ids", "leaf_backend_ids",
    "prev_node_backend_ids", "prev_leaf_backend_ids", "sched.graph", "sched.graph.nodes", "sched.graph.leafs", "splits",
    "split_inputs", "graph_inputs", "backends", "devices", "events", "contexts", "context_buffer", "galloc.talloc",
    "parse_seq", "guids", "contexts.device",
)  # fmt: skip
HEAP = {name: _HEAP + i * _ROOM for i, name in enumerate(_THINGS)}
"""Where the things begin that scheduler and allocator allocate, by their names there."""

OWN_NODES = 0x5000_0000_0000
OWN_NODES_STEP = 0x100_0000
OWN_DATA = 0x5100_0000_0000
"""Where the program has the values that it writes into tensors and gets from them: those of nodes, of contexts."""

TEXT = 0x7FFF_F7E0_0000
TEXT_STEP = 0x40
"""Function `i` lies at TEXT + i * TEXT_STEP."""
UNKNOWN = TEXT - 0x1000
"""In place of a function of a table that the ggml which decides does not have: its structs are shown as another's."""
STATICS = 0x7FFF_F7F4_0000
STATICS_STEP = 0x100
"""Buffer type `i` lies at STATICS + i * STATICS_STEP."""
TABLES = 0x7FFF_F7F8_0000
"""Where the table of float16 values lies, ggml_table_f32_f16."""
STRINGS = 0x7FFF_F7FC_0000
"""Where the strings of the program lie that functions give."""
STRINGS_ROOM = 0x100_0000
OBJECT = 32
"""sizeof(struct ggml_object)."""
_STRING = 0x100
"""How far apart strings lie."""


def arena(number: int, build: int = 0) -> int:
    """Where the pool of an arena begins; `build` is the graph whose build made it, for one that is made anew."""
    return FIRST + number * STEP + build * REBUILT


def buffer(number: int) -> int:
    """Where the struct of a buffer lies."""
    return BUFFERS + number * BUFFERS_STEP


class BufferFacts(NamedTuple):
    """A buffer: where its bytes begin, how many, whose type, and what it is used for."""

    base: int
    size: int
    buft: int
    usage: int


class Home(NamedTuple):
    """Where the struct of a tensor lies: the number of the arena, and the tensor's place in it."""

    arena: int
    place: int


class Program:
    """What does not change from point to point. `bufts` are the buffer types, those of the backends first, in their
    order; `buft_of` the number of each backend's. `buffers` are those of contexts. Arenas are numbered: the contexts,
    then the graphs, then the scheduler's. `homes` are of each graph the homes of tensors by id; `fresh` are the arenas
    whose tensors each build makes anew. `own_data` is where the program has its own values of each tensor."""

    def __init__(self, history: History) -> None:
        run = history.scenario.start()
        with suppress(GgmlError):
            run.start()
        self.model = model = run.model
        self.release = model.release
        self.backends = run.backends
        own = [b.device.buft for b in run.backends]
        self.bufts: list[BufferType] = list(dict.fromkeys([*own, *run.bufts.values()]))
        self.buft_of = [self.bufts.index(buft) for buft in own]
        self.profiles = [spec.family for spec in model.backends]
        number = {buft: i for i, buft in enumerate(self.bufts)}
        self.buffers = [BufferFacts(b.base, b.size, number.get(b.buft, -1), b.usage) for b in run.buffers]
        self.cgraph_size = run.compiled.cgraph_size
        self.contexts = [spec.name for spec in model.contexts]
        self.graphs = list(model.graphs)
        self.sched_arena = len(self.contexts) + len(self.graphs)
        graphs = [model.graphs[graph].nodes for graph in self.graphs]
        self.arena_sizes = [*(len(spec.tensors) for spec in model.contexts), *map(len, graphs), 0]
        self.fresh = frozenset(i for i, spec in enumerate(model.contexts) if spec.buft is None)
        shared = {t.id: Home(i, at) for i, spec in enumerate(model.contexts) for at, t in enumerate(spec.tensors)}
        self.homes: dict[str, dict[str, Home]] = {}
        for g, nodes in enumerate(graphs, len(self.contexts)):
            self.homes[self.graphs[g - len(self.contexts)]] = shared | {t.id: Home(g, i) for i, t in enumerate(nodes)}
        ids = dict.fromkeys(t.id for nodes in graphs for t in nodes)
        self.own_data = {id: OWN_NODES + i * OWN_NODES_STEP for i, id in enumerate(ids)}
        at = OWN_DATA
        for t in model.tensors():
            self.own_data[t.id] = at
            at += pad(t.nb[3] * t.ne[3], _STRING)
        self._interned: dict[bytes, int] = {}
        self._strings = b""

    def interned(self, text: str) -> int:
        """Where a string of the program lies, where it stays once somebody asked."""
        raw = text.encode("utf-8", "surrogateescape") + b"\0"
        if raw not in self._interned:
            self._interned[raw] = STRINGS + len(self._strings)
            self._strings += raw.ljust(pad(len(raw), _STRING), b"\0")
        return self._interned[raw]

    def strings(self, offset: int, n: int) -> bytes:
        """The bytes of those strings."""
        return self._strings[offset : offset + n]

    def tables(self, backend: int) -> dict[str, FunctionTable]:
        """The function tables of a backend, by struct; none if they are not known."""
        found = tables_of(self.profiles[backend], self.release.name) or ()
        return {table.kind: table for table in found}

    def owner(self, buft: int) -> int:
        """The backend whose device a buffer type belongs to."""
        devices = [backend.device for backend in self.backends]
        own = (b for b, device in enumerate(devices) if device.buft is self.bufts[buft])
        named = (b for b, device in enumerate(devices) if device.name == self.bufts[buft].device)
        return next(own, next(named, len(devices) - 1))


_KEPT: WeakKeyDictionary[LoadedScenario, Program] = WeakKeyDictionary()


def program_of(history: History) -> Program:
    """The program of a history, found once."""
    if history.scenario not in _KEPT:
        _KEPT[history.scenario] = Program(history)
    return _KEPT[history.scenario]


Base = tuple[Program, AnyCells, Layout, ImageMemory]
"""What an image is made of: the program in a state, the structs that are shown, the memory they are written to."""


class ImagePart:
    """A part of an image, which adds its structs to the memory."""

    def __init__(self, base: Base) -> None:
        self.program, self.cells, self.layout, self.memory = base
        self.reserves = self.program.release.reserves
        """Whether the allocator is one of those since February 2024."""

    def size(self, struct: str, alignment: int = 1) -> int:
        """The bytes of a struct, padded."""
        size = self.layout.structs[struct].size
        return size if alignment == 1 else pad(size, alignment)

    def offset(self, struct: str, field: str) -> int:
        """Where a field lies in a struct."""
        return (self.layout.structs[struct].members or {})[field].offset

    def field(self, name: str, otherwise: int = 0) -> int:
        """A plain field of the scheduler."""
        return int(self.cells.get(("sched", name), otherwise))

    def own(self, part: str) -> tuple[int, ...]:
        """The nodes, leafs, inputs, … of the scheduler's own graph."""
        found: tuple[int, ...] = self.cells.get(("sched_graph", part), ())
        return found

    def one(self, thing: str, struct: str, fields: Callable[[], Fields]) -> None:
        """A struct is there."""
        of = self.layout.structs[struct]
        self.memory.add(HEAP[thing], of.size, made_once(lambda: pack(of, fields())))

    def rows(
        self, thing: str, struct: str, n: int, fields: Callable[[int], Fields], alignment: int = 1, anew: bool = False
    ) -> None:
        """`n` structs are there, where there are such, made once, or `anew` for each read."""
        of = self.layout.structs.get(struct)
        if of is None:
            return
        step = self.size(struct, alignment)

        def make(i: int) -> bytes:
            return pack(of, fields(i))

        self.memory.add(HEAP[thing], n * step, records(step, make if anew else cache(make)))

    def pointers(self, thing: str, n: int, make: Callable[[], Iterable[Any]]) -> None:
        """An array of `n` pointers is there."""
        self.memory.add(HEAP[thing], 8 * n, made_once(lambda: pack_array(Pointer(VOID), make(), n)))
