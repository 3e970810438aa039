"""What events call the tensors of a point."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.events import (
    AllocationStarted,
    Computed,
    Event,
    InputAdded,
    KeptUntil,
    NotReused,
    Reordered,
    Reused,
    SplitStarted,
    TensorCopied,
)

if TYPE_CHECKING:
    from ggmltool.ggml.state import TensorState
    from ggmltool.inspect.history.shadow import Changes


def about(event: Event) -> Sequence[str]:
    """The tensors that an event is about."""
    match event:
        case SplitStarted(node=node) | AllocationStarted(node=node):
            return (node,)
        case InputAdded(tensor=tensor, node=node, copies=copies):
            return (tensor, node, *copies)
        case Reordered(nodes=nodes) | Computed(nodes=nodes):
            return nodes
        case Reused(tensor=tensor, parent=other) | NotReused(tensor=tensor, parent=other):
            return (tensor, other)
        case KeptUntil(tensor=tensor, until=other):
            return (tensor, other)
        case TensorCopied(src=src, dst=dst):
            return (src, dst)
        case _:
            tensor = getattr(event, "tensor", "")
            return (tensor, *getattr(event, "copies", ())) if tensor else ()


def labels_of(cells: Mapping[Any, Any], graph: str) -> dict[str, int]:
    """The tensors of a state by what events call them; of several those of this graph, before its sources."""
    tensors: dict[int, TensorState] = {key[1]: cell for key, cell in cells.items() if key[0] == "tensor"}
    out = {cell.label: index for index, cell in tensors.items()}
    for kind in ("leafs", "nodes"):
        own = cells.get(("cgraph", graph, kind), ())
        sources = (s for i in own if i in tensors for s in (*tensors[i].src, tensors[i].view_src) if s is not None)
        for index in (*sources, *own):
            if index in tensors and tensors[index].id:
                out[tensors[index].id] = index
    return out


class Labels:
    """The same at the points of a history. It is found anew only where tensors have come, gone or got other sources."""

    def __init__(self, changes: Sequence[Changes]) -> None:
        self._marks = list(_renamed(changes))
        self._known: tuple[object, Mapping[str, int]] = (None, {})

    def at(self, at: int, cells: Mapping[Any, Any], graph: str) -> Mapping[str, int]:
        """The tensors of point `at`, whose state is given."""
        key = bisect_right(self._marks, at), graph
        if self._known[0] != key:
            self._known = key, labels_of(cells, graph)
        return self._known[1]


def _renamed(changes: Sequence[Changes]) -> Iterator[int]:
    known: dict[Any, object] = {}
    for at, here in enumerate(changes):
        is_new = False
        for key, value in here:
            if key[0] in ("tensor", "cgraph"):
                names = (value.id, value.name, value.src, value.view_src) if hasattr(value, "view_src") else value
                is_new = is_new or known.get(key) != names
                known[key] = names
        if is_new:
            yield at
