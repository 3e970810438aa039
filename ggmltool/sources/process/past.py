"""What a program's scheduler did before: the state that a plan of its next graph starts from."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.sched.past import Past, PastChunk
from ggmltool.ggml.vbuffer import INVALID, TensorAlloc
from ggmltool.sources.process.state import GallocState, SchedState, Snapshot, TensorAllocState


def past_of(snapshot: Snapshot, backends: Sequence[str]) -> Past:
    """The past of a snapshot's scheduler, over backends of these names.

    At a compute of a graph that is allocated, it is the state from which the same call would come to the same again.
    """
    sched, computes = snapshot.sched, bool(snapshot.function and "compute" in snapshot.function)
    galloc = sched.galloc
    again = computes and sched.is_alloc
    n = sched.n_copies
    return Past(
        tuple(backends),
        is_reset=sched.is_reset or computes,
        is_alloc=sched.is_alloc and not computes,
        cur_copy=sched.cur_copy % n,
        next_copy=(sched.cur_copy if again else sched.next_copy) % n,
        node_ids=sched.node_backend_ids,
        leaf_ids=sched.leaf_backend_ids,
        prev_node_ids=sched.prev_node_backend_ids,
        prev_leaf_ids=sched.prev_leaf_backend_ids,
        nodes=tuple((_place(dst), tuple(map(_place, _sources(src)))) for dst, src in galloc.nodes),
        leafs=tuple(map(_place, galloc.leafs)),
        planners=tuple(
            tuple(PastChunk(c.max_size, tuple((b.offset, b.size) for b in c.free)) for c in chunks)
            for chunks in galloc.chunks
        ),
        buffers=_buffers(snapshot, galloc),
        hash_size=galloc.hash_set.size,
        own_size=sched.graph.size,
    )


def is_new(sched: SchedState) -> bool:
    """Whether a scheduler has planned nothing yet."""
    return not (sched.galloc.nodes or sched.galloc.leafs or sched.node_backend_ids or sched.splits)


def _buffers(snapshot: Snapshot, galloc: GallocState) -> tuple[tuple[int, ...] | None, ...]:
    buffers = snapshot.buffers
    out: list[tuple[int, ...] | None] = []
    for made in galloc.buffers:
        sizes = tuple(buffers[b].size for b in made if b in buffers)
        out.append(sizes or None)
    return tuple(out)


def _sources(places: Sequence[TensorAllocState]) -> Sequence[TensorAllocState]:
    n = len(places)
    while n and places[n - 1].buffer_id < 0:
        n -= 1
    return places[:n]


def _place(place: TensorAllocState) -> TensorAlloc:
    if place.buffer_id < 0:
        return INVALID
    return TensorAlloc(place.buffer_id, place.chunk, place.offset, place.size_max)
