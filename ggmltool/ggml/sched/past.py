"""What a scheduler was before the first step: a process that was met on its way has reserved and allocated already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.alloc.common import INVALID, NodeAlloc, TensorAlloc, VBuffer
from ggmltool.ggml.alloc.dyn_tallocr import Chunk
from ggmltool.ggml.sched.reader import sched_state
from ggmltool.ggml.state import BufferState, ChunkState, SchedState
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, cut_name
from ggmltool.ggml.version import SCHED_MAX_SPLIT_INPUTS

if TYPE_CHECKING:
    from ggmltool.ggml.sched.state import SchedulerState


class PastCopy(NamedTuple):
    """The copies of tensor `of` (an id) for a backend that a graph before has left: for each pipeline copy None where
    it is the tensor itself, else the number of its slot in the scheduler's arena, and where it lies: chunk and offset
    (None: it has no memory)."""

    of: str
    backend: int
    made: tuple[tuple[int, tuple[int, int] | None] | None, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """The state of a ggml_backend_sched between two calls, over backends of these names.

    `node_ids` and `leaf_ids` are node_backend_ids and leaf_backend_ids, `prev_node_ids` and `prev_leaf_ids` those of
    the graph before. `nodes` and `leafs` are the places that the allocator has in its tables. `planners` and `buffers`
    are by backend, where several share a buffer type the first one's: chunks, and the bytes of each buffer (None: there
    is no buffer yet). `hash_size` are the slots of the allocator's hash set, `own_size` is the room in the scheduler's
    own graph. `graph_inputs_capacity`, and `inputs_capacity` of each split, are rooms for inputs that have grown (0:
    that of a new scheduler). `copies` are those of a scheduler that was not reset.
    """

    backends: tuple[str, ...]
    is_reset: bool = True
    is_alloc: bool = False
    cur_copy: int = 0
    next_copy: int = 0
    node_ids: tuple[int, ...] = ()
    leaf_ids: tuple[int, ...] = ()
    prev_node_ids: tuple[int, ...] = ()
    prev_leaf_ids: tuple[int, ...] = ()
    nodes: tuple[NodeAlloc, ...] = ()
    leafs: tuple[TensorAlloc, ...] = ()
    planners: tuple[tuple[ChunkState, ...], ...] = ()
    buffers: tuple[tuple[int, ...] | None, ...] = ()
    hash_size: int = 0
    own_size: int = 0
    graph_inputs_capacity: int = 0
    inputs_capacity: tuple[int, ...] = ()
    copies: tuple[PastCopy, ...] = ()


def past_of(sched: SchedulerState) -> Past:
    """The state of a scheduler, to go on from in another run."""
    bufts = {buft: i for i, buft in enumerate(dict.fromkeys(sched.bufts))}
    made = {b.base: BufferState(bufts[b.buft], b.size, b.usage, b.base) for b in sched.compute_buffers()}
    return past_of_state(sched_state(sched, bufts), made, sched.names)


def past_of_state(sched: SchedState, buffers: Mapping[int, BufferState], backends: Sequence[str]) -> Past:
    """The same of a state, whoever read it, over backends of these names."""
    galloc = sched.galloc
    sizes = (tuple(buffers[b].size for b in made if b in buffers) for made in galloc.buffers)
    n_grown = max((i for i, split in enumerate(sched.splits, 1) if _grown(split.inputs_capacity)), default=0)
    return Past(
        tuple(backends),
        sched.is_reset,
        sched.is_alloc,
        sched.cur_copy % sched.n_copies,
        sched.next_copy % sched.n_copies,
        sched.node_backend_ids,
        sched.leaf_backend_ids,
        sched.prev_node_backend_ids,
        sched.prev_leaf_backend_ids,
        tuple([(_place(dst), tuple(map(_place, _placed(srcs)))) for dst, srcs in galloc.node_allocs]),
        tuple(map(_place, galloc.leaf_allocs)),
        galloc.buf_tallocs,
        tuple([of or None for of in sizes]),
        galloc.hash_set.size,
        sched.graph.size,
        _grown(sched.graph_inputs_capacity),
        tuple([_grown(split.inputs_capacity) for split in sched.splits[:n_grown]]),
    )


def _grown(capacity: int | None) -> int:
    """A room for inputs, 0 for one that has not grown."""
    return capacity if capacity is not None and capacity > SCHED_MAX_SPLIT_INPUTS else 0


def _placed(places: Sequence[TensorAlloc]) -> Sequence[TensorAlloc]:
    """The places up to the last that is one."""
    n = len(places)
    while n and places[n - 1].buffer_id < 0:
        n -= 1
    return places[:n]


def _place(place: TensorAlloc) -> TensorAlloc:
    return INVALID if place.buffer_id < 0 else place


def go_on_from(past: Past, sched: SchedulerState) -> None:
    """Give a new scheduler its past; one over other backends has none."""
    if past.backends != tuple(sched.names):
        return
    sched.is_reset = past.is_reset
    sched.is_alloc = past.is_alloc
    sched.cur_copy = past.cur_copy % sched.n_copies
    sched.next_copy = past.next_copy % sched.n_copies
    sched.node_ids, sched.leaf_ids = list(past.node_ids), list(past.leaf_ids)
    sched.prev_node_ids, sched.prev_leaf_ids = list(past.prev_node_ids), list(past.prev_leaf_ids)
    sched.own_size = past.own_size
    if sched.rules.inputs_grow:
        sched.graph_inputs_capacity = past.graph_inputs_capacity or sched.graph_inputs_capacity
        while len(sched.splits) < len(past.inputs_capacity):
            sched.splits.extend([sched.new_split() for _ in sched.splits])
        for split, capacity in zip(sched.splits, past.inputs_capacity, strict=False):
            split.inputs_capacity = capacity
    _give_allocator(past, sched)


def give_copies(past: Past, sched: SchedulerState, tensor_of: Callable[[str], Tensor | None]) -> None:
    """Tell a scheduler which tensors of the graph that comes have copies; one that is not there is left out."""
    if past.backends != tuple(sched.names):
        return
    for of, b, made in past.copies:
        t = tensor_of(of)
        if t is not None and len(made) == sched.n_copies:
            sched.grow_state()
            sched.touch(t.index)
            known = sched.copies[t.index]
            if known is None:
                known = sched.copies[t.index] = [None] * len(sched.backends)
            known[b] = [t if at is None else _copy(sched, t, b, c, at) for c, at in enumerate(made)]
    sched.grow_state()


def _copy(sched: SchedulerState, t: Tensor, b: int, c: int, at: tuple[int, tuple[int, int] | None]) -> Tensor:
    """A copy as it stands in its slot of the arena, until the next split makes something else there."""
    slot, place = at
    slots = sched.arena.slots
    while len(slots) <= slot:
        made = Tensor.__new__(Tensor)
        made.become_like(t, "", sched.indices.take())
        slots.append(made)
    copy = slots[slot]
    copy.become_like(t, cut_name(f"{sched.names[b]}#{t.name}#{c}"), copy.index)
    if sched.n_copies > 1:
        copy.flags |= FLAG_INPUT | FLAG_OUTPUT
    buffers = sched.gallocr.buffers[b]
    if place is not None and buffers is not None and place[0] < len(buffers.chunks):
        copy.buffer = buffers.chunks[place[0]]
        copy.data = copy.buffer.base + place[1]
    return copy


def _give_allocator(past: Past, sched: SchedulerState) -> None:
    gallocr = sched.gallocr
    gallocr.node_allocs, gallocr.leaf_allocs = list(past.nodes), list(past.leafs)
    gallocr.hash_size = past.hash_size
    for b, buft in enumerate(sched.bufts):
        first = sched.bufts.index(buft)
        if first < b:
            gallocr.buffers[b] = gallocr.buffers[first]
            continue
        if b < len(past.planners) and past.planners[b]:
            gallocr.buf_tallocs[b].chunks = []
            for of in past.planners[b][: gallocr.max_chunks]:
                chunk = Chunk(0)
                chunk.max_size = of.max_size
                chunk.free_blocks = [[offset, size] for offset, size in of.free_blocks]
                gallocr.buf_tallocs[b].chunks.append(chunk)
        sizes = past.buffers[b] if b < len(past.buffers) else None
        if sizes is not None:
            gallocr.buffers[b] = VBuffer(buft, sizes, gallocr.addresses)
