"""Devices with rules of their own: the engine plans as the real library does with a device that answers the same."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.oracle import run_many
from ggmltool.scenario.scenario import Scenario
from tests.conformance.compare import compare_runs
from tests.conformance.fuzz_rules import scenario_with_rules
from tests.conformance.releases import seeds_of
from tests.conformance.run import engine_run, planning_only

BLOCK, BLOCKS = 40, 2


@pytest.mark.parametrize("block", range(BLOCKS))
def test_plans_with_rules_are_those_of_the_real_library(block: int, release: str) -> None:
    """U16."""
    seeds = seeds_of(release, BLOCKS * BLOCK)[block * BLOCK :][:BLOCK]
    loaded = [ggmltool.load(scenario_with_rules(seed), ggml=release) for seed in seeds]
    models = [planning_only(one) for one in loaded]
    ours = [engine_run(Scenario(model), model, debug=False)[0] for model in models]
    theirs = run_many(models, debug=0, values=False)
    failed = {
        seed: differences
        for seed, plans, real in zip(seeds, ours, theirs, strict=True)
        if (differences := compare_runs(plans, real.plans))
    }
    assert failed == {}


def test_the_rules_decide_something() -> None:
    """U16."""
    without, moved = 0, 0
    for seed in range(BLOCK):
        loaded = ggmltool.load(scenario_with_rules(seed))
        without += not any(b.supports is not None and b.supports.rules for b in loaded.model.backends)
        run = loaded.start()
        built = run.build(next(iter(loaded.model.graphs)))
        moved += any(b.device.refusal(t) is not None for b in run.backends for t in built.nodes)
    assert without < BLOCK / 2
    assert moved > BLOCK / 3
