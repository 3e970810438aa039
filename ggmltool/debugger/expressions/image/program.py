"""What stays the same of the program that is looked at: its devices, the buffers of weights, where tensors lie."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ggmltool.debugger.expressions.image import addresses
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.interfaces import FunctionTable, tables_of
from ggmltool.ggml.version import pad
from ggmltool.scenario.scenario import Scenario
from ggmltool.state.story.history import History

_STRING = 0x100
"""How far apart strings lie."""


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
    """What does not change from point to point.

    `bufts` are the buffer types, those of the backends first, in their order; `buft_of` the number of each backend's.
    `buffers` are those of contexts. Arenas are numbered: the contexts, then the graphs, then the scheduler's.
    `homes` are of each graph the homes of tensors by id; `fresh` are the arenas whose tensors each build makes anew.
    """

    def __init__(self, history: History) -> None:
        run = history.scenario.start()
        with suppress(GgmlError):
            run.start()
        self.model = run.model
        self.release = run.model.release
        self.backends = run.backends
        own = [b.device.buft for b in run.backends]
        self.bufts: list[BufferType] = list(dict.fromkeys([*own, *run.bufts.values()]))
        self.buft_of = [self.bufts.index(buft) for buft in own]
        self.profiles = [spec.family for spec in run.model.backends]
        self.buffers = [BufferFacts(b.base, b.size, self._number(b.buft), b.usage) for b in run.buffers]
        self.cgraph_size = run.compiled.cgraph_size
        self.contexts = [spec.name for spec in run.model.contexts]
        self.graphs = list(run.model.graphs)
        self.arena_sizes = [len(spec.tensors) for spec in run.model.contexts]
        self.fresh = frozenset(i for i, spec in enumerate(run.model.contexts) if spec.buft is None)
        shared = {
            t.id: Home(i, place) for i, spec in enumerate(run.model.contexts) for place, t in enumerate(spec.tensors)
        }
        self.homes: dict[str, dict[str, Home]] = {}
        for g, graph in enumerate(self.graphs):
            nodes = run.model.graphs[graph].nodes
            own_homes = {t.id: Home(len(self.contexts) + g, place) for place, t in enumerate(nodes)}
            self.homes[graph] = shared | own_homes
            self.arena_sizes.append(len(nodes))
        self.arena_sizes.append(0)
        self.own_data = self._own_data()
        self._interned: dict[bytes, int] = {}
        self._strings = b""

    def _own_data(self) -> dict[str, int]:
        """Where the program has its own values of each tensor."""
        nodes = dict.fromkeys(t.id for graph in self.model.graphs.values() for t in graph.nodes)
        out = {id: addresses.OWN_NODES + i * addresses.OWN_NODES_STEP for i, id in enumerate(nodes)}
        at = addresses.OWN_DATA
        for t in self.model.tensors():
            out[t.id] = at
            at += pad(t.nb[3] * t.ne[3], _STRING)
        return out

    def _number(self, buft: BufferType) -> int:
        return self.bufts.index(buft) if buft in self.bufts else -1

    @property
    def sched_arena(self) -> int:
        """The number of the scheduler's arena."""
        return len(self.contexts) + len(self.graphs)

    def interned(self, text: bytes) -> int:
        """Where a string lies among those of the program, where it stays once somebody asked."""
        if text not in self._interned:
            self._interned[text] = len(self._strings)
            self._strings += text.ljust(pad(len(text), _STRING), b"\0")
        return self._interned[text]

    def strings(self, offset: int, n: int) -> bytes:
        """The bytes of those strings."""
        return self._strings[offset : offset + n]

    def tables(self, backend: int) -> dict[str, FunctionTable]:
        """The function tables of a backend, by struct; none if they are not known."""
        found = tables_of(self.profiles[backend], self.release.name) or ()
        return {table.kind: table for table in found}

    def owner(self, buft: int) -> int:
        """The backend whose device a buffer type belongs to."""
        for b, backend in enumerate(self.backends):
            if backend.device.buft is self.bufts[buft]:
                return b
        for b, backend in enumerate(self.backends):
            if backend.device.name == self.bufts[buft].device:
                return b
        return len(self.backends) - 1


_KEPT: WeakKeyDictionary[Scenario, Program] = WeakKeyDictionary()


def program_of(history: History) -> Program:
    """The program of a history, found once."""
    if history.scenario not in _KEPT:
        _KEPT[history.scenario] = Program(history)
    return _KEPT[history.scenario]
