"""What a program's scheduler did before: the state that a plan of its next graph starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ggmltool.attach.state import Snapshot
from ggmltool.ggml.sched.past import Past, PastCopy, past_of_state
from ggmltool.ggml.state import SchedState
from ggmltool.scenario.past import MOST_SLOTS
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Pointer, bare


def past_of(snapshot: Snapshot, backends: Sequence[str], ids: Mapping[int, str]) -> Past:
    """The past of a snapshot's scheduler, over backends of these names. `ids` are those of the graph's tensors by
    address.

    At a compute of a graph that is allocated, it is the state from which the same call would come to the same again.
    """
    sched, computes = snapshot.sched, bool(snapshot.function and "compute" in snapshot.function)
    past = past_of_state(sched, snapshot.buffers, backends)
    if not computes:
        return past if sched.is_reset else replace(past, copies=tuple(_copies(snapshot, ids)))
    again = past.cur_copy if sched.is_alloc else past.next_copy
    return replace(past, is_reset=True, is_alloc=False, next_copy=again)


class Left(NamedTuple):
    """The state in which a call has left a scheduler, without copies, and without `own_size` (0) where that ggml has
    another rule for it than the release that it is planned as. `keys` are the tensors in its hash set, None
    where there may be those of calls before."""

    past: Past
    keys: int | None


def left_by(before: Snapshot, after: Snapshot, backends: Sequence[str]) -> Left:
    """What a call has left, of the snapshots around it. A compute of a graph that is allocated allocates nothing: its
    plan allocates the same graph again, whose backends are then those before, too."""
    past = past_of(replace(after, function=None), backends, {})
    if counts_inputs(after.structs) != counts_inputs(after.release):
        past = replace(past, own_size=0)
    if before is after:
        return Left(replace(past, prev_node_ids=past.node_ids, prev_leaf_ids=past.leaf_ids), None)
    alone = not before.sched.hash_set.keys and not after.sched.is_reset
    return Left(past, len(after.sched.hash_set.keys) if alone else None)


def counts_inputs(structs: str) -> bool:
    """Whether a ggml makes its own graph as large as its splits' inputs need, and not as if each split had the most."""
    member = (layout(structs).struct("ggml_backend_sched_split").members or {})["inputs"]
    return isinstance(bare(member.type), Pointer)


def _copies(snapshot: Snapshot, ids: Mapping[int, str]) -> Iterator[PastCopy]:
    """The copies of tensors of the graph that the scheduler has from a graph before."""
    sched, tensors = snapshot.sched, snapshot.tensors
    made = [copy for of, _, _, copy in sched.copies() if copy != of]
    first, step = min(made, default=0), snapshot.overhead
    chunks = {buffer: i for buffers in sched.galloc.buffers for i, buffer in enumerate(buffers)}
    for of, copies in sched.tensor_copies.items():
        if of not in ids:
            continue
        by_backend: dict[int, list[tuple[int, tuple[int, int] | None] | None]] = {}
        for b, copy in ((b, copy) for b, made_of in enumerate(copies) for copy in made_of or () if copy is not None):
            place = None
            t, buffer = tensors.get(copy), None
            if t is not None:
                buffer = snapshot.buffers.get(t.buffer)
            if t is not None and buffer is not None and buffer.base is not None and t.buffer in chunks:
                place = chunks[t.buffer], t.data - buffer.base
            slot, rest = divmod(copy - first, step)
            known = None if copy == of or rest or not 0 <= slot < MOST_SLOTS else (slot, place)
            by_backend.setdefault(b, []).append(known)
        for b, slots in by_backend.items():
            yield PastCopy(ids[of], b, tuple(slots))


def is_new(sched: SchedState) -> bool:
    """Whether a scheduler has planned nothing yet."""
    return not (sched.galloc.node_allocs or sched.galloc.leaf_allocs or sched.node_backend_ids or sched.splits)
