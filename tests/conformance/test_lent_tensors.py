"""A plan takes the scenario's own tensors where it can, and is that of a run that makes its own."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.tensor import FLAG_INPUT
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import wide_scenario

STEPS = ("reserve", "alloc", "reserve", "alloc")
SAMPLES = sorted((Path(__file__).parents[2] / "sample_graphs").glob("*.json.gz"))


def of_its_own(loaded: ggmltool.Scenario, graph: str, step: str) -> dict[str, object]:
    """The plan of a run that makes its tensors."""
    run = loaded.start()
    return (run.alloc if step == "alloc" else run.reserve)(graph).as_dict()


@pytest.mark.parametrize("seed", range(60))
def test_planning_again_and_again_gives_the_plans_of_runs_of_their_own(seed: int) -> None:
    loaded = ggmltool.load((wide_scenario if seed % 3 == 0 else scenario)(seed))
    graphs = list(loaded.model.graphs)
    expected = {(graph, step): of_its_own(loaded, graph, step) for graph in graphs for step in STEPS}
    for _ in range(2):
        for step in STEPS:
            for graph in graphs:
                assert loaded.plan(graph, step).as_dict() == expected[graph, step]
    assert {key: of_its_own(loaded, *key) for key in expected} == expected


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_captured_graphs_are_planned_again_as_at_first(path: Path) -> None:
    loaded = ggmltool.load(path)
    if not loaded.model.release.reserves:
        pytest.skip("of a release that measures, no tensors are lent")
    graph = next(iter(loaded.model.graphs))
    for parallel in (False, True):
        again = ggmltool.load(path)
        again.model.scheduler = type(again.model.scheduler)(parallel=parallel)
        expected = {step: of_its_own(again, graph, step) for step in set(STEPS)}
        for step in STEPS:
            assert again.plan(graph, step).as_dict() == expected[step]


def test_a_tensor_that_was_lent_is_lent_and_made_as_at_first() -> None:
    (made,) = ggmltool.load(
        {
            "ggmltool": 1,
            "backends": ["CPU"],
            "contexts": {"a": {"tensors": {"x": {"type": "f32", "ne": [4], "name": "", "flags": ["input"]}}}},
            "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
        }
    ).compiled.contexts[0]
    lent = made.lend(3)
    lent.flags, lent.name, lent.data, lent.view_src = 63, "leaf_0", 4096, lent
    for t in (made.make(5), made.lend(5)):
        assert (t.flags, t.name, t.data, t.buffer, t.view_src, t.index) == (FLAG_INPUT, "", 0, None, None, 5)


def test_threads_plan_one_scenario_side_by_side() -> None:
    loaded = ggmltool.load(SAMPLES[0])
    expected = loaded.plan().as_dict()
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda _: loaded.plan().as_dict(), range(16)))
    assert plans == [expected] * 16


def test_what_was_compiled_is_made_anew_from_a_pickle() -> None:
    loaded = ggmltool.load(SAMPLES[0])
    loaded.plan()
    compiled = loaded.compiled
    again = pickle.loads(pickle.dumps(compiled))
    assert list(again.graphs) == list(compiled.graphs)
    assert again.graph_size == compiled.graph_size
