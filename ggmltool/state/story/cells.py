"""The state of a run as cells: one value for each key, whatever the release. What a point of a history shows is these.

A key is an area and where in it. Tensors are named by their index, backends and buffers by their number.

| key | value |
| --- | --- |
| `("sched", field)` | a plain field of the scheduler by its name there: `n_splits`, `cur_copy`, `is_reset`, … |
| `("id", t)` | the backend of a tensor, -1: none |
| `("cause", t)` | ggml's label of the rule that gave it |
| `("copies", t)` | for each backend None or the copies of the tensor there, one for each pipeline copy |
| `("split", i)` | a `SplitState`; while a graph is being cut, when `n_splits` is 0, those that have begun |
| `("sched_graph", "nodes")`, `"leafs"` | tensors of the scheduler's own graph |
| `("sched_graph", "inputs")` | the graph inputs that it copies |
| `("sched_graph", "keys")` | the tensors in its hash set: of the graphs since the last reset, and others looked up |
| `("node_ids", i)`, `("leaf_ids", i)` | the backends of its own graph, as its arrays have them |
| `("prev_node_ids", i)`, `("prev_leaf_ids", i)` | those of the graph before |
| `("galloc", field)` | a plain field of the allocator: `hash_set.size`, `n_nodes`, `n_leafs` |
| `("hash_node", t)` | a `HashNodeState` |
| `("free", b, c)` | the `FreeBlock`s of chunk `c` of buffer `b` |
| `("max_size", b, c)` | the highest byte of that chunk that was ever used |
| `("buffer", b)` | for each chunk of the buffer (base, size); None before it is made |
| `("node_alloc", i)` | of the reserved plan: a node's `TensorAlloc`, and those of its sources |
| `("leaf_alloc", i)` | the place of a leaf |
| `("tensor", t)` | a `TensorState` |
| `("cgraph", name, "nodes")`, `"leafs"` | tensors of the newest build of a graph of the scenario, while it is there |
| `("cgraph", name, "visited")`, `"uses"` | the tensors of its hash set as they were met, and their use counts |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ggmltool.ggml.sched.reader import (
    copies_state,
    free_blocks,
    hash_nodes,
    indices,
    planners,
    split_state,
    state_of,
    tensor_state,
)
from ggmltool.ggml.state import State

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run

ENDLESS = 1 << 62
"""A free block of so many bytes or more is the rest of a chunk that has no end."""

Key = tuple[str, *tuple[int | str, ...]]
Value = Any
Cells = dict[Key, Value]
AnyCells = Mapping[Key, Value]
"""Cells that somebody else may change."""


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()
"""In place of a value: there is no such cell any more."""

Changes = tuple[tuple[Key, Value], ...]
"""What changes at a point: keys with their new values, or with GONE."""


def cells_of(run: Run) -> Cells:
    """The whole state of a run now; before it has a scheduler, the tensors of its contexts."""
    if run.sched is None:
        return dict(context_cells(run.persistent))
    out: Cells = {}
    for area in (sched_cells, id_cells, copies_cells, split_cells, own_graph_cells, array_cells, galloc_cells):
        out.update(area(run.sched))
    for area in (hash_cells, alloc_cells, planner_cells, buffer_cells):
        out.update(area(run.sched))
    tensors, graphs = there_are(run, run.sched)
    out.update((("tensor", t.index), tensor_state(t)) for t in tensors.values())
    out.update(graph_cells(graphs))
    return out


Items = Iterator[tuple[Key, Value]]


def sched_cells(sched: AnyScheduler) -> Items:
    """The plain fields of the scheduler."""
    for name in ("n_splits", "n_copies", "cur_copy", "next_copy", "is_reset", "is_alloc", "op_offload", "hash_size"):
        value = getattr(sched, name, None)
        if value is not None:
            yield ("sched", name), value
    for name, value in (
        ("graph.size", sched.own_size),
        ("splits_capacity", len(sched.splits)),
        ("graph_inputs_capacity", getattr(sched, "graph_inputs_capacity", 0)),
        ("context_buffer_size", sched.arena.size),
    ):
        yield ("sched", name), value


def id_cells(sched: AnyScheduler) -> Items:
    """The backend of every tensor, and its cause."""
    for t, (b, cause) in enumerate(zip(sched.ids, sched.causes, strict=True)):
        yield ("id", t), b
        yield ("cause", t), cause


def copies_cells(sched: AnyScheduler) -> Items:
    """The copies of the tensors that have any."""
    return ((("copies", t), copies_state(of)) for t, of in enumerate(sched.copies) if of is not None)


def split_cells(sched: AnyScheduler) -> Items:
    """The splits of the graph, as far as it is cut."""
    return ((("split", i), split_state(sched.splits[i])) for i in range(max(sched.n_splits, sched.n_begun)))


def own_graph_cells(sched: AnyScheduler) -> Items:
    """The scheduler's own graph."""
    for name, tensors in (("nodes", sched.nodes), ("leafs", sched.leafs), ("inputs", sched.graph_inputs)):
        yield ("sched_graph", name), indices(tensors)
    yield ("sched_graph", "keys"), key_values(sched)


def key_values(sched: AnyScheduler) -> tuple[int, ...]:
    """The tensors in the scheduler's hash set: leafs, which ggml looks up first, then nodes and others."""
    leafs = dict.fromkeys(t.index for graph in sched.seen_graphs for t in graph.leafs)
    return (*leafs, *sorted(sched.hash_keys() - leafs.keys()))


ARRAYS = ("node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids")


def array_cells(sched: AnyScheduler) -> Items:
    """The backends of its own graph and of the one before."""
    return (((name, i), b) for name in ARRAYS for i, b in enumerate(getattr(sched, name, ())))


def galloc_cells(sched: AnyScheduler) -> Items:
    """The plain fields of the allocator."""
    gallocr = sched.gallocr
    yield ("galloc", "hash_set.size"), gallocr.hash_size
    yield ("galloc", "n_nodes"), len(gallocr.node_allocs)
    yield ("galloc", "n_leafs"), len(gallocr.leaf_allocs)


def hash_cells(sched: AnyScheduler) -> Items:
    """What the allocator knows of every tensor."""
    return ((("hash_node", t), node) for t, node in enumerate(hash_nodes(sched.gallocr)))


def alloc_cells(sched: AnyScheduler) -> Items:
    """The reserved plan."""
    gallocr = sched.gallocr
    yield from ((("node_alloc", i), places) for i, places in enumerate(gallocr.node_allocs))
    yield from ((("leaf_alloc", i), place) for i, place in enumerate(gallocr.leaf_allocs))


def planner_cells(sched: AnyScheduler) -> Items:
    """Free blocks, and the highest byte that was ever used."""
    for b, planner in enumerate(planners(sched)):
        for c, chunk in enumerate(planner.chunks):
            yield ("free", b, c), free_blocks(chunk)
            yield ("max_size", b, c), chunk.max_size


def buffer_cells(sched: AnyScheduler) -> Items:
    """The buffers that graphs are allocated in."""
    for b, tallocr in enumerate(getattr(sched, "tallocs", ())):
        yield ("buffer", b), ((tallocr.buffer.base, tallocr.buffer.size),)
    for b, buffer in enumerate(sched.gallocr.buffers):
        yield ("buffer", b), None if buffer is None else tuple((part.base, part.size) for part in buffer.chunks)


def graph_cells(graphs: Mapping[str, CGraph]) -> Items:
    """The graphs of the newest builds."""
    for name, graph in graphs.items():
        yield ("cgraph", name, "nodes"), indices(graph.nodes)
        yield ("cgraph", name, "leafs"), indices(graph.leafs)
        yield ("cgraph", name, "visited"), indices(graph.visited)
        yield ("cgraph", name, "uses"), tuple([graph.use_count(t) for t in graph.visited])


def context_cells(tensors: Iterable[Tensor | None]) -> Items:
    """Tensors of contexts that have memory of their own."""
    return ((("tensor", t.index), tensor_state(t)) for t in tensors if t is not None)


def run_state(run: Run, graph: str) -> State | None:
    """The State of a run now, with a graph of which it has a build; None before it has a scheduler."""
    if run.sched is None:
        return None
    tensors, _ = there_are(run, run.sched)
    return state_of(run.sched, run.newest[graph][0], tensors.values(), run.buffers)


def there_are(run: Run, sched: AnyScheduler) -> tuple[dict[int, Tensor], dict[str, CGraph]]:
    """Each tensor there is, by its index: those of contexts that keep them, of the newest builds, and what the
    scheduler made; and the graphs of those builds.

    A build is gone when one of its tensors is: after a reset, others may be made in its place.
    """
    tensors = {t.index: t for t in (*run.persistent, *sched.arena.made()) if t is not None}
    graphs: dict[str, CGraph] = {}
    for name, (graph, table) in reversed(run.newest.items()):
        if all(tensors.get(t.index, t) is t for t in table):
            tensors.update((t.index, t) for t in table)
            graphs[name] = graph
    return tensors, graphs
