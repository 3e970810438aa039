"""The engine as a State: each part of it as rows, for who looks at one, and all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.alloc.common import AnyGallocr, hash_keys
from ggmltool.ggml.op import Op
from ggmltool.ggml.state import (
    BufferState,
    BuftState,
    ChunkState,
    Copies,
    FreeBlock,
    GallocState,
    GraphState,
    HashNodeState,
    HashSetState,
    SchedState,
    SplitState,
    State,
    TensorState,
)
from ggmltool.ggml.tensor import Tensor, op_desc

if TYPE_CHECKING:
    from ggmltool.ggml.alloc.dyn_tallocr import Chunk, Planner
    from ggmltool.ggml.buffer import Buffer, BufferType
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched import arena
    from ggmltool.ggml.sched.common import AnyScheduler

_OP_NAMES = tuple(op.name for op in Op)
_NO_KEYS = HashSetState(0, frozenset())


def tensor_state(t: Tensor) -> TensorState:
    """A tensor as it is now."""
    op = _OP_NAMES[t.op]
    return TensorState(
        t.name,
        t.id,
        t.type.name,
        t.ne,
        t.nb,
        op,
        op_desc(t) if op in ("UNARY", "GLU") else op,
        t.op_params,
        t.flags,
        tuple([None if s is None else s.index for s in t.src]),
        None if t.view_src is None else t.view_src.index,
        t.view_offs,
        t.data,
        None if t.buffer is None else t.buffer.base,
    )


def indices(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """The numbers of tensors."""
    return tuple([t.index for t in tensors])


def copies_state(copies: arena.Copies) -> Copies:
    """The copies of a tensor, by backend."""
    return tuple([None if of is None else indices(of) for of in copies])


def split_state(split: arena.Split) -> SplitState:
    """A split as it is now."""
    inputs = indices(split.inputs)
    return SplitState(split.backend_id, split.i_start, split.i_end, inputs, split.inputs_capacity)


def graph_state(graph: CGraph) -> GraphState:
    """A graph as it is now."""
    uses = {t.index: graph.use_count(t) for t in graph.visited}
    keys = HashSetState(0, frozenset(uses))
    return GraphState(graph.size, indices(graph.nodes), indices(graph.leafs), uses, keys)


def hash_node(gallocr: AnyGallocr, index: int) -> HashNodeState:
    """What the allocator knows of the tensor with this index."""
    hn = gallocr.hash_nodes
    return HashNodeState(
        hn.n_children[index],
        hn.n_views[index],
        hn.buffer_id[index],
        hn.chunk[index],
        hn.offset[index],
        bool(hn.allocated[index]),
    )


def hash_nodes(gallocr: AnyGallocr) -> list[HashNodeState]:
    """The same of all tensors, by index."""
    hn = gallocr.hash_nodes
    allocated = map(bool, hn.allocated)
    return list(map(HashNodeState, hn.n_children, hn.n_views, hn.buffer_id, hn.chunk, hn.offset, allocated))


def planners(sched: AnyScheduler) -> Sequence[Planner]:
    """Who gives out memory, by buffer id: in January 2024 the scheduler's own allocators."""
    tallocrs: Sequence[Planner] | None = getattr(sched, "tallocs", None)
    return sched.gallocr.buf_tallocs if tallocrs is None else tallocrs


def free_blocks(chunk: Chunk) -> tuple[FreeBlock, ...]:
    """The free blocks of a chunk."""
    return tuple([FreeBlock(offset, size) for offset, size in chunk.free_blocks])


def chunk_states(planner: Planner) -> tuple[ChunkState, ...]:
    """The chunks of an allocator."""
    return tuple([ChunkState(chunk.max_size, free_blocks(chunk)) for chunk in planner.chunks])


def state_of(
    sched: AnyScheduler,
    graph: CGraph | None,
    tensors: Iterable[Tensor],
    buffers: Iterable[Buffer] = (),
    contexts: Sequence[Sequence[int]] = (),
) -> State:
    """All that a scheduler holds, with the graph that it was given last, all tensors there are, and the buffers of
    contexts."""
    there = {t.index: t for t in tensors}
    wanted = [*there.values()]
    while wanted:
        # A node may still name what an earlier split has made.
        named = (s for t in wanted for s in (*t.src, t.view_src) if s is not None and s.index not in there)
        wanted = list({s.index: s for s in named}.values())
        there.update((t.index, t) for t in wanted)
    tensors = there.values()
    of_tensors = (t.buffer for t in tensors if t.buffer is not None)
    known = dict.fromkeys((*buffers, *sched.compute_buffers(), *of_tensors))
    bufts = {buft: i for i, buft in enumerate(dict.fromkeys((*sched.bufts, *(b.buft for b in known))))}
    devices = [b.device.name for b in sched.backends]
    buft_states = {
        i: BuftState(devices.index(b.device) if b.device in devices else 0, b.name, b.alignment, b.max_size, b.host)
        for b, i in bufts.items()
    }
    return State(
        sched.release.name,
        sched_state(sched, bufts),
        None if graph is None else graph_state(graph),
        {t.index: tensor_state(t) for t in tensors},
        {b.base: BufferState(bufts[b.buft], b.size, b.usage, b.base, 0, b.chunk) for b in known},
        buft_states,
        tuple(map(tuple, contexts)),
    )


def sched_state(sched: AnyScheduler, bufts: Mapping[BufferType, int]) -> SchedState:
    """The scheduler itself, over buffer types of these numbers."""
    own = GraphState(sched.own_size, indices(sched.nodes), indices(sched.leafs), {}, _NO_KEYS)
    return SchedState(
        is_reset=sched.is_reset,
        is_alloc=getattr(sched, "is_alloc", False),
        backends=tuple(range(len(sched.backends))),
        bufts=tuple(bufts[buft] for buft in sched.bufts),
        galloc=galloc_state(sched, bufts),
        hash_set=HashSetState(sched.hash_size, frozenset(sched.hash_keys())),
        tensor_backend_ids={t: b for t, b in enumerate(sched.ids) if b >= 0},
        causes={t: cause for t, cause in enumerate(sched.causes) if cause},
        tensor_copies={t: copies_state(of) for t, of in enumerate(sched.copies) if of is not None},
        node_backend_ids=tuple(sched.node_ids),
        leaf_backend_ids=tuple(sched.leaf_ids),
        prev_node_backend_ids=tuple(getattr(sched, "prev_node_ids", ())),
        prev_leaf_backend_ids=tuple(getattr(sched, "prev_leaf_ids", ())),
        graph=own,
        splits=tuple(map(split_state, sched.splits[: max(sched.n_splits, sched.n_begun)])),
        n_copies=sched.n_copies,
        cur_copy=sched.cur_copy,
        next_copy=getattr(sched, "next_copy", 0),
        graph_inputs=indices(sched.graph_inputs),
        graph_inputs_capacity=getattr(sched, "graph_inputs_capacity", None),
        context_buffer_size=sched.arena.size,
        graph_size=sched.graph_size,
        op_offload=getattr(sched, "op_offload", False),
        callback_eval=getattr(sched, "callback_eval", None) is not None,
        callback_copy=getattr(sched, "callback_copy", None) is not None,
    )


def galloc_state(sched: AnyScheduler, bufts: Mapping[BufferType, int]) -> GallocState:
    """Its graph allocator."""
    gallocr = sched.gallocr
    keys = indices(hash_keys(gallocr.planned_nodes, gallocr.planned_leafs))
    made: list[tuple[int, ...]] = [() if b is None else tuple(p.base for p in b.chunks) for b in gallocr.buffers]
    made = made or [(t.buffer.base,) for t in getattr(sched, "tallocs", ())]
    return GallocState(
        bufts=tuple(bufts[buft] for buft in sched.bufts),  # that of January 2024 has copies with names of their own
        buffers=tuple(made),
        buf_tallocs=tuple(map(chunk_states, planners(sched))),
        hash_set=HashSetState(gallocr.hash_size, frozenset(keys)),
        hash_values={t: hash_node(gallocr, t) for t in keys if t < len(gallocr.hash_nodes.offset)},
        node_allocs=tuple(gallocr.node_allocs),
        leaf_allocs=tuple(gallocr.leaf_allocs),
    )
