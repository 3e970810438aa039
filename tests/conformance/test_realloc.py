"""Whether the plan of one graph serves another, as `explain realloc` says and as the real library acts."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest

import ggmltool
from ggmltool.ask.explain.realloc import ExplainedRealloc, Side, explain_realloc
from ggmltool.inspect.opened import Opened
from ggmltool.oracle import run_many
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.conformance.fuzz import scenario
from tests.conformance.releases import samples
from tests.drawn import Drawn

SEEDS = range(60)
"""In the last graphs are of the same size."""

LEVELS = (1, 2)


def pairs(scenario: LoadedScenario) -> list[tuple[str, str]]:
    return list(permutations(scenario.model.graphs, 2))


def ours(scenario: LoadedScenario, first: str, second: str) -> ExplainedRealloc:
    opened = Opened(scenario, "it")
    return explain_realloc(Side(opened, first, first), Side(opened, second, second))


def real_model(scenario: LoadedScenario, first: str, second: str) -> ScenarioSpec:
    return replace(scenario.model, steps=[Step("reserve", first), Step("alloc", second)])


def check(cases: list[tuple[ExplainedRealloc, ScenarioSpec]], level: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many aborted; each as it was foretold."""
    monkeypatch.setenv("GGML_SCHED_DEBUG_REALLOC", str(level))
    aborted = 0
    for (facts, _), real in zip(cases, run_many([model for _, model in cases], 0), strict=True):
        message = str((real.plans[-1].get("error") or {}).get("message"))
        expected = not facts.serves and facts.n_buffers > 1 if level > 1 else facts.unexpected
        assert ("unexpected graph reallocation" in message) == expected
        if expected:
            aborted += 1
            told = re.search(r"graph size = (\d+), nodes = (\d+), leafs = (\d+)", message)
            assert told is not None
            assert tuple(map(int, told.groups())) == (facts.second.size, facts.second.nodes, facts.second.leafs)
    return aborted


def cases_of(scenarios: list[LoadedScenario]) -> list[tuple[ExplainedRealloc, ScenarioSpec]]:
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
    cases = []
    for seed in (drawn := Drawn(SEEDS, len(SEEDS) // 10, 388)):
        loaded = ggmltool.load(scenario(seed), ggml=release)
        cases += cases_of([loaded]) if len(loaded.model.graphs) > 1 else []
        drawn.found = len(cases) if any(facts.unexpected for facts, _ in cases) else 0
    for level in LEVELS:
        assert check(cases, level, monkeypatch) >= 1
