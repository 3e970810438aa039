"""The points of a run, what the events there are about, and the state there as cells: a value for each key.

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

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ggmltool.ggml import events
from ggmltool.ggml.events import SPLIT_GRAPH, Event, Said

if TYPE_CHECKING:
    from ggmltool.ggml.state import TensorState

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


START = -1
"""The number of what comes before the first step: devices, contexts and the scheduler are made."""


class Point(NamedTuple):
    """A place in a history, right after `event` was announced; without an event a step begins, or `ends`.

    `step` is the number of the scenario's step, `START` before the first.

    The state at a point is ggml's when it has done what the event tells. What ggml does between two points without a
    word is there at the second: a node's turn in pass 4 that settles nothing, the children that are counted off when
    a node is done, sources that become copies which are there already. What a choice writes while it compares is not:
    a tensor has no backend until it has the one it keeps. The scheduler's own graph is there when all of it is.
    `Grown`, `TensorWritten`, `TensorCopied` and `Computed` are told before it is done.
    """

    step: int
    event: Event | None = None
    ends: bool = False


class BackendNames(NamedTuple):
    """What a backend of a history is called, its default buffer type, the memory that its tensors get, and its kind."""

    name: str
    buft: str
    memory: str
    profile: str


class Announced(Protocol):
    """What a run announced: its points, of the release that decides."""

    points: Sequence[Point]
    backends: Sequence[BackendNames]

    @property
    def release(self) -> str:
        """The name of the release that decides."""

    @property
    def error(self) -> Mapping[str, str | None] | None:
        """What ggml refused in the last step, None if nothing."""

    @property
    def entered(self) -> Sequence[tuple[str, ...]]:
        """Of each point the functions that were announced to be entered and not left, innermost first."""


class AnyHistory(Announced, Protocol):
    """A run that was recorded: its points, and the state at each of them."""

    changes: Sequence[Changes]

    def graph(self, at: int) -> str:
        """The graph that the step of point `at` is about, "" if none."""

    def labels(self, at: int) -> Mapping[str, int]:
        """The tensors of point `at` by what events call them; of several those of that graph."""

    def state(self, at: int) -> AnyCells:
        """The same without a copy: it holds until the next question."""


def entered_at(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Of each point the functions that were announced to be entered and not left, innermost first."""
    out: list[tuple[str, ...]] = []
    stack: tuple[str, ...] = ()
    for point in points:
        match point.event:
            case None:
                stack = ()
            case events.Entered(function):
                stack = (function, *stack)
            case events.Left():
                stack = stack[1:]
        out.append(stack)
    return out


def about(event: Event) -> Sequence[str]:
    """The tensors that an event is about."""
    match event:
        case events.SplitStarted(node=node) | events.AllocationStarted(node=node):
            return (node,)
        case events.InputAdded(tensor=tensor, node=node, copies=copies):
            return (tensor, node, *copies)
        case events.Reordered(nodes=nodes) | events.Computed(nodes=nodes):
            return nodes
        case events.Reused(tensor=tensor, parent=other) | events.NotReused(tensor=tensor, parent=other):
            return (tensor, other)
        case events.KeptUntil(tensor=tensor, until=other):
            return (tensor, other)
        case events.TensorCopied(src=src, dst=dst):
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


def said_until(points: Sequence[Point], at: int) -> Iterator[tuple[int, Said]]:
    """All of it up to point `at`, the newest first, each with its point: while the graph is split, and what the program
    itself assigned before that."""
    is_entered = is_said = False
    for number in range(at, -1, -1):
        match points[number].event:
            case None if is_entered:
                return
            case events.Entered(function) if function in SPLIT_GRAPH:
                is_entered = True
            case events.Left(function) if function in SPLIT_GRAPH and (is_entered or is_said):
                return
            case (events.Assigned() | events.PassedOver() | events.Refused()) as event if (
                event.rule == 0 or not is_entered
            ):
                is_said = True
                yield number, event
            case _:
                pass
