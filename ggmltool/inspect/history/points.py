"""The points of a run, and what is known of the run without its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ggmltool.ggml.events import Entered, Left

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.inspect.history.cells import AnyCells, Cells
    from ggmltool.inspect.history.shadow import Changes
    from ggmltool.scenario.scenario import Scenario

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

    scenario: Scenario
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
            case Entered(function):
                stack = (function, *stack)
            case Left():
                stack = stack[1:]
        out.append(stack)
    return out
