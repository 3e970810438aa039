"""A history: the points of a run in order, and the state at each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.history.cells import Cells, cells_of

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.scenario.run import Run
    from ggmltool.scenario.scenario import Scenario

START = -1
"""The number of what comes before the first step: devices, contexts and the scheduler are made."""


class Point(NamedTuple):
    """A place in a history, right after `event` was announced; without an event a step begins, or `ends`.

    `step` is the number of the scenario's step, `START` before the first.
    """

    step: int
    event: Event | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """The `points` of a run of a scenario, with `compute` all its steps, else those that plan. `error` is what ggml
    refused in the last step, None if nothing."""

    scenario: Scenario
    points: Sequence[Point]
    compute: bool
    error: Mapping[str, str | None] | None = None

    def cells(self, at: int) -> Cells:
        """The state at point `at`."""
        return walk_to(self.scenario, at, self.compute)


class _Stop(BaseException):
    """The point that was asked for is reached."""


def record_history(scenario: Scenario, compute: bool = False) -> History:
    """The history of the scenario's own steps, up to one that fails."""
    points: list[Point] = []
    error = _walk(scenario, compute, lambda run, point: points.append(point))
    return History(scenario, points, compute, error)


def walk_to(scenario: Scenario, at: int, compute: bool = False) -> Cells:
    """The state of a fresh run that is stopped at point `at`."""
    found: list[Cells] = []
    n = -1

    def stop(run: Run, point: Point) -> None:
        nonlocal n
        n += 1
        if n == at:
            found.append(cells_of(run))
            raise _Stop

    try:
        _walk(scenario, compute, stop)
    except _Stop:
        return found[0]
    raise IndexError(f"the history has {n + 1} points")


def _walk(scenario: Scenario, compute: bool, visit: Callable[[Run, Point], None]) -> Mapping[str, str | None] | None:
    """Do the steps and visit every point; what ggml refused."""
    step = START
    run: Run = scenario.start(lambda event: visit(run, Point(step, event)), values=compute)
    visit(run, Point(step))
    try:
        run.start()
    except GgmlError as refused:
        return refused.as_dict()
    visit(run, Point(step, ends=True))
    for step, spec in enumerate(scenario.model.steps):
        if not compute and spec.kind not in ("reserve", "alloc", "reset"):
            continue
        visit(run, Point(step))
        done = run.step(spec)
        visit(run, Point(step, ends=True))
        if isinstance(done, Plan) and done.error is not None:
            return dict(done.error)
    return None
