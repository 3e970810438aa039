"""The state of a run as cells: one value for each key, whatever the release. What a point of a history shows is these.

A key is an area and where in it. Tensors are named by their index, backends and buffers by their number.

| key | value |
| --- | --- |
| `("sched", field)` | a plain field of the scheduler by its name there: `n_splits`, `cur_copy`, `is_reset`, … |
| `("id", t)` | the backend of a tensor, -1: none |
| `("cause", t)` | ggml's label of the rule that gave it |
| `("copies", t)` | for each backend None or the copies of the tensor there, one for each pipeline copy |
| `("split", i)` | a `SplitCell`; while a graph is being cut, when `n_splits` is 0, those that have begun |
| `("sched_graph", "nodes")`, `"leafs"` | tensors of the scheduler's own graph |
| `("sched_graph", "inputs")` | the graph inputs that it copies |
| `("node_ids", i)`, `("leaf_ids", i)` | the backends of its own graph, as its arrays have them |
| `("prev_node_ids", i)`, `("prev_leaf_ids", i)` | those of the graph before |
| `("galloc", field)` | a plain field of the allocator: `hash_set.size`, `n_nodes`, `n_leafs` |
| `("hash_node", t)` | a `HashNode` |
| `("free", b, c)` | the free blocks of chunk `c` of buffer `b`: pairs (offset, size) |
| `("max_size", b, c)` | the highest byte of that chunk that was ever used |
| `("buffer", b)` | for each chunk of the buffer (base, size); None before it is made |
| `("node_alloc", i)` | of the reserved plan: a node's (buffer id, chunk, offset, size_max), and those of its sources |
| `("leaf_alloc", i)` | the place of a leaf |
| `("tensor", t)` | a `TensorCell` |
| `("cgraph", name, "nodes")`, `"leafs"` | tensors of the newest build of a graph of the scenario, while it is there |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.inspect.allocations import hash_node

if TYPE_CHECKING:
    from ggmltool.ggml.dyn_tallocr import Planner
    from ggmltool.ggml.gallocr_common import AnyGallocr
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.ggml.vbuffer import TensorAlloc
    from ggmltool.scenario.run import Run

Key = tuple[str, *tuple[int | str, ...]]
Value = Any
Cells = dict[Key, Value]


class SplitCell(NamedTuple):
    """struct ggml_backend_sched_split."""

    backend_id: int
    i_start: int
    i_end: int
    inputs: tuple[int, ...]
    inputs_capacity: int


class TensorCell(NamedTuple):
    """struct ggml_tensor. `buffer` is the base address of its buffer (None: no buffer), `src` and `view_src` are
    indices of tensors."""

    name: str
    id: str
    type: str
    ne: tuple[int, ...]
    nb: tuple[int, ...]
    op: int
    op_params: tuple[int, ...]
    flags: int
    src: tuple[int | None, ...]
    view_src: int | None
    view_offs: int
    data: int
    buffer: int | None


def cells_of(run: Run) -> Cells:
    """The whole state of a run now; no cells before it has a scheduler."""
    if run.sched is None:
        return {}
    return dict(_all(run, run.sched))


def _all(run: Run, sched: AnyScheduler) -> Iterator[tuple[Key, Value]]:
    yield from _sched(sched)
    yield from _galloc(sched.gallocr)
    yield from _memory(sched)
    tensors, graphs = there_are(run, sched)
    for t in tensors.values():
        yield ("tensor", t.index), tensor_cell(t)
    for name, graph in graphs.items():
        yield ("cgraph", name, "nodes"), _indices(graph.nodes)
        yield ("cgraph", name, "leafs"), _indices(graph.leafs)


def _sched(sched: AnyScheduler) -> Iterator[tuple[Key, Value]]:
    for name in ("n_splits", "n_copies", "cur_copy", "next_copy", "is_reset", "is_alloc", "op_offload", "hash_size"):
        value = getattr(sched, name, None)
        if value is not None:
            yield ("sched", name), value
    for t, (b, cause, copies) in enumerate(zip(sched.ids, sched.causes, sched.copies, strict=True)):
        yield ("id", t), b
        yield ("cause", t), cause
        if copies is not None:
            yield ("copies", t), tuple(None if of is None else _indices(of) for of in copies)
    for i, split in enumerate(sched.splits[: max(sched.n_splits, sched.n_begun)]):
        inputs = _indices(split.inputs)
        yield ("split", i), SplitCell(split.backend_id, split.i_start, split.i_end, inputs, split.inputs_capacity)
    for name, tensors in (("nodes", sched.nodes), ("leafs", sched.leafs), ("inputs", sched.graph_inputs)):
        yield ("sched_graph", name), _indices(tensors)
    for name in ("node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids"):
        for i, b in enumerate(getattr(sched, name, ())):
            yield (name, i), b


def _galloc(gallocr: AnyGallocr) -> Iterator[tuple[Key, Value]]:
    yield ("galloc", "hash_set.size"), gallocr.hash_size
    yield ("galloc", "n_nodes"), len(gallocr.node_allocs)
    yield ("galloc", "n_leafs"), len(gallocr.leaf_allocs)
    for t in range(len(gallocr.hash_nodes.offset)):
        yield ("hash_node", t), hash_node(gallocr, t)
    for i, (dst, srcs) in enumerate(gallocr.node_allocs):
        yield ("node_alloc", i), (_alloc(dst), tuple(_alloc(src) for src in srcs))
    for i, leaf in enumerate(gallocr.leaf_allocs):
        yield ("leaf_alloc", i), _alloc(leaf)


def _memory(sched: AnyScheduler) -> Iterator[tuple[Key, Value]]:
    """Free blocks and buffers, which in January 2024 are those of the scheduler's own allocators."""
    tallocrs = getattr(sched, "tallocs", None)
    planners: Sequence[Planner] = sched.gallocr.buf_tallocs if tallocrs is None else tallocrs
    for b, planner in enumerate(planners):
        for c, chunk in enumerate(planner.chunks):
            yield ("free", b, c), tuple(map(tuple, chunk.free_blocks))
            yield ("max_size", b, c), chunk.max_size
    if tallocrs is not None:
        for b, tallocr in enumerate(tallocrs):
            yield ("buffer", b), ((tallocr.buffer.base, tallocr.buffer.size),)
    for b, buffer in enumerate(sched.gallocr.buffers):
        yield ("buffer", b), None if buffer is None else tuple((part.base, part.size) for part in buffer.chunks)


def _alloc(alloc: TensorAlloc) -> tuple[int, int, int, int]:
    return alloc.buffer_id, alloc.chunk, alloc.offset, alloc.size_max


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


def tensor_cell(t: Tensor) -> TensorCell:
    """A tensor as it is now."""
    return TensorCell(
        t.name,
        t.id,
        t.type.name,
        t.ne,
        t.nb,
        int(t.op),
        t.op_params,
        t.flags,
        tuple(None if s is None else s.index for s in t.src),
        None if t.view_src is None else t.view_src.index,
        t.view_offs,
        t.data,
        None if t.buffer is None else t.buffer.base,
    )


def _indices(tensors: list[Tensor]) -> tuple[int, ...]:
    return tuple(t.index for t in tensors)
