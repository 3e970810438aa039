"""The overview: every node and every copied input once, layers in order, alike ones together."""

from __future__ import annotations

from collections import Counter

import pytest

import ggmltool
from ggmltool.inspect.overview import Group, overview
from ggmltool.inspect.tensors import bytes_of
from ggmltool.scenario.samples import sample_name, samples
from tests.conformance.fuzz import scenario as random_scenario
from tests.conformance.fuzz_wide import wide_scenario


def overviews(scenario: ggmltool.Scenario) -> list[tuple[ggmltool.Plan, tuple[Group, ...]]]:
    """Those of all graphs that ggml takes, checked against their plans."""
    found = []
    for graph in scenario.model.graphs:
        plan, tensors = scenario.plan(graph), scenario.opened.tensors(graph)
        if not plan.splits:
            continue
        groups = overview(plan, tensors)
        stages = [stage for group in groups for column in group.columns for stage in column.stages]
        assert sum((stage.ops for stage in stages), Counter()) == Counter(tensors[n.id].op for n in plan.nodes)
        assert {split for stage in stages for split in stage.splits} == {split.id for split in plan.splits}
        alone = [stage for group in groups if group.times == 1 for c in group.columns for stage in c.stages]
        for stage in alone:
            (split,) = (plan.splits[id] for id in stage.splits)
            assert stage.backend == split.backend
            assert stage.inputs in ((0, 0), (len(split.inputs),) * 2)
            assert bool(stage.nbytes[1]) <= bool(bytes_of([tensors[of] for of in split.inputs]))
        if len(alone) == len(stages):
            assert sum(stage.inputs[0] for stage in stages) == sum(len(split.inputs) for split in plan.splits)
        found.append((plan, groups))
    return found


@pytest.mark.parametrize("sample", [sample_name(path) for path in samples()])
def test_every_node_of_a_sample_is_told_once(sample: str) -> None:
    overviews(ggmltool.load(sample))


@pytest.mark.parametrize("seed", range(20))
def test_every_node_of_a_random_scenario_is_told_once(seed: int) -> None:
    assert overviews(ggmltool.load(random_scenario(seed) if seed % 2 else wide_scenario(seed))) is not None


def test_layers_that_are_alike_are_one_column() -> None:
    ((_, groups),) = overviews(ggmltool.load("gemma-3-270m-ngl9"))
    assert [(group.times, group.columns[0].layers[0]) for group in groups] == [
        (1, None), (10, 0), (7, 10), (1, 17), (1, None),
    ]  # fmt: skip
    (column,) = groups[1].columns
    assert column.layers == tuple(range(10))
    assert [stage.backend for stage in column.stages].count("CPU") == 1
    assert column.stages[2].splits == tuple(range(3, 150, 15))


def test_layers_that_take_turns_are_a_group() -> None:
    """Every second layer has one node more: two columns for them. With the first layer the split begins."""
    nodes: dict[str, dict[str, object]] = {}
    last = "x"
    for layer in range(12):
        for op in ("sqr", "neg", "sqrt") if layer % 2 else ("sqr", "sqrt"):
            nodes[f"{op}-{layer}"] = {"op": op, "src": [last]}
            last = f"{op}-{layer}"
    inputs = {"tensors": {"x": {"type": "f32", "ne": [8]}}}
    scenario = ggmltool.load({"ggmltool": 1, "contexts": {"inputs": inputs}, "graphs": {"main": {"nodes": nodes}}})
    ((_, groups),) = overviews(scenario)
    assert [(group.times, [column.layers for column in group.columns]) for group in groups] == [
        (1, [(0,)]),
        (5, [(1, 3, 5, 7, 9), (2, 4, 6, 8, 10)]),
        (1, [(11,)]),
    ]
