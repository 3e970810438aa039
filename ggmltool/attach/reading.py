"""Reads a scheduler and a graph in a stopped program: a Snapshot of all that they are made of.

Of a program that computes without a scheduler, a graph allocator or a backend is told as the scheduler that would do
the same: a scheduler of one backend gives its graph allocator the graph as it is, node by node, so that every tensor
gets the place that ggml_gallocr_alloc_graph gives it alone. The scheduler that is made up has the address 0.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ggmltool.attach.devices.backends import BackendReader, Questions, op_names, type_names
from ggmltool.attach.files.instance import HEART, Instance
from ggmltool.attach.gdb.link import FunctionCall, GdbLink, mappings_of
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import BackendState, Function, Snapshot
from ggmltool.ggml.state import NO_SLOTS, GallocState, SchedState, SplitState
from ggmltool.state.errors import AttachError, LinkError, NoBytes, NotAsLaidOut
from ggmltool.state.memory.fields import record
from ggmltool.state.memory.pages import Memory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.state.memory.tensors import MemoryGraphs, MemoryTensors
from ggmltool.structs.layout import MAX_NAME, Layout, fresh, layout, layouts_of, newest_first, says_structs

When = Literal["before", "after", "within"]


def corrected(
    link: GdbLink, name: str, file: str = "", max_name: int = MAX_NAME
) -> tuple[Layout | None, tuple[str, ...]]:
    """A layout with the sizes and offsets that gdb knows, of a file where one is named, and the structs in which they
    are others; None where gdb does not know the scheduler, which only debug information of ggml's own files does. A
    field that the program's struct lacks is gone. `max_name` is its GGML_MAX_NAME."""
    layout = fresh(name, max_name)
    sizes = {tag: f"sizeof(struct {tag})" for tag in layout.structs}
    offsets = {
        (tag, field): f"(unsigned long)&((struct {tag} *)0)->{field}"
        for tag, struct in layout.structs.items()
        for field in struct.members or {}
    }
    asked = [*sizes.values(), *offsets.values()]
    try:
        answers = link.ask("evaluate_all", asked, sizes["ggml_backend_sched"], file)
    except LinkError:
        return None, ()
    if not answers:
        return None, ()
    told = dict(zip(asked, answers, strict=False))
    others = []
    for tag, struct in layout.structs.items():
        found = {
            field: member._replace(offset=offset)
            for field, member in (struct.members or {}).items()
            if (offset := told[offsets[tag, field]]) is not None
        }
        if told[sizes[tag]] and found and (found != struct.members or told[sizes[tag]] != struct.size):
            struct.members, struct.size = found, told[sizes[tag]]
            others.append(tag)
    return layout, tuple(others)


_FOUND: WeakKeyDictionary[Any, dict[str, Layout]] = WeakKeyDictionary()
"""The layouts that were right, by the link and by what the instance says of its structs."""


def layouts_for(session: AttachSession) -> Iterator[Layout]:
    """The structs that the program's ggml may have, the likeliest first: those that served before; those that its debug
    information tells; those of its version; and if that says nothing, those of all days before versions did."""
    instance = session.instance
    found = _FOUND.get(session.link, {}).get(instance.structs)
    if found is not None:
        yield found
        return
    for name in dict.fromkeys((*_others(instance), instance.structs)):
        if instance.tells_structs:
            own, differ = corrected(session.link, name, instance.files[0], instance.max_name)
            if own is not None and differ:
                yield own
        yield layout(name, instance.max_name)


def _others(ggml: Instance) -> tuple[str, ...]:
    """The layouts that a ggml may have that does not say its version. Where functions may have been inlined, those that
    there are tell nothing."""
    if says_structs(ggml.version):
        return ()
    return layouts_of("", ggml.symbols) if HEART in ggml.symbols else newest_first()


def structs_of(link: GdbLink, ggml: Instance) -> Layout:
    """The structs of a ggml before any of its data was read, where gdb has loaded what debug information there is:
    those that it knows, with the rest of the layout that differs least from them; else those of its version."""
    best: tuple[int, Layout] | None = None
    for name in dict.fromkeys((ggml.structs, *_others(ggml))):
        own, differ = corrected(link, name, ggml.files[0], ggml.max_name)
        if own is None:
            break
        if best is None or len(differ) < best[0]:
            best = len(differ), own
    return layout(ggml.structs, ggml.max_name) if best is None else best[1]


class ProcessReader:
    """Reads structs of a program that stands still; what it has read once it does not read again. Raises NoBytes where
    nothing is, NotAsLaidOut for what cannot be."""

    def __init__(self, session: AttachSession, types: Layout | None = None) -> None:
        self.link = session.link
        self.instance = session.instance
        self.layout: Layout = types or next(layouts_for(session))
        self.memory = Memory(session.link)
        self.graphs = MemoryGraphs(self.memory, self.layout)
        self.tensors = MemoryTensors(self.memory, self.layout)
        self.graph = self.graphs.graph
        self.tensor = self.tensors.tensor

    @cached_property
    def schedulers(self) -> Schedulers:
        """What reads schedulers and their allocators."""
        return Schedulers(self.memory, self.layout, self.graphs)

    def sched(self, address: int) -> SchedState:
        """The ggml_backend_sched at an address."""
        return self.schedulers.sched(address)

    def fields(self, tag: str, address: int, *names: str) -> list[Any]:
        """Fields of a struct at an address, as StructFields has them."""
        fields = record(self.layout, tag, names)
        return fields.unpack(self.memory.read(address, fields.size))


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
    session: AttachSession, at: int, graph: int, function: Function | None, when: When, known: Snapshot | None = None
) -> Snapshot:
    """What the program holds of a scheduler `at` an address and a graph; of a call without a scheduler what its first
    argument is, a graph allocator or a backend. What the devices said of themselves before the call is not asked again
    where that is `known`. Raises AttachError."""
    alone = function is not None and not function.startswith("ggml_backend_sched_")
    first: NotAsLaidOut | NoBytes | None = None
    tried = []
    for types in layouts_for(session):
        try:
            reader, device = ProcessReader(session, types), 0
            if function is None or not alone:
                sched = reader.sched(at)
            else:
                sched = _sched_like(session, reader, function, at, graph, when)
                device = 0 if sched.backends else _device_of(session, reader, sched.bufts[0])
            snapshot = _snapshot(reader, sched, graph, device, function, when, known)
        except (NotAsLaidOut, NoBytes) as error:
            first = first or error
            tried.append(types.name)
        except LinkError as error:
            raise AttachError(f"gdb could not read the program: {error}") from None
        else:
            _FOUND.setdefault(session.link, {})[session.instance.structs] = types
            return snapshot
    said = session.instance.version
    version = f"ggml {said}" if says_structs(said) else "a ggml that does not say its version"
    raise NotAsLaidOut(
        f"the {'graph allocator' if alone else 'scheduler'} of {version} cannot be read with the structs of ggml "
        f"{' or '.join(dict.fromkeys(tried))}: {first}. Its memory is damaged, or its structs are others"
    )


def _snapshot(
    reader: ProcessReader,
    sched: SchedState,
    graph_at: int,
    device: int,
    function: Function | None,
    when: When,
    before: Snapshot | None,
) -> Snapshot:
    graph, tensors = reader.graph(graph_at), reader.tensors
    tensors.take((*graph.nodes, *graph.leafs), must=True)
    contexts = tensors.arenas(list(tensors.read))
    tensors.take((t for context in contexts for t in context), must=False)
    known = set(tensors.read)
    tensors.take(_held(sched, when), must=False)
    unread = []
    if tensors.left_out:
        unread.append(f"{tensors.left_out} tensors that the scheduler or a context still names, and that are gone")
    mappings = mappings_of(reader.link)
    questions = Questions(reader.link, mappings)
    backends = BackendReader(reader.memory, reader.layout, questions, mappings, before)
    live = {tensors.read[t].buffer for t in known} | {b for buffers in sched.galloc.buffers for b in buffers}
    found = backends.read(sched, live, {t.buffer for t in tensors.read.values()}, device)
    asked, used = (questions, reader.instance.symbols, reader.layout), tensors.read.values()
    known_types, known_ops = (before.type_names, before.op_names) if before else ({}, {})
    types, ops = {t.type for t in used}, {(t.op, t.op_params[0]) for t in used}
    no_backend = () if sched.backends else (BackendState(0, found.devices[device].name, device, frozenset()),)
    return Snapshot(
        function=function,
        when=when,
        version=reader.instance.version,
        release=reader.instance.release.name,
        structs=reader.layout.name,
        overhead=sum(reader.layout.structs[tag].size for tag in ("ggml_object", "ggml_tensor")),
        sched=sched,
        graph=graph,
        tensors=dict(tensors.read),
        buffers=found.buffers,
        bufts=found.bufts,
        devices=found.devices,
        backends=tuple(found.backends.values()) or no_backend,
        contexts=contexts,
        type_names={**known_types, **type_names(*asked, types - known_types.keys())},
        op_names={**known_ops, **op_names(*asked, ops - known_ops.keys())},
        unread=(*unread, *backends.unread, *questions.unanswered),
    )


def _held(sched: SchedState, when: When) -> Iterable[int]:
    """The tensors that the scheduler names; of an earlier graph's it has only names that lead nowhere, and one that has
    just reserved is reset, and still has its graph."""
    yield from sched.hash_set.keys
    yield from (copy for _, _, _, copy in sched.copies())
    if when == "after" or not sched.is_reset:
        for split in sched.splits:
            yield from split.inputs
        yield from sched.graph.nodes
        yield from sched.graph.leafs
        yield from sched.graph_inputs


def _sched_like(
    session: AttachSession, reader: ProcessReader, function: Function, first: int, graph_at: int, when: When
) -> SchedState:
    """The scheduler that stands for the first argument of a function, a ggml_gallocr or a ggml_backend, before the
    call, or after it: one split, of the whole graph. Raises AttachError, NoBytes, NotAsLaidOut."""
    graph, backends = reader.graph(graph_at), tuple[int, ...]()
    if "compute" in function:
        bufts = (_called(session, "ggml_backend_get_default_buffer_type", first),)
        galloc, backends = GallocState(bufts, ((),), (), NO_SLOTS, {}, (), ()), (first,)
    else:
        galloc = reader.schedulers.galloc(first)
    if len(galloc.bufts) != 1:
        raise AttachError(
            f"the graph allocator of {function} has {len(galloc.bufts)} buffer types, and no scheduler; a scenario can "
            "say one of them alone"
        )
    used = bool(galloc.node_allocs or galloc.leaf_allocs)
    room = 2 * max(len(graph.nodes), len(graph.leafs), len(galloc.node_allocs), len(galloc.leaf_allocs)) + 1
    ids = (0,) * room if used else ()
    before = SchedState(
        is_reset=False,
        is_alloc=False,
        backends=backends,
        bufts=galloc.bufts,
        galloc=galloc,
        hash_set=NO_SLOTS,
        tensor_backend_ids=dict.fromkeys((*graph.nodes, *graph.leafs), 0),
        causes=None,
        tensor_copies={},
        node_backend_ids=ids,
        leaf_backend_ids=ids,
        prev_node_backend_ids=ids,
        prev_leaf_backend_ids=ids,
        graph=replace(graph, size=room),
        splits=(),
        n_copies=1,
        cur_copy=0,
        next_copy=0,
        graph_inputs=(),
        graph_inputs_capacity=None,
        context_buffer_size=0,
        graph_size=max(1, len(graph.nodes) + len(graph.leafs)),
        op_offload=True,
        callback_eval=False,
        callback_copy=False,
    )
    if when == "before":
        return before
    nodes, leafs = (0,) * len(graph.nodes), (0,) * len(graph.leafs)
    split = SplitState(0, 0, len(nodes), (), None)
    return replace(before, splits=(split,), graph=graph, node_backend_ids=nodes, leaf_backend_ids=leafs)


def _device_of(session: AttachSession, reader: ProcessReader, buft: int) -> int:
    """The device of a buffer type; the CPU's of the one that says none, which is the CPU's. Raises AttachError."""
    (device,) = reader.fields("ggml_backend_buffer_type", buft, "device|")
    return int(device or _called(session, "ggml_backend_reg_dev_get", _called(session, "ggml_backend_cpu_reg"), 0))


def _called(session: AttachSession, function: str, *arguments: int) -> int:
    at = session.instance.symbols.get(function)
    if at is None:
        raise AttachError(
            f"the program computes without a scheduler, and has no {function} that tells its devices: link-time "
            "optimization has inlined it, or it was stripped"
        )
    (found,) = session.link.call([FunctionCall(at, "unsigned long", arguments)])
    return found or 0
