"""What a program has at a moment, with names: tensors, splits, places, hash sets and buffers, as
`attach --show … --json` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Snapshot
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.printable import printable
from ggmltool.ggml.state import BufferState, ChunkState
from ggmltool.ggml.tensor import FLAG_OUTPUT, flag_names, nbytes_of, signed
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.state.memory.tensors import TensorStruct


class LiveInput(Row):
    """A tensor that is copied for a split; `nbytes` is null of a type that is not known."""

    tensor: str
    nbytes: int | None


class LiveSplit(Row):
    """A split: its nodes are those from `i_start` to before `i_end` of the scheduler's graph, `ops` are theirs."""

    id: int
    backend: str
    i_start: int
    i_end: int
    nodes: list[str]
    inputs: list[LiveInput]
    ops: list[str]


class LiveSource(Row):
    """Where the allocator has a source of a node."""

    tensor: str
    buffer_id: int
    chunk: int
    offset: int
    size_max: int


class LiveAlloc(Row):
    """Where the allocator puts a tensor: `buft` is null and `buffer_id` -1 where it puts it nowhere. `data` is the
    address that it has now, 0 if none; `src` are the sources of a node."""

    tensor: str
    buft: str | None
    buffer_id: int
    chunk: int
    offset: int
    size_max: int
    data: int
    src: list[LiveSource]


class LiveBlock(Row):
    """A free block of a chunk; the last of a chunk has no end."""

    offset: int
    size: int


class LiveChunk(Row):
    """A chunk of an allocator; `buffer` is the address of its buffer, 0 if it has none, `base` where that begins."""

    buft: str
    chunk: int
    max_size: int
    buffer: int
    base: int | None
    free: list[LiveBlock]


class LiveAllocs(Row):
    """node_allocs, leaf_allocs and the chunks of the graph allocator."""

    nodes: list[LiveAlloc]
    leafs: list[LiveAlloc]
    chunks: list[LiveChunk]


class LiveHashNode(Row):
    """A taken slot of the allocator's hash set, with its hash node."""

    slot: int
    tensor: str
    n_children: int
    n_views: int
    buft: str | None
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class LiveHash(Row):
    """The allocator's hash set: how many slots it has, and those that are taken."""

    size: int
    slots: list[LiveHashNode]


class LiveAssigned(Row):
    """A taken slot of the scheduler's hash set: the backend of the tensor, and its copies."""

    slot: int
    tensor: str
    backend: str | None
    copies: list[str]


class LiveSchedHash(Row):
    """The scheduler's hash set: how many slots it has, and those that are taken."""

    size: int
    slots: list[LiveAssigned]


class LiveBuffer(Row):
    """A buffer: `of` says which compute buffer of the scheduler it is, null of one of the program's. `tensors` lie in
    it, `used` bytes up to the end of the last."""

    address: int
    type: str
    usage: str
    size: int
    base: int | None
    of: str | None
    tensors: int
    used: int


class LiveTensor(Row):
    """A tensor: `address` is that of its struct, `data` and `buffer` are 0 if it has none, `nbytes` is null of a type
    that is not known, `backend` where the scheduler has put it."""

    name: str
    address: int
    op: str
    op_params: list[int]
    type: str
    ne: list[int]
    nb: list[int]
    nbytes: int | None
    flags: list[str]
    backend: str | None
    buffer: int
    data: int
    view_src: str | None
    view_offs: int
    src: list[str | None]
    copies: list[str]


class LiveGraph(Row):
    """The program's graph: its nodes, and the names of its leafs."""

    nodes: list[LiveTensor]
    leafs: list[str]


class LiveOwner(Row):
    """A tensor with some of the bytes that are asked for: from node `start` to `end` of the scheduler's graph, null
    where it is there before the graph, or after it; `shared` bytes are those asked for."""

    tensor: str
    op: str
    start: int | None
    end: int | None
    data: int
    nbytes: int
    shared: int
    asked: bool


class LiveLifetime(Row):
    """Who has the bytes of a tensor, in program order."""

    tensor: str
    owners: list[LiveOwner]


class NamedSnapshot:
    """A snapshot, with names for what is in it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.sched = snapshot.sched

    @property
    def graph_nodes(self) -> Sequence[int]:
        """The nodes in the order in which they are computed: the scheduler's, with its copies, where it has split the
        graph; else the program's."""
        own = self.sched.graph.nodes
        return own if own and self.known else self.snapshot.graph.nodes

    def tensor(self, address: int) -> TensorStruct | None:
        """The tensor at an address, None of one that could not be read."""
        return self.snapshot.tensors.get(address)

    def name(self, address: int) -> str:
        """What a tensor is called; its address where it has no name or is gone."""
        found = self.tensor(address)
        name = printable(found.name.decode("utf-8", "surrogateescape")) if found is not None else ""
        return name or f"{address:#x}"

    def named(self, name: str) -> int | None:
        """The address of the first tensor of a name: of the graph's, else of all."""
        raw = name.encode("utf-8", "surrogateescape")
        for address in (*self.snapshot.graph.nodes, *self.snapshot.graph.leafs, *self.snapshot.tensors):
            found = self.tensor(address)
            if found is not None and found.name == raw:
                return address
        return None

    def op(self, t: TensorStruct) -> str:
        """The op of a tensor, as ggml_op_desc says it."""
        word = t.op_params[0] if t.op_params else 0
        return self.snapshot.op_names.get((t.op, word), f"op {t.op}")

    def type(self, t: TensorStruct) -> str:
        """The type of a tensor."""
        return self.snapshot.type_names.get(t.type, f"type {t.type}")

    def nbytes(self, t: TensorStruct | None) -> int | None:
        """ggml_nbytes; None of a type that is not known, and of a tensor that could not be read."""
        known = TYPES.get(self.type(t)) if t is not None else None
        return None if known is None or t is None else nbytes_of(known, t.ne, t.nb)

    def backend(self, number: int | None) -> str | None:
        """The name of a backend by its number."""
        if number is None or not 0 <= number < len(self.snapshot.backends):
            return None
        return printable(self.snapshot.backends[number].name or "") or f"backend {number}"

    def buft(self, address: int) -> str:
        """The name of a buffer type."""
        found = self.snapshot.bufts.get(address)
        return (printable(found.name or "") if found is not None else "") or f"{address:#x}"

    def buffer_type(self, number: int) -> str | None:
        """The name of the allocator's buffer type of a number."""
        bufts = self.sched.galloc.bufts
        return self.buft(bufts[number]) if 0 <= number < len(bufts) else None

    @property
    def state(self) -> Literal["reset", "split", "allocated"]:
        """Whether the scheduler has split and placed the graph."""
        return "reset" if self.sched.is_reset else "allocated" if self.sched.is_alloc else "split"

    @property
    def known(self) -> bool:
        """Whether the tensors that the scheduler names are there: after a reset they may be gone."""
        return not self.sched.is_reset

    def splits(self) -> list[LiveSplit]:
        """The splits that the scheduler has; after a reset those of the graph before, without tensors."""
        splits, out = self.sched.splits, []
        views = [view.nodes if view is not None else () for view in self.sched.split_graphs]
        # Until the graph is split the graphs of splits are those of an earlier one.
        there = list(map(len, views)) == [s.i_end - s.i_start for s in splits] and all(
            node in self.snapshot.tensors for nodes in views for node in nodes
        )
        for i, s in enumerate(splits):
            own = views[i] if there else self.snapshot.graph.nodes[s.i_start : s.i_end]
            name, inputs = self.backend(s.backend_id) or (str(s.backend_id) if self.known else ""), s.inputs
            if not self.known:
                own, inputs = (), ()
            named = [LiveInput(self.name(a), self.nbytes(self.tensor(a))) for a in inputs]
            ops = [self.op(t) for t in map(self.tensor, own) if t is not None]
            out.append(LiveSplit(i, name, s.i_start, s.i_end, [self.name(a) for a in own], named, ops))
        return out

    def allocs(self) -> LiveAllocs:
        """What the graph allocator has planned, with the nodes and leafs that it is of."""
        nodes, leafs = (self.sched.graph.nodes, self.sched.graph.leafs) if self.known else ((), ())
        galloc = self.sched.galloc
        return LiveAllocs(
            [
                self._alloc(nodes[i] if i < len(nodes) else 0, own, sources)
                for i, (own, sources) in enumerate(galloc.node_allocs)
            ],
            [self._alloc(leafs[i] if i < len(leafs) else 0, place) for i, place in enumerate(galloc.leaf_allocs)],
            self.chunks,
        )

    def _alloc(self, address: int, place: TensorAlloc, sources: Iterable[TensorAlloc] = ()) -> LiveAlloc:
        t = self.tensor(address)
        name = self.name(address) if address else "(of a graph before)"
        src = [LiveSource(self.name(a), **asdict(p)) for a, p in zip(t.src if t else (), sources, strict=False) if a]
        return LiveAlloc(
            name, self.buffer_type(place.buffer_id), place.buffer_id, place.chunk, place.offset, place.size_max,
            t.data if t else 0, src,
        )  # fmt: skip

    @cached_property
    def chunks(self) -> list[LiveChunk]:
        """The chunks of the allocators, with what is free in them."""
        out = []
        done: set[tuple[tuple[ChunkState, ...], tuple[int, ...]]] = set()
        galloc = self.sched.galloc
        for number, (chunks, made) in enumerate(zip(galloc.buf_tallocs, galloc.buffers, strict=False)):
            if made and (chunks, made) in done:
                continue
            done.add((chunks, made))
            name = self.buffer_type(number) or str(number)
            for i, chunk in enumerate(chunks):
                address = made[i] if i < len(made) else 0
                buffer = self.snapshot.buffers.get(address)
                free = [LiveBlock(*block) for block in chunk.free_blocks]
                out.append(LiveChunk(name, i, chunk.max_size, address, buffer.base if buffer else None, free))
        return out

    def hash(self) -> LiveHash:
        """The allocator's hash set, by slot."""
        slots, values = self.sched.galloc.hash_set.slots or {}, self.sched.galloc.hash_values
        return LiveHash(
            self.sched.galloc.hash_set.size,
            [
                LiveHashNode(
                    slot, self.name(address), node.n_children, node.n_views, self.buffer_type(node.buffer_id),
                    node.buffer_id, node.chunk, node.offset, node.allocated,
                )
                for slot, address in sorted(slots.items()) if (node := values.get(address)) is not None
            ],
        )  # fmt: skip

    def sched_hash(self) -> LiveSchedHash:
        """The scheduler's hash set, by slot."""
        sched = self.sched
        return LiveSchedHash(
            sched.hash_set.size,
            [
                LiveAssigned(
                    slot, self.name(address), self.backend(sched.tensor_backend_ids.get(address)), self.copies(address)
                )
                for slot, address in sorted((sched.hash_set.slots or {}).items())
            ],
        )

    def copies(self, address: int) -> list[str]:
        """The copies that the scheduler made of a tensor."""
        return [self.name(copy) for copy in self.sched.copies_of(address)]

    @cached_property
    def chunk_names(self) -> Mapping[int, str]:
        """The compute buffers, by address: `GPU0`, and `GPU0 #1` of a second chunk."""
        return {c.buffer: f"{c.buft} #{c.chunk}" if c.chunk else c.buft for c in self.chunks if c.buffer}

    def buffers(self) -> list[LiveBuffer]:
        """The buffers that the scheduler's allocator made, then those of the program, by address."""
        out = []
        for b in self.snapshot.buffers.values():
            inside = [t for t in self.snapshot.tensors.values() if t.buffer == b.address]
            ends = [t.data + (self.nbytes(t) or 0) - b.base for t in inside if t.data and b.base is not None]
            whose, used = self.chunk_names.get(b.address), max(ends, default=0)
            out.append(LiveBuffer(b.address, self.buft(b.buft), usage_of(b), b.size, b.base, whose, len(inside), used))
        return sorted(out, key=lambda b: (b.of is None, b.address))

    def graph(self) -> LiveGraph:
        """The program's graph."""
        graph = self.snapshot.graph
        return LiveGraph(list(map(self.facts, graph.nodes)), list(map(self.name, graph.leafs)))

    def facts(self, address: int) -> LiveTensor:
        """A tensor that was read."""
        t = self.snapshot.tensors[address]
        used = max((i + 1 for i, a in enumerate(t.src) if a), default=0)
        words = max((i + 1 for i, w in enumerate(t.op_params) if w), default=0)
        return LiveTensor(
            self.name(address), address, self.op(t), [signed(w) for w in t.op_params[:words]], self.type(t),
            list(t.ne), list(t.nb), self.nbytes(t), flag_names(t.flags),
            self.backend(self.sched.tensor_backend_ids.get(address)), t.buffer, t.data,
            self.name(t.view_src) if t.view_src else None, t.view_offs,
            [self.name(a) if a else None for a in t.src[:used]], self.copies(address),
        )  # fmt: skip

    def lifetime(self, address: int) -> LiveLifetime:
        """Who has bytes of a tensor, in program order: itself, its views and readers count as its life."""
        asked = self.snapshot.tensors[address]
        size = self.nbytes(asked) or 0
        root, nodes = self.root(address), {node: i for i, node in enumerate(self.graph_nodes)}
        out = []
        for other, t in self.snapshot.tensors.items() if asked.data else ():
            shared = min(asked.data + size, t.data + (self.nbytes(t) or 0)) - max(asked.data, t.data)
            if t.data and t.buffer and shared > 0 and t.buffer == asked.buffer and self.root(other) == other:
                end = None if t.flags & FLAG_OUTPUT else self._last_reader.get(other)
                life = nodes.get(other), end, t.data, self.nbytes(t) or 0
                out.append(LiveOwner(self.name(other), self.op(t), *life, shared, other == root))
        return LiveLifetime(self.name(address), sorted(out, key=lambda o: (-1 if o.start is None else o.start, o.data)))

    def root(self, address: int) -> int:
        """The tensor whose memory a view shows."""
        for _ in range(64):
            t = self.tensor(address)
            if t is None or not t.view_src:
                return address
            address = t.view_src
        return address

    @cached_property
    def _last_reader(self) -> Mapping[int, int]:
        """The last node that reads a tensor or a view of it."""
        read = ((i, t) for i, address in enumerate(self.graph_nodes) if (t := self.tensor(address)) is not None)
        return {self.root(source): i for i, t in read for source in t.src if source}


def session_facts(session: AttachSession) -> dict[str, Any]:
    """What every document of a session's calls has."""
    still = round(session.stood_still, 3)
    return {"ggml": session.instance.release.name, "process": Process.of(session), "stood_still": still}


def usage_of(buffer: BufferState) -> str:
    """What ggml_backend_buffer_set_usage said of a buffer."""
    return buffer.usage_name or str(buffer.usage)


class Process(Row):
    """The program: its number (null of a core dump) and the files that its ggml lies in. `version` is what that ggml
    says of itself ("" if it says none), `note` where it may decide otherwise than the release that it is planned as."""

    pid: int | None
    name: str
    version: str
    files: list[str]
    note: str

    @classmethod
    def of(cls, session: AttachSession) -> Self:
        """The program of a session."""
        instance = session.instance
        return cls(session.pid or None, session.name, instance.version, list(instance.files), instance.note)


class LiveCall(Struct):
    """A scheduler at a moment: before the call `function`, after it, or within (a core dump). Of the views
    those are there that were asked for."""

    function: str | None
    number: int
    when: Literal["before", "after", "within"]
    sched_address: int
    graph_address: int
    state: Literal["reset", "split", "allocated"]
    unread: list[str]
    splits: list[LiveSplit] | UnsetType = UNSET
    hash: LiveHash | UnsetType = UNSET
    sched_hash: LiveSchedHash | UnsetType = UNSET
    allocs: LiveAllocs | UnsetType = UNSET
    buffers: list[LiveBuffer] | UnsetType = UNSET
    graph: LiveGraph | UnsetType = UNSET
    tensors: list[LiveTensor] | UnsetType = UNSET
    lifetimes: list[LiveLifetime] | UnsetType = UNSET

    @classmethod
    def of(cls, number: int, seen: NamedSnapshot) -> Self:
        """A call without views."""
        s = seen.snapshot
        return cls(s.function, number, s.when, s.sched.address, s.graph.address, seen.state, list(s.unread))


class AttachViewsDocument(ReleaseDocument, kw_only=True):
    """`attach --show … --json`: what the scheduler and the allocator of a program have, call by call. `stood_still` is
    for how many seconds the program did."""

    main_table = "calls"
    kind: Literal["attach_views"] = "attach_views"
    process: Process
    calls: list[LiveCall]
    stood_still: float
