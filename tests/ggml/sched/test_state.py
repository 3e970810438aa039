"""A State of the engine: the rows of a plan follow from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.plans import PlanRows, rows_of
from ggmltool.ggml.sched.reader import planners
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.story.shadow import run_state
from tests.state.story.randomly import RELEASES, kept_scenarios, random_scenarios

SEEDS = range(30)


def plans(of: LoadedScenario) -> Iterator[tuple[Run, Plan]]:
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


@pytest.mark.parametrize("release", [name for name, release in RELEASES.items() if release.reserves])
def test_the_rows_of_a_plan_follow_from_the_state(release: str) -> None:
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
            assert rows == PlanRows(plan.splits, nodes, plan.leafs, plan.copies, plan.buffer_sizes)
            compared += 1
    assert compared > len(SEEDS) // 2


def test_a_scheduler_of_january_2024_has_a_state() -> None:
    """Its splits, backends and free blocks; of a plan that is kept, and of the graph before, it has nothing."""
    compared = 0
    for run, plan in (found for scenario in kept_scenarios("2024-01", slice(30)) for found in plans(scenario)):
        state = run_state(run, plan.graph or "")
        assert state is not None
        assert run.sched is not None
        sched, graph, names = state.sched, state.graph, run.sched.names
        assert sched is not None
        assert graph is not None
        splits = [((*names, "NULL")[s.backend_id], s.i_start, s.i_end, len(s.inputs)) for s in sched.splits]
        assert splits == [(s.backend, s.i_start, s.i_end, len(s.inputs)) for s in plan.splits]
        of = {t: names[b] for t, b in sched.tensor_backend_ids.items()}
        assert all(of.get(t, node.backend) == node.backend for t, node in zip(graph.nodes, plan.nodes, strict=True))
        tallocs, galloc = getattr(run.sched, "tallocs", ()), sched.galloc
        free = [list(map(list, chunk.free_blocks)) for (chunk,) in galloc.buf_tallocs]
        assert free == [planner.chunks[0].free_blocks for planner in planners(run.sched)]
        assert len(galloc.buffers) == len(tallocs) == len(galloc.bufts)
        assert (galloc.node_allocs, galloc.leaf_allocs, sched.prev_node_backend_ids, sched.n_copies) == ((), (), (), 1)
        compared += 1
    assert compared > 20
