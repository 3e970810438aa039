"""The hash tables of allocator and scheduler: what each knows of every tensor."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.hash_set import HashSet
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.ggml.state import HashNodeState
from ggmltool.inspect.allocator import WatchedAllocator
from ggmltool.inspect.watched import Watched


class HashRow(NamedTuple):
    """A taken slot of the allocator's table. `probes` is how many slots a look-up visits, `buft` its buffer type."""

    slot: int
    probes: int
    tensor: str
    node: HashNodeState
    buft: str


class SchedRow(NamedTuple):
    """What the scheduler's table has for a tensor; `backend` is None if it has none."""

    tensor: str
    backend: str | None
    cause: str
    copies: tuple[str, ...]


def hash_rows(watched: WatchedAllocator) -> list[HashRow]:
    """The taken slots of the allocator's table, in the order in which they were filled."""
    gallocr = watched.gallocr
    moment = watched.moment() if watched.record.at is not None else None
    slots = HashSet(gallocr.hash_size, watched.at.run.model.release.hash_shift)
    rows = []
    for label, address, index in watched.planned.keys:
        slot = slots.find_or_insert(address)
        node = moment.nodes[index] if moment is not None else hash_node(gallocr, index)
        rows.append(HashRow(slot, slots.probes(address), label, node, gallocr.bufts[node.buffer_id].name))
    return rows


def sched_rows(state: Watched) -> list[SchedRow]:
    """What the scheduler's table has for the tensors of the graph, leafs first."""
    s = state.sched
    graph = state.built().graph
    rows = []
    for t in (*graph.leafs, *graph.nodes):
        b, cause, copies = state.assignment(t)
        rows.append(SchedRow(t.id, s.names[b] if b >= 0 else None, cause, tuple(copy.name for copy in copies)))
    return rows
