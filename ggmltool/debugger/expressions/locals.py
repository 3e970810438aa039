"""The local variables of ggml's functions, as far as the decision that was just made says what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ggmltool.debugger.expressions.ground import Ground
from ggmltool.ggml.events import AllocationStarted, NotReused, Reused

Local = tuple[str, int]
"""A variable: its type, as C declares it, and its value as a number or an address."""

_TENSOR = "struct ggml_tensor *"
_NODE = "struct hash_node *"


def locals_of(scope: Ground, function: str) -> Mapping[str, Local]:
    """The variables of the selected frame besides its arguments."""
    if not scope.image.there:
        return {}
    found: dict[str, Local] = {}
    for names, of in _OF.items():
        if function in names:
            found.update(of(scope))
    return found


def _tensor(scope: Ground, label: str) -> int:
    """Where the tensor lies that an event calls so; 0 if there is none."""
    index = scope.labels.get(label)
    return scope.image.tensors.address(index)


def _allocate_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_allocate_node: the node's entry of the table, and the parent whose memory it may take."""
    event = scope.event
    label = getattr(event, "tensor", "")
    node = _tensor(scope, label)
    if not node:
        return
    galloc = scope.image.galloc
    yield "hn", (_NODE, galloc.hash_node(node))
    yield from _where(scope, label)
    if isinstance(event, (Reused, NotReused)):
        parent = _tensor(scope, event.parent)
        yield "parent", (_TENSOR, parent)
        yield "p_hn", (_NODE, galloc.hash_node(parent))
        cell = scope.cell(event.parent)
        if cell is not None and cell.view_src is not None:
            root = scope.image.tensors.address(cell.view_src)
            yield "view_src", (_TENSOR, root)
            yield "view_src_hn", (_NODE, galloc.hash_node(root))


def _where(scope: Ground, label: str) -> Iterator[tuple[str, Local]]:
    """The planner, the buffer type and the size of what was allocated or freed."""
    index = scope.labels.get(label, -1)
    node = scope.image.cells.get(("hash_node", index))
    image = scope.image
    if node is None or not image.program.release.reserves or not 0 <= node.buffer_id < len(image.program.backends):
        return
    b = node.buffer_id
    yield "alloc", ("struct ggml_dyn_tallocr *", image.galloc.tallocr(b))
    yield "buft", ("ggml_backend_buffer_type_t", image.devices.buft(image.program.buft_of[b]))
    yield "buffer_id", ("int", b)
    event = scope.event
    if hasattr(event, "size"):
        yield "size", ("size_t", event.asked or event.size)
    yield "offset", ("size_t", node.offset)


def _alloc_graph_impl(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_alloc_graph_impl: what it is about, leaf, node or parent."""
    event = scope.event
    cells, address = scope.image.cells, scope.image.tensors.address
    label = getattr(event, "tensor", "") or getattr(event, "node", "")
    index = scope.labels.get(label)
    walked = _walked(scope)
    for name, part in (("leaf", "leafs"), ("node", "nodes")):
        own = cells.get(("sched_graph", part), ())
        if index in own and (walked is None or part == "leafs"):
            yield name, (_TENSOR, address(index))
            yield "i", ("int", own.index(index))
    if walked is not None:
        nodes = cells.get(("sched_graph", "nodes"), ())
        if 0 <= walked < len(nodes):
            yield "node", (_TENSOR, address(nodes[walked]))
            yield "i", ("int", walked)
            yield from _parent(scope, nodes[walked], index)


def _parent(scope: Ground, node: int, index: int | None) -> Iterator[tuple[str, Local]]:
    cell = scope.image.tensors.cell(node)
    if cell is None:
        return
    sources = [s for s in cell.src if s is not None]
    if sources:
        parent = scope.image.tensors.address(index if index in sources else sources[0])
        yield "parent", (_TENSOR, parent)
        yield "p_hn", (_NODE, scope.image.galloc.hash_node(parent))


def _walked(scope: Ground) -> int | None:
    """The node that the allocator walks, None before the first."""
    points = scope.history.points
    for at in range(scope.at, -1, -1):
        event = points[at].event
        if event is None:
            return None
        if isinstance(event, AllocationStarted):
            return event.at if event.at >= 0 else None
    return None


def _free_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_free_node."""
    label = getattr(scope.event, "tensor", "")
    node = _tensor(scope, label)
    if node:
        yield "hn", (_NODE, scope.image.galloc.hash_node(node))
        yield from _where(scope, label)


def _first_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """The first round of a loop over the nodes of the scheduler's graph, as ggml_gallocr_reserve_n has one."""
    image = scope.image
    nodes = image.cells.get(("sched_graph", "nodes"), ())
    if not nodes:
        return
    node = image.tensors.address(nodes[0])
    yield "i", ("int", 0)
    yield "node", (_TENSOR, node)
    if image.program.release.reserves and image.cells.get(("galloc", "n_nodes"), 0):
        yield "node_alloc", ("struct node_alloc *", scope.place("node_allocs"))
        yield "hn", (_NODE, image.galloc.hash_node(node))
    cell = image.tensors.cell(nodes[0])
    sources = [s for s in cell.src if s is not None] if cell is not None else []
    if sources:
        yield "src", (_TENSOR, image.tensors.address(sources[0]))
    leafs = image.cells.get(("sched_graph", "leafs"), ())
    if leafs:
        yield "leaf", (_TENSOR, image.tensors.address(leafs[0]))


_OF: Mapping[tuple[str, ...], Callable[[Any], Iterator[tuple[str, Local]]]] = {
    ("ggml_gallocr_allocate_node", "ggml_dyn_tallocr_alloc"): _allocate_node,
    ("ggml_gallocr_alloc_graph_impl",): _alloc_graph_impl,
    ("ggml_gallocr_free_node", "ggml_dyn_tallocr_free_tensor", "ggml_dyn_tallocr_free_bytes"): _free_node,
    (
        "ggml_gallocr_reserve_n",
        "ggml_gallocr_reserve_n_impl",
        "ggml_gallocr_reserve",
        "ggml_gallocr_alloc_graph",
        "ggml_gallocr_needs_realloc",
        "ggml_backend_sched_alloc_splits",
        "ggml_backend_sched_split_graph",
    ): _first_node,
}
