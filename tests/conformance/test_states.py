"""All that the library's scheduler and allocator hold after each step is what the engine's hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.alloc.common import hash_keys
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.state import State
from ggmltool.oracle import load, run_on
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.state.story.shadow import run_state
from tests.conformance.compare import differences
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn
from tests.conformance.states import in_order, plain


def ours(model: ScenarioSpec) -> Iterator[tuple[Run, State]]:
    """The engine's run after each step that planned, and its State."""
    run = LoadedScenario(model).start()
    run.start()
    for number, step in enumerate(model.steps, 1):
        done = run.step(step, number)
        if isinstance(done, Plan):
            if not done.ok:
                return
            state = run_state(run, done.graph or "")
            assert state is not None
            yield run, state


def check(model: ScenarioSpec) -> None:
    (theirs,) = run_on(load(model.release), [model], debug=0, values=False, states=True)
    names: tuple[dict[int, str], dict[int, str]] = {}, {}
    for i, ((run, mine), real) in enumerate(zip(ours(model), theirs.states, strict=True)):
        left, right = plain(mine), plain(real)
        for name in ("node_backend_ids", "leaf_backend_ids", "prev_node_backend_ids", "prev_leaf_backend_ids"):
            # Behind those of the graph stand what larger ones had.
            one, other = left["sched"][name], right["sched"][name]
            left["sched"][name], right["sched"][name] = one[: len(other)], other[: len(one)]
        known = right["galloc"]["hash_values"]
        # Where nothing had to be planned anew, the tables have the tensors of an earlier build, by the names of then.
        left["galloc"]["hash_values"] = {k: v for k, v in left["galloc"]["hash_values"].items() if k in known or not i}
        keys = []
        for of, state in zip(names, (mine, real), strict=True):
            of |= {number: t.name for number, t in state.tensors.items()}
            assert state.sched is not None
            keys.append(sorted(of[key] for key in state.sched.galloc.hash_set.keys if key in of))
        found = [*differences(left, right, ""), *differences(*keys, "keys of the allocator's hash set")]
        assert not found, (i, len(found), found[:8])
        if real.sched is not None and real.sched.galloc.hash_set.keys <= in_order(real).keys():
            check_slots(run, mine, real)


def check_slots(run: Run, mine: State, real: State) -> None:
    """The keys of hash sets have the slots that the library's have, at the same addresses."""
    assert isinstance(run.sched, Scheduler)
    assert real.sched is not None
    assert real.graph is not None
    addresses = dict(zip(in_order(mine), in_order(real), strict=True))
    graph, gallocr = run.newest[run.plans[-1].graph or ""][0], run.sched.gallocr
    visited, planned = graph.visited, hash_keys(gallocr.planned_nodes, gallocr.planned_leafs)
    for size, keys, theirs in (
        (2 * real.graph.size, visited, real.graph.hash_set),
        (gallocr.hash_size, planned, real.sched.galloc.hash_set),
    ):
        slots = HashSet(size)
        found = {slots.find_or_insert(addresses[t.index]): addresses[t.index] for t in keys}
        assert (slots.size, found) == (theirs.size, theirs.slots)


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
