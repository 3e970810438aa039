"""A history has every event of a run, and the state at every point is that of a fresh run stopped there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.samples import samples
from ggmltool.state.story.history import record_history, walk_to
from ggmltool.state.story.shadow import cells_of
from tests.state.story.randomly import check, kept_scenarios, random_scenarios

SMALL = [path for path in samples() if path.suffix == ".yaml"]


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


@pytest.mark.parametrize("compute", [False, True], ids=["plan", "compute"])
@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.name)
def test_the_state_of_samples(path: Path, compute: bool) -> None:
    check(ggmltool.load(path), Random(0), compute)


@pytest.mark.parametrize("release", RELEASES)
def test_the_state_of_random_scenarios(release: str) -> None:
    for number, scenario in enumerate(random_scenarios(release, range(8))):
        check(scenario, Random(number), compute=number % 4 == 0)


@pytest.mark.parametrize("release", ["2025-03", "2024-01"])
def test_the_state_of_what_old_libraries_were_run_on(release: str) -> None:
    for number, scenario in enumerate(kept_scenarios(release, slice(0, 24))):
        check(scenario, Random(number))


def test_a_fresh_run_can_be_stopped_anywhere() -> None:
    scenario = ggmltool.load("pipeline")
    history = record_history(scenario)
    for at in range(0, len(history.points), 7):
        assert history.cells(at) == walk_to(scenario, at)
    with pytest.raises(IndexError, match="the history has"):
        history.cells(len(history.points))


def test_a_refused_step_is_its_last() -> None:
    history = record_history(ggmltool.load("preallocated"))
    assert history.error is not None
    assert history.points[-1].ends
    cursor = history.cursor(len(history.points) - 1)
    assert cursor.move_to(0) == {}


def test_what_changes_is_what_differs() -> None:
    history = record_history(ggmltool.load("offload"))
    for at in range(1, len(history.points)):
        before, now = history.cells(at - 1), history.cells(at)
        keys = {key for key in before.keys() | now.keys() if before.get(key, "no") != now.get(key, "no")}
        assert history.changed(at) == history.diff(at - 1, at) == keys


def test_an_input_that_a_view_op_looks_at_before_a_node_uses_it() -> None:
    """A node's first source becomes a copy that is there already, and the second is the first use of an input."""
    scenario = ggmltool.load(
        {
            "ggmltool": 1,
            "ggml": "0.20.2",
            "backends": ["CUDA0", "CPU"],
            "scheduler": {"parallel": True},
            "contexts": {
                "weights": {"buft": "CUDA0", "usage": "weights", "tensors": {"g": {"type": "f32", "ne": [8]}}},
                "host": {"buft": "CPU", "tensors": {"k": {"type": "f32", "ne": [8]}}},
                "inputs": {"tensors": {"x": {"type": "f32", "ne": [8], "flags": ["input"]}}},
            },
            "graphs": {
                "main": {
                    "nodes": {
                        "v": {"op": "view_1d", "src": ["x"], "ne0": 4, "offset": 0},
                        "m": {"op": "mul", "src": ["g", "k"]},
                        "s": {"op": "add", "src": ["k", "x"]},
                        "t": {"op": "mul", "src": ["g", "s"]},
                    }
                }
            },
        }
    )
    history = record_history(scenario)
    for at in range(len(history.points)):
        assert history.cells(at) == walk_to(scenario, at)
