"""A State of the engine: the rows of a plan follow from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.plans import PlanRows, rows_of
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import Scenario
from ggmltool.state.story.cells import run_state
from tests.state.story.randomly import RELEASES, random_scenarios

SEEDS = range(30)


def plans(of: Scenario) -> Iterator[tuple[Run, Plan]]:
    """The run after each step that planned, with the plan."""
    run = of.start()
    run.start()
    for number, step in enumerate(of.model.steps, 1):
        if step.kind in (*run.plan_steps, "reset"):
            done = run.step(step, number)
            if isinstance(done, Plan):
                if not done.ok:
                    return
                yield run, done


@pytest.mark.parametrize("release", RELEASES)
def test_the_rows_of_a_plan_follow_from_the_state(release: str) -> None:
    """But for the copies of January 2024: its tables keep those of other graphs."""
    compared = 0
    for scenario in random_scenarios(release, SEEDS):
        for run, plan in plans(scenario):
            state = run_state(run, plan.graph or "")
            assert state is not None
            assert run.sched is not None
            place = run.sched.places()
            sizes = {t.index: place(t)[4] for t in run.newest[plan.graph or ""][0].nodes}
            bufts = {number: buft.name or "" for number, buft in state.bufts.items()}
            rows = rows_of(state, run.sched.names, bufts, sizes.get)
            nodes = tuple(structs.replace(node, cause=None) for node in plan.nodes)
            copies = plan.copies if RELEASES[release].reserves else rows.copies
            assert rows == PlanRows(plan.splits, nodes, plan.leafs, copies, plan.buffer_sizes)
            compared += 1
    assert compared > len(SEEDS) // 2
