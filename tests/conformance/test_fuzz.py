"""Random scenarios: the generator itself, and the engine against the real library on a few hundred of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ggmltool.oracle import OracleRun, run_many
from ggmltool.scenario.scenario import Scenario
from tests.conformance.compare import compare, compare_runs
from tests.conformance.fuzz import scenario
from tests.conformance.longform import model_of
from tests.conformance.releases import seeds_of
from tests.conformance.run import engine_run, outcomes
from tests.conformance.values import compare_values, judge
from tests.drawn import Drawn

BLOCK, BLOCKS = 50, 3


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_engine_does_what_the_real_library_does(block: int, release: str) -> None:
    seeds = seeds_of(release, BLOCKS * BLOCK)[block * BLOCK :][:BLOCK]
    failed = {o.seed: o.differences for o in outcomes(seeds, release) if o.differences}
    assert failed == {}


def test_a_seed_always_gives_the_same_scenario() -> None:
    assert [scenario(seed) for seed in range(40)] == [scenario(seed) for seed in range(40)]
    assert scenario(1) != scenario(2)


def test_scenarios_reach_all_ends_and_shapes() -> None:
    seen: Counter[str] = Counter()
    for seed in (drawn := Drawn(range(150), 1)):
        model = model_of(scenario(seed, short_forms=False))
        for plan in engine_run(Scenario(model), model, debug=False)[0]:
            seen["refused"] += not plan["ok"]
            seen["split often"] += len(plan["splits"]) > 3
            seen["pipeline copies"] += 10 * any(copy["copy"] == 3 for copy in plan["copies"])
            seen["all chunks"] += 10 * any(node["chunk"] == 15 for node in plan["nodes"])
            seen["many inputs"] += 10 * any(len(split["inputs"]) >= 30 for split in plan["splits"])
        drawn.found = min(seen.values()) >= 10


def test_a_comparison_names_the_field_that_differs(release: str) -> None:
    (run,) = run_many([model_of(scenario(3, short_forms=False), release=release)], debug=0)
    plan = run.plans[0]
    assert plan["ok"]
    other = {**plan, "nodes": [{**plan["nodes"][0], "offset": -1}, *plan["nodes"][1:]]}
    assert compare(plan, plan) == []
    assert compare(other, plan) == [f"nodes[0].offset: -1, not {plan['nodes'][0]['offset']!r}"]
    assert compare_runs([plan], [plan, plan]) == ["the engine made 1 plans, the library 2"]


def test_the_generated_long_forms_mean_to_the_loader_what_they_say() -> None:
    import ggmltool

    for seed in range(60):
        source = scenario(seed, short_forms=False)
        read, loaded = model_of(source), ggmltool.load(source).model
        for context, other in zip(read.contexts, loaded.contexts, strict=True):
            assert [(t.id, t.ne, t.nb, t.flags, t.view_src, t.view_offs) for t in context.tensors] == [
                (t.id, t.ne, t.nb, t.flags, t.view_src, t.view_offs) for t in other.tensors
            ]
        for name, graph in read.graphs.items():
            assert [(t.id, t.op, t.src, t.ne, t.nb, t.view_src, t.view_offs) for t in graph.nodes] == [
                (t.id, t.op, t.src, t.ne, t.nb, t.view_src, t.view_offs) for t in loaded.graphs[name].nodes
            ]


def test_the_engine_computes_what_the_real_library_computes(release: str) -> None:
    from tests.conformance.values import outcomes as computed

    results = list(computed(seeds_of(release, 40), release))
    assert {seed: differences for seed, differences, _ in results if differences} == {}
    assert sum(arrays for _, _, arrays in results) > 20


def test_what_no_rule_settles_is_no_difference_and_all_else_is_one() -> None:
    """The sign of a NaN of f16 in words that are read as f32, and rounding no larger than the engine's own."""
    ours, theirs = (np.array([nan, 0x3F80_0000], np.uint32).view(np.float32) for nan in (0x7E00_7E00, 0xFE00_FE00))
    assert list(compare_values(ours, theirs, 1e-6)) == []
    assert list(compare_values(ours, theirs * np.float32(1.01), 1e-6)) == ["NMSE 9.8e-05"]
    assert list(compare_values(ours[1:], theirs[:1], 1e-6)) != []
    run = OracleRun([], [], values=[{"y": np.float32([1, 2])}])
    mine = [{"y": np.float32([1.1, 2])}]
    assert judge(([], mine, []), run, 1e-6) == ["get 0: y: NMSE 2.0e-03"]
    assert judge(([], mine, []), run, 1e-6, [{"y": np.float32([1.05, 2])}]) == []
    assert judge(([], mine, []), run, 1e-6, [{"y": np.float32([1.099, 2])}]) != []
