"""The points of a run, what the events there are about, and what is known of the run without its state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ggmltool.ggml import events
from ggmltool.ggml.events import SPLIT_GRAPH, Event, Said

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.ggml.state import TensorState
    from ggmltool.scenario.scenario import LoadedScenario
    from ggmltool.state.story.cells import AnyCells, Cells, Changes

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
    """A run that was recorded: the scenario, its points, and the state at each of them."""

    scenario: LoadedScenario
    changes: Sequence[Changes]

    def cells(self, at: int) -> Cells:
        """The state at point `at`."""

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
