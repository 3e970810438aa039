"""Graphs of real models: the engine against what llama.cpp reported and against the real library."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.oracle import run
from tests.conformance import captured
from tests.conformance.releases import in_turn
from tests.conformance.run import engine_run, judge, planning_only

NAMES = captured.names()
STEPS = ["reserve pp", "reserve tg", "alloc pp", "reset", "alloc tg", "reset", "alloc tg", "reset", "alloc pp", "reset"]


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, Any]]:
    return captured.expected()


@pytest.mark.skipif(not NAMES, reason="the captured graphs are not beside this checkout")
@in_turn("name", NAMES)
def test_a_captured_graph_is_planned_as_llama_cpp_and_the_real_library_plan_it(
    name: str, expected: dict[str, dict[str, Any]], release: str
) -> None:
    loaded = ggmltool.load(captured.read(name), ggml=release)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert judge(plans, texts, run(model, values=False)) == []
    # The llama.cpp of then made no pipeline copies of inputs that nothing reads.
    copies_more = model.scheduler.parallel and model.release.rules.copies_leafs_last
    for plan in plans:
        found = {
            "n_splits": len(plan["splits"]),
            "buffer_sizes": plan["buffer_sizes"],
            "nodes": len(plan["nodes"]),
            "leafs": len(plan["leafs"]),
        }
        reported = expected[name]
        if copies_more:
            reported = {key: value for key, value in reported.items() if key != "buffer_sizes"}
        assert {key: found[key] for key in reported} == reported


@pytest.mark.skipif(not NAMES, reason="the captured graphs are not beside this checkout")
@in_turn("pair", captured.pairs())
def test_a_models_graphs_follow_one_another_on_one_scheduler(pair: tuple[str, str], release: str) -> None:
    loaded = ggmltool.load({**captured.together(*pair), "steps": STEPS}, ggml=release)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert len(plans) == 6
    assert judge(plans, texts, run(model, values=False)) == []
