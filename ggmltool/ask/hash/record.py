"""The hash tables of allocator and scheduler: what each knows of every tensor."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import asdict

from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.inspect.allocator import WatchedAllocator
from ggmltool.inspect.watched import Watched
from ggmltool.show.document import Row, StepDocument, head


class HashSlot(Row):
    """A taken slot: the tensor, its uses and views left, its place, and how many slots a look-up visits."""

    slot: int
    tensor: str
    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool
    buft: str
    probes: int


class HashTable(StepDocument, kw_only=True):
    """`hash --json`: the allocator's hash table, or with --sched the scheduler's.

    The table has `size` slots, as they are at the end, when the tensor `at` had got its memory, or `before` a node.
    """

    view = "hash_table"
    kind: Literal["hash"] = "hash"
    at: str | None
    before: str | None
    size: int
    nodes: tuple[HashSlot, ...]


class SchedSlot(Row):
    """What the scheduler knows of a tensor: its backend and why, and the copies it made."""

    tensor: str
    backend: str | None
    cause: str
    copies: tuple[str, ...]


class SchedTable(StepDocument, kw_only=True):
    """`hash --sched --json`: the scheduler's own table, `of` "scheduler"."""

    view = "sched_table"
    beside = ("backends", "fields", "id_arrays", "nodes", "id_of_tensor", "is_reset")
    """The scheduler's table with what gdb shows beside it: backends, the plain fields of struct ggml_backend_sched, the
    ids in its arrays, its nodes, and the expression for a tensor's id."""
    kind: Literal["hash"] = "hash"
    of_: Literal["scheduler"] = msgspec.field(default="scheduler", name="of")
    size: int
    tensors: tuple[SchedSlot, ...]
    backends: tuple[str, ...]
    fields: dict[str, int | bool]
    id_arrays: dict[str, tuple[int, ...]]
    nodes: tuple[str, ...]
    id_of_tensor: str
    is_reset: bool


def hash_table(watched: WatchedAllocator, at: str | None, before: str | None) -> HashTable:
    """The taken slots of the allocator's table, in the order in which they were filled."""
    gallocr = watched.gallocr
    moment = watched.moment() if watched.record.at is not None else None
    slots = HashSet(gallocr.hash_size, watched.at.run.model.release.hash_shift)
    nodes = []
    for label, address, index in watched.planned.keys:
        slot = slots.find_or_insert(address)
        node = moment.nodes[index] if moment is not None else hash_node(gallocr, index)
        buft = gallocr.bufts[node.buffer_id].name
        nodes.append(HashSlot(slot, label, **asdict(node), buft=buft, probes=slots.probes(address)))
    return HashTable(**head(watched.at.plan), at=at, before=before, size=gallocr.hash_size, nodes=tuple(nodes))


def sched_table(state: Watched) -> SchedTable:
    """What the scheduler's table has for the tensors of the graph, leafs first."""
    s = state.sched
    graph = state.built().graph
    tensors = []
    for t in (*graph.leafs, *graph.nodes):
        b, cause, copies = state.assignment(t)
        backend = s.names[b] if b >= 0 else None
        tensors.append(SchedSlot(t.id, backend, cause, tuple(copy.name for copy in copies)))
    return SchedTable(
        **head(state.plan),
        size=s.hash_size,
        tensors=tuple(tensors),
        backends=tuple(s.names),
        fields=dict(s.fields()),
        id_arrays={array: tuple(ids) for array, ids in s.id_arrays().items()},
        nodes=tuple(node.label for node in s.nodes),
        id_of_tensor=s.id_of_tensor,
        is_reset=s.is_reset,
    )
