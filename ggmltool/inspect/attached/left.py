"""What a call has left in a program's scheduler beside what its plan leaves: the tables of the allocator, which the
next graph is held against, free blocks, buffers, and the scheduler's own numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ggmltool.ggml.alloc.vbuffer import TensorAlloc
from ggmltool.ggml.sched.past import Past
from ggmltool.ggml.state import ChunkState


class LeftField(NamedTuple):
    """A field of the state: whose it is, what it is called, and what each side has."""

    row: str
    field: str
    process: Any
    plan: Any


_NUMBERS = ("is_reset", "is_alloc", "cur_copy", "next_copy", "hash_size", "own_size")


def left_fields(process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]) -> Iterator[LeftField]:
    """Every field of both. `nodes` and `leafs` are the names of those of the scheduler's own graph."""
    yield from _tables(process, plan, nodes, leafs)
    for b, name in enumerate(plan.backends):
        yield LeftField(name, "planned chunks", *(list(map(_chunk, p.planners[b])) for p in (process, plan)))
        yield LeftField(name, "buffers of chunks", *(_listed(p.buffers[b]) for p in (process, plan)))
    yield LeftField("", "backends of the scheduler's nodes", *(list(p.node_ids[: len(nodes)]) for p in (process, plan)))
    yield LeftField("", "backends of the scheduler's leafs", *(list(p.leaf_ids[: len(leafs)]) for p in (process, plan)))
    for what, before in (("nodes", "prev_node_ids"), ("leafs", "prev_leaf_ids")):
        # Behind those the program has what graphs before them left.
        ours = getattr(plan, before)
        yield LeftField("", f"backends of the {what} before", list(getattr(process, before)[: len(ours)]), list(ours))
    for field in _NUMBERS:
        if field == "own_size" and not process.own_size:
            continue
        yield LeftField("", field, getattr(process, field), getattr(plan, field))


def _tables(process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]) -> Iterator[LeftField]:
    """The places that the allocator has written down, of nodes, of their sources, and of leafs."""
    yield LeftField("", "number of the allocator's nodes", len(process.nodes), len(plan.nodes))
    yield LeftField("", "number of the allocator's leafs", len(process.leafs), len(plan.leafs))
    for i, (theirs, ours) in enumerate(zip(process.nodes, plan.nodes, strict=False)):
        name = _at(nodes, i)
        yield LeftField(name, "planned place", _place(theirs[0]), _place(ours[0]))
        yield LeftField(name, "planned places of sources", _places(theirs[1]), _places(ours[1]))
    for i, (leaf, own) in enumerate(zip(process.leafs, plan.leafs, strict=False)):
        yield LeftField(_at(leafs, i), "planned place", _place(leaf), _place(own))


def _at(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) else f"entry {i}"


def _place(place: TensorAlloc) -> str:
    if place.buffer_id < 0:
        return "none"
    return f"backend {place.buffer_id}, chunk {place.chunk}, offset {place.offset}, {place.size_max} bytes"


def _places(places: Sequence[TensorAlloc]) -> list[str]:
    shown = list(map(_place, places))
    while shown and shown[-1] == "none":
        shown.pop()
    return shown


def _chunk(chunk: ChunkState) -> str:
    free = ", ".join(f"{size} at {offset}" for offset, size in chunk.free_blocks)
    return f"{chunk.max_size} bytes, free: {free or 'nothing'}"


def _listed(sizes: Sequence[int] | None) -> list[int]:
    return list(sizes or ())
