"""What a program has at a moment, as one wants to read it: its tensors, splits, places and buffers with their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from ggmltool.attach.state import (
    BufferState,
    ChunkState,
    HashNodeState,
    Snapshot,
    SplitState,
    TensorAllocState,
    TensorState,
)
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.printable import printable
from ggmltool.ggml.tensor import FLAG_OUTPUT, nbytes_of


class SeenSplit(NamedTuple):
    """A split: its nodes are `[i_start, i_end)` of the scheduler's graph, `inputs` what is copied for it, with bytes
    (None: of a type that is not known)."""

    id: int
    backend: str
    i_start: int
    i_end: int
    inputs: tuple[tuple[str, int | None], ...]
    ops: tuple[str, ...]
    nodes: tuple[str, ...]


class SeenPlace(NamedTuple):
    """Where the allocator puts a tensor: `buffer` is the name of the buffer type, None for one that it does not place.
    `address` is where its data lies now."""

    number: int
    tensor: str
    buffer: str | None
    place: TensorAllocState
    address: int
    sources: tuple[tuple[str, TensorAllocState], ...] = ()


class SeenChunk(NamedTuple):
    """A chunk of an allocator, with its buffer, and its free blocks as (offset, size)."""

    buffer: str
    chunk: int
    max_size: int
    address: int
    base: int | None
    free: tuple[tuple[int, int], ...]


class SeenSlot(NamedTuple):
    """A slot of the allocator's hash set."""

    slot: int
    tensor: str
    node: HashNodeState
    buffer: str | None


class SeenAssigned(NamedTuple):
    """A tensor in the scheduler's hash set: its backend (None: none), and its copies."""

    slot: int
    tensor: str
    backend: str | None
    copies: tuple[str, ...]


class SeenBuffer(NamedTuple):
    """A buffer: `chunk` says which compute buffer it is ("" for those of the program), `tensors` how many of those that
    were read lie in it, `used` their bytes up to the end of the last."""

    address: int
    type: str
    usage: str
    size: int
    base: int | None
    chunk: str
    tensors: int
    used: int


class SeenOwner(NamedTuple):
    """A tensor with bytes that are asked for: from node to node of the scheduler's graph, None where it is there before
    the graph, or after it."""

    tensor: str
    op: str
    start: int | None
    end: int | None
    address: int
    nbytes: int
    shared: int
    asked: bool


class Seen:
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

    def tensor(self, address: int) -> TensorState | None:
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

    def op(self, t: TensorState) -> str:
        """The op of a tensor, as ggml_op_desc says it."""
        word = t.op_params[0] if t.op_params else 0
        return self.snapshot.op_names.get((t.op, word), f"op {t.op}")

    def type(self, t: TensorState) -> str:
        """The type of a tensor."""
        return self.snapshot.type_names.get(t.type, f"type {t.type}")

    def nbytes(self, t: TensorState) -> int | None:
        """ggml_nbytes; None of a type that is not known."""
        known = TYPES.get(self.type(t))
        return None if known is None else nbytes_of(known, t.ne, t.nb)

    def backend(self, number: int | None) -> str | None:
        """The name of a backend by its number."""
        if number is None or not 0 <= number < len(self.snapshot.backends):
            return None
        return _said(self.snapshot.backends[number].name) or f"backend {number}"

    def buft(self, address: int) -> str:
        """The name of a buffer type."""
        found = self.snapshot.bufts.get(address)
        return (_said(found.name) if found is not None else "") or f"{address:#x}"

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

    def splits(self) -> list[SeenSplit]:
        """The splits that the scheduler has; after a reset those of the graph before, without tensors."""
        views = all(map(self._is_view, self.sched.splits))
        return [self._split(i, views) for i in range(len(self.sched.splits))]

    def _is_view(self, split: SplitState) -> bool:
        """Whether the graph of a split is that of its nodes; until the graph is split it is that of an earlier one."""
        known = self.snapshot.tensors
        nodes = split.graph.nodes if split.graph is not None else ()
        return len(nodes) == split.i_end - split.i_start and all(node in known for node in nodes)

    def _split(self, i: int, views: bool) -> SeenSplit:
        split = self.sched.splits[i]
        own = self.snapshot.graph.nodes[split.i_start : split.i_end]
        if views and split.graph is not None:
            own = split.graph.nodes
        if not self.known:
            return SeenSplit(i, self.backend(split.backend_id) or "", split.i_start, split.i_end, (), (), ())
        tensors = [t for t in map(self.tensor, own) if t is not None]
        inputs = [(self.name(a), self._bytes(a)) for a in split.inputs]
        return SeenSplit(
            i, self.backend(split.backend_id) or str(split.backend_id), split.i_start, split.i_end, tuple(inputs),
            tuple(map(self.op, tensors)), tuple(map(self.name, own)),
        )  # fmt: skip

    def _bytes(self, address: int) -> int | None:
        found = self.tensor(address)
        return None if found is None else self.nbytes(found)

    def node_places(self) -> list[SeenPlace]:
        """node_allocs, with the nodes that they are of."""
        nodes = self.sched.graph.nodes if self.known else ()
        out = []
        for i, (own, sources) in enumerate(self.sched.galloc.nodes):
            t = self.tensor(nodes[i]) if i < len(nodes) else None
            named = [(self.name(a), p) for a, p in zip(t.src if t else (), sources, strict=False) if a]
            out.append(self._place(i, nodes[i] if i < len(nodes) else 0, own, tuple(named)))
        return out

    def leaf_places(self) -> list[SeenPlace]:
        """leaf_allocs, with the leafs that they are of."""
        leafs = self.sched.graph.leafs if self.known else ()
        return [self._place(i, leafs[i] if i < len(leafs) else 0, p) for i, p in enumerate(self.sched.galloc.leafs)]

    def _place(
        self, index: int, address: int, place: TensorAllocState, sources: tuple[tuple[str, TensorAllocState], ...] = ()
    ) -> SeenPlace:
        t = self.tensor(address)
        name = self.name(address) if address else "(of a graph before)"
        return SeenPlace(index, name, self.buffer_type(place.buffer_id), place, t.data if t else 0, sources)

    def chunks(self) -> list[SeenChunk]:
        """The chunks of the allocators, with what is free in them."""
        out = []
        done: set[tuple[ChunkState, ...]] = set()
        for number, chunks in enumerate(self.sched.galloc.chunks):
            if chunks in done and any(chunk.buffer for chunk in chunks):
                continue
            done.add(chunks)
            for i, chunk in enumerate(chunks):
                free = tuple((block.offset, block.size) for block in chunk.free)
                buffer = self.snapshot.buffers.get(chunk.buffer)
                base = buffer.base if buffer else None
                out.append(
                    SeenChunk(self.buffer_type(number) or str(number), i, chunk.max_size, chunk.buffer, base, free)
                )
        return out

    def slots(self) -> list[SeenSlot]:
        """The allocator's hash set, by slot."""
        galloc = self.sched.galloc
        out = []
        for slot, address in sorted(galloc.hash_set.keys.items()):
            node = galloc.hash_values.get(slot)
            if node is not None:
                out.append(SeenSlot(slot, self.name(address), node, self.buffer_type(node.buffer_id)))
        return out

    def assigned(self) -> list[SeenAssigned]:
        """The scheduler's hash set, by slot."""
        sched = self.sched
        return [
            SeenAssigned(
                slot, self.name(address), self.backend(sched.backend_ids.get(address)),
                tuple(self.name(copy) for copy in sched.copies.get(address, {}).values()),
            )
            for slot, address in sorted(sched.hash_set.keys.items())
        ]  # fmt: skip

    @cached_property
    def chunk_names(self) -> Mapping[int, str]:
        """The compute buffers, by address: `GPU0`, and `GPU0 #1` of a second chunk."""
        return {
            chunk.address: f"{chunk.buffer} #{chunk.chunk}" if chunk.chunk else chunk.buffer
            for chunk in self.chunks() if chunk.address
        }  # fmt: skip

    def buffers(self) -> list[SeenBuffer]:
        """The buffers that the scheduler's allocator made, then those of the program, by address."""
        out = [self._buffer(buffer) for _, buffer in sorted(self.snapshot.buffers.items())]
        return sorted(out, key=lambda b: (not b.chunk, b.address))

    def _buffer(self, buffer: BufferState) -> SeenBuffer:
        inside = [t for t in self.snapshot.tensors.values() if t.buffer == buffer.address]
        ends = [t.data + (self.nbytes(t) or 0) - (buffer.base or 0) for t in inside if t.data]
        used = max(ends, default=0) if buffer.base is not None else 0
        return SeenBuffer(
            buffer.address, self.buft(buffer.buft), usage_of(buffer), buffer.size, buffer.base,
            self.chunk_names.get(buffer.address, ""), len(inside), used,
        )  # fmt: skip

    def owners(self, address: int) -> list[SeenOwner]:
        """Who has bytes of a tensor, in program order: itself, its views and readers count as its life."""
        asked = self.snapshot.tensors[address]
        size = self.nbytes(asked) or 0
        if not asked.data:
            return []
        out = []
        root = self.root(address)
        for other in self._places():
            t = self.snapshot.tensors[other]
            shared = min(asked.data + size, t.data + (self.nbytes(t) or 0)) - max(asked.data, t.data)
            if shared > 0 and t.buffer == asked.buffer and self.root(other) == other:
                start, end = self.life(other)
                out.append(SeenOwner(self.name(other), self.op(t), start, end, t.data, self.nbytes(t) or 0, shared,
                                     other == root))  # fmt: skip
        return sorted(out, key=lambda o: (-1 if o.start is None else o.start, o.address))

    def _places(self) -> Iterator[int]:
        for address, t in self.snapshot.tensors.items():
            if t.data and t.buffer:
                yield address

    def root(self, address: int) -> int:
        """The tensor whose memory a view shows."""
        for _ in range(64):
            t = self.tensor(address)
            if t is None or not t.view_src:
                return address
            address = t.view_src
        return address

    @cached_property
    def _index(self) -> Mapping[int, int]:
        return {address: i for i, address in enumerate(self.graph_nodes)}

    @cached_property
    def _last_reader(self) -> Mapping[int, int]:
        """The last node that reads a tensor or a view of it."""
        out: dict[int, int] = {}
        for i, address in enumerate(self.graph_nodes):
            t = self.tensor(address)
            for source in t.src if t is not None else ():
                if source:
                    out[self.root(source)] = i
        return out

    def life(self, address: int) -> tuple[int | None, int | None]:
        """The node that a tensor is, and the last that reads it. None: it is there before the graph, or for its end."""
        t = self.snapshot.tensors[address]
        end = None if t.flags & FLAG_OUTPUT else self._last_reader.get(address)
        return self._index.get(address), end


def usage_of(buffer: BufferState) -> str:
    """What ggml_backend_buffer_set_usage said of a buffer."""
    return buffer.usage_name or str(buffer.usage)


def _said(name: str | None) -> str:
    return printable(name) if name else ""
