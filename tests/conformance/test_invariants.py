"""The checker on the library's own plans: what it accepts of the engine's it must accept of the judge's."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ggmltool
from ggmltool.oracle import run_many
from ggmltool.scenario.spec import Step
from tests.conformance.fuzz import scenario
from tests.drawn import Drawn
from tests.invariants import KNOWN_HAZARDS, violations


@pytest.mark.parametrize("first", range(1000, 1200, 50))
def test_the_librarys_own_plans_have_known_hazards_only(first: int, release: str) -> None:
    models = []
    for seed in (drawn := Drawn(range(first, first + 50), 30)):
        loaded = ggmltool.load(scenario(seed), ggml=release)
        planned = [graph for graph in loaded.model.graphs if loaded.plan(graph).ok]
        models += [replace(loaded.model, steps=[Step("alloc", graph)]) for graph in planned]
        drawn.found += len(planned)
    for model, real in zip(models, run_many(models, 0), strict=True):
        (plan,) = real.plans
        assert plan["ok"]
        assert {v.kind for v in violations(model, plan)} <= KNOWN_HAZARDS, model.name
