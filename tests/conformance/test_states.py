"""All that the library's scheduler and allocator hold after each step is what the engine's hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.state import State
from ggmltool.oracle import load, run_on
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.state.story.shadow import run_state
from tests.conformance.compare import differences
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn
from tests.conformance.states import plain


def ours(model: ScenarioSpec) -> Iterator[State]:
    """The engine's State after each step that planned."""
    run = LoadedScenario(model).start()
    run.start()
    for number, step in enumerate(model.steps, 1):
        done = run.step(step, number)
        if isinstance(done, Plan):
            if not done.ok:
                return
            state = run_state(run, done.graph or "")
            assert state is not None
            yield state


def check(model: ScenarioSpec) -> None:
    (theirs,) = run_on(load(model.release), [model], debug=0, values=False, states=True)
    for i, (mine, real) in enumerate(zip(ours(model), theirs.states, strict=True)):
        left, right = plain(mine), plain(real)
        for name in ("node_backend_ids", "leaf_backend_ids", "prev_node_backend_ids", "prev_leaf_backend_ids"):
            # Behind those of the graph stand what larger ones had.
            one, other = left["sched"][name], right["sched"][name]
            left["sched"][name], right["sched"][name] = one[: len(other)], other[: len(one)]
        if i:
            # Where nothing had to be planned anew, the tables have the tensors of an earlier build.
            known = right["galloc"]["hash_values"]
            left["galloc"]["hash_values"] = {k: v for k, v in left["galloc"]["hash_values"].items() if k in known}
        found = list(differences(left, right, ""))
        assert not found, (i, len(found), found[:8])


def test_after_a_sample_the_states_are_equal(sample: Path, release: str) -> None:
    check(ggmltool.load(sample, ggml=release).model)


@in_turn("seed", range(60))
def test_after_each_step_of_a_random_run_the_states_are_equal(seed: int, release: str) -> None:
    try:
        model = ggmltool.load(scenario(seed), ggml=release).model
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")
    steps = LoadedScenario(model).steps(
        [s for name in model.graphs for s in (f"reserve {name}", f"alloc {name}", "reset")]
    )
    check(replace(model, steps=[*steps, *steps]))
