"""A history has every event of a run, and the state at its end is that of a run nobody looked at."""

from __future__ import annotations

import ggmltool
from ggmltool.inspect.history.cells import cells_of
from ggmltool.inspect.history.history import record_history


def test_ends_as_a_run_does() -> None:
    scenario = ggmltool.load("inplace")
    history = record_history(scenario)
    run = scenario.start()
    run.run(step for step in scenario.model.steps if step.kind in ("reserve", "alloc", "reset"))
    assert history.cells(len(history.points) - 1) == cells_of(run)


def test_begins_with_nothing() -> None:
    history = record_history(ggmltool.load("inplace"))
    assert history.cells(0) == {}
    assert history.points[0].event is None
