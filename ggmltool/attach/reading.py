"""Reads a scheduler and a graph in a stopped program: a Snapshot of all that they are made of."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ggmltool.attach import alone
from ggmltool.attach.devices.backends import BackendReader
from ggmltool.attach.devices.properties import Questions, op_names, type_names
from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import mappings_of
from ggmltool.attach.state import Function, Snapshot
from ggmltool.attach.stopped import Stopped, layouts_for, remember
from ggmltool.ggml.state import GraphState, SchedState
from ggmltool.state.errors import LinkError, NoBytes, NotAsLaidOut
from ggmltool.state.memory.graphs import Graphs
from ggmltool.state.memory.pages import Memory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.state.memory.tensors import Tensors, TensorStruct
from ggmltool.structs.layout import Layout, says_structs
from ggmltool.structs.types import Array, CType, Int, Pointer, Struct, bare, size_of


class ProcessReader:
    """Reads structs of a program that stands still; what it has read once it does not read again.

    Raises NoBytes where nothing is, NotAsLaidOut for what cannot be.
    """

    def __init__(self, session: Stopped, types: Layout | None = None) -> None:
        self.link = session.link
        self.instance = session.instance
        self.layout: Layout = types or next(layouts_for(session))
        self.memory = Memory(session.link)
        self.graphs = Graphs(self.memory, self.layout)
        self.tensors = Tensors(self.memory, self.layout)

    def tensor(self, address: int) -> TensorStruct:
        """The ggml_tensor at an address."""
        return self.tensors.tensor(address)

    def graph(self, address: int) -> GraphState:
        """The ggml_cgraph at an address."""
        return self.graphs.graph(address)

    def sched(self, address: int) -> SchedState:
        """The ggml_backend_sched at an address."""
        return Schedulers(self.memory, self.layout, self.graphs).sched(address)

    def struct(self, name: str, address: int) -> dict[str, Any]:
        """All fields of a struct: numbers, bytes of character arrays, tuples of arrays, dicts of structs."""
        found = self.layout.structs.get(name)
        if found is None:
            raise NotAsLaidOut(f"ggml {self.layout.name} has no struct {name}")
        value = _value(found, self.memory.read(address, found.size))
        return dict(value)


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is looked through for garbage: while the program stands still there is none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@uncollected()
def read_snapshot(
    session: Stopped,
    sched: int,
    graph: int,
    function: Function | None,
    when: Literal["before", "after", "within"],
    known: Snapshot | None = None,
) -> Snapshot:
    """What the program holds of a scheduler and a graph, by their addresses. What the devices said of themselves before
    the call is not asked again where that is `known`. Raises AttachError."""

    def reading(reader: ProcessReader) -> _Reading:
        return _Reading(reader, reader.sched(sched), graph, known=known)

    return _read(session, "scheduler", reading, function, when)


def read_alone(
    session: Stopped,
    first: int,
    graph: int,
    function: Function,
    when: Literal["before", "after"],
    known: Snapshot | None = None,
) -> Snapshot:
    """The same of a call without a scheduler, whose first argument is a graph allocator or a backend: the scheduler is
    the one that would do the same. Raises AttachError."""

    def reading(reader: ProcessReader) -> _Reading:
        schedulers = Schedulers(reader.memory, reader.layout, reader.graphs)
        found = reader.graph(graph)
        sched = alone.sched_like(session, schedulers, function, first, found)
        device = 0 if sched.backends else alone.device_of(session, reader.memory, reader.layout, sched.bufts[0])
        return _Reading(reader, sched if when == "before" else alone.done(sched, found), graph, device, known)

    return _read(session, "graph allocator", reading, function, when)


def _read(
    session: Stopped,
    what: str,
    reading: Callable[[ProcessReader], _Reading],
    function: Function | None,
    when: Literal["before", "after", "within"],
) -> Snapshot:
    first: NotAsLaidOut | NoBytes | None = None
    tried = []
    for types in layouts_for(session):
        try:
            snapshot = reading(ProcessReader(session, types)).snapshot(function, when)
        except (NotAsLaidOut, NoBytes) as error:
            first = first or error
            tried.append(types.name)
        except LinkError as error:
            raise AttachError(f"gdb could not read the program: {error}") from None
        else:
            remember(session, types)
            return snapshot
    said = session.instance.version
    version = f"ggml {said}" if says_structs(said) else "a ggml that does not say its version"
    raise NotAsLaidOut(
        f"the {what} of {version} cannot be read with the structs of ggml {' or '.join(dict.fromkeys(tried))}: "
        f"{first}. Its memory is damaged, or its structs are others"
    )


class _Reading:
    """One snapshot in the making."""

    def __init__(
        self, reader: ProcessReader, sched: SchedState, graph: int, device: int = 0, known: Snapshot | None = None
    ) -> None:
        self.reader = reader
        self.device = device
        self.known = known
        self.sched = sched
        self.graph = reader.graph(graph)
        self.unread: list[str] = []

    def snapshot(self, function: Function | None, when: Literal["before", "after", "within"]) -> Snapshot:
        reader, tensors = self.reader, self.reader.tensors
        tensors.take((*self.graph.nodes, *self.graph.leafs), must=True)
        contexts = tensors.arenas(list(tensors.read))
        tensors.take((t for context in contexts for t in context), must=False)
        known = set(tensors.read)
        tensors.take(self._held(when), must=False)
        if tensors.left_out:
            self.unread.append(
                f"{tensors.left_out} tensors that the scheduler or a context still names, and that are gone"
            )
        mappings = mappings_of(reader.link)
        questions = Questions(reader.link, mappings)
        backends = BackendReader(reader.memory, reader.layout, questions, mappings, self.known)
        live = {tensors.read[t].buffer for t in known} | {
            buffer for buffers in self.sched.galloc.buffers for buffer in buffers
        }
        found = backends.read(self.sched, live, {t.buffer for t in tensors.read.values()}, self.device)
        asked, used = (questions, reader.instance.symbols, reader.layout), tensors.read.values()
        known_types, known_ops = (self.known.type_names, self.known.op_names) if self.known else ({}, {})
        types, ops = {t.type for t in used}, {(t.op, t.op_params[0]) for t in used}
        return Snapshot(
            function=function,
            when=when,
            version=reader.instance.version,
            release=reader.instance.release.name,
            structs=reader.layout.name,
            overhead=sum(reader.layout.structs[tag].size for tag in ("ggml_object", "ggml_tensor")),
            sched=self.sched,
            graph=self.graph,
            tensors=dict(tensors.read),
            buffers=found.buffers,
            bufts=found.bufts,
            devices=found.devices,
            backends=tuple(found.backends.values()) or (alone.backend_on(self.device, found.devices),),
            contexts=contexts,
            type_names={**known_types, **type_names(*asked, types - known_types.keys())},
            op_names={**known_ops, **op_names(*asked, ops - known_ops.keys())},
            unread=(*self.unread, *backends.unread, *questions.unanswered),
        )

    def _held(self, when: str) -> Iterable[int]:
        """The tensors that the scheduler names; of an earlier graph's it has only names that lead nowhere, and one that
        has just reserved is reset, and still has its graph."""
        sched = self.sched
        yield from sched.hash_set.keys
        yield from (copy for _, _, _, copy in sched.copies())
        if when == "after" or not sched.is_reset:
            for split in sched.splits:
                yield from split.inputs
            yield from sched.graph.nodes
            yield from sched.graph.leafs
            yield from sched.graph_inputs


def _value(type: CType, data: bytes) -> Any:
    t = bare(type)
    match t:
        case Struct():
            return {
                name: _value(m.type, data[m.offset : m.offset + size_of(m.type)])
                for name, m in (t.members or {}).items()
            }
        case Array(of, length):
            if isinstance(bare(of), Int) and size_of(of) == 1:
                return data
            step = size_of(of)
            return tuple(_value(of, data[i * step : (i + 1) * step]) for i in range(length))
        case Int(signed=signed):
            return int.from_bytes(data, "little", signed=signed)
        case Pointer():
            return int.from_bytes(data, "little")
        case _:
            return int.from_bytes(data, "little", signed=True)
