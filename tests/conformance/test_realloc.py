"""Whether a plan serves another graph: what `explain realloc` says is what the real library does.

GGML_SCHED_DEBUG_REALLOC makes ggml abort instead of planning again: 2 always, 1 where the graph's size is the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest

import ggmltool
from ggmltool.ask.explain.realloc import ReallocFacts, Side, explain_realloc
from ggmltool.inspect.opened import Opened
from ggmltool.oracle import run_many
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.conformance.fuzz import scenario
from tests.conformance.samples import samples

SEEDS = (*range(60), 87)
"""In the last graphs are of the same size."""

LEVELS = (1, 2)


def pairs(scenario: Scenario) -> list[tuple[str, str]]:
    return list(permutations(scenario.model.graphs, 2))


def ours(scenario: Scenario, first: str, second: str) -> ReallocFacts:
    opened = Opened(scenario, "it")
    return explain_realloc(Side(opened, first, first), Side(opened, second, second))


def real_model(scenario: Scenario, first: str, second: str) -> ScenarioSpec:
    return replace(scenario.model, steps=[Step("reserve", first), Step("alloc", second)])


def check(cases: list[tuple[ReallocFacts, ScenarioSpec]], level: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many aborted; each as it was foretold."""
    monkeypatch.setenv("GGML_SCHED_DEBUG_REALLOC", str(level))
    aborted = 0
    for (facts, _), real in zip(cases, run_many([model for _, model in cases], 0), strict=True):
        message = str((real.plans[-1].get("error") or {}).get("message"))
        expected = facts.why is not None and facts.n_buffers > 1 if level > 1 else facts.unexpected
        assert ("unexpected graph reallocation" in message) == expected
        if expected:
            aborted += 1
            told = re.search(r"graph size = (\d+), nodes = (\d+), leafs = (\d+)", message)
            assert told is not None
            assert tuple(map(int, told.groups())) == (facts.second.size, facts.second.nodes, facts.second.leafs)
    return aborted


def cases_of(scenarios: list[Scenario]) -> list[tuple[ReallocFacts, ScenarioSpec]]:
    out = []
    for loaded in scenarios:
        for first, second in pairs(loaded):
            if all(loaded.plan(graph).ok and loaded.plan(graph, "reserve").ok for graph in (first, second)):
                out.append((ours(loaded, first, second), real_model(loaded, first, second)))
    return out


def test_the_samples_graphs_serve_each_other_as_in_ggml(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = [ggmltool.load(path, ggml=release) for path in samples(release)]
    cases = cases_of([s for s in scenarios if len(s.model.graphs) > 1])
    for level in LEVELS:
        assert check(cases, level, monkeypatch) >= 1


def test_random_graphs_serve_each_other_as_in_ggml(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [ggmltool.load(scenario(seed), ggml=release) for seed in SEEDS]
    cases = cases_of([s for s in loaded if len(s.model.graphs) > 1])
    assert len(cases) > len(SEEDS) // 10
    for level in LEVELS:
        assert check(cases, level, monkeypatch) >= 2
