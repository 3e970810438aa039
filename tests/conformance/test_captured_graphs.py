"""Graphs of real models: the engine against what llama.cpp reported, and against the real library, computed too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.oracle import run
from ggmltool.oracle.lib import Lib
from tests.conformance import captured
from tests.conformance.captured import with_values
from tests.conformance.ops_case import nmse
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


TOKENS = [name for name in captured.names() if name.endswith("tg1-ub1") or name == "rwkv7-tg4-s4-ub4-ngl2"]
PROMPTS = [
    name
    for name in captured.names()
    if name in ("mamba2-pp512", "rwkv7-pp512-s4-ngl2", "granitehybrid-pp512-ngl3", "gemma2-pp512", "bert-pp512")
]
NMSE = {**dict.fromkeys(TOKENS, 1e-6), **dict.fromkeys(PROMPTS, 5e-4), "t5-tg1-ub1": 5e-4}
"""How far logits and caches may be off: rounding grows over layers and rows (T5 reads 2048 of its encoder)."""


@pytest.mark.skipif(not captured.names(), reason="the captured graphs are not beside this checkout")
@in_turn("name", [*TOKENS, *PROMPTS])
def test_a_captured_model_computes_what_the_library_computes(name: str, lib: Lib, release: str) -> None:
    document = with_values(captured.read(name), lib)
    graph, content = next(iter(document["graphs"].items()))
    caches = [id for c in document["contexts"].values() for id in c["tensors"] if id.startswith("cache")]
    read = [list(content["nodes"])[-1], *caches]
    steps = [f"reserve {graph}", f"alloc {graph}", f"compute {graph}", {"get": read}]
    loaded = ggmltool.load({**document, "steps": steps}, ggml=release)
    engine = loaded.start(values=True)
    ours = [engine.step(step) for step in loaded.model.steps][-1]
    [theirs] = run(loaded.model).values
    assert isinstance(ours, dict)
    assert ours.keys() == theirs.keys() == set(read)
    for id, values in ours.items():
        assert np.array_equal(np.isfinite(values), np.isfinite(theirs[id])), id
        assert nmse(values, theirs[id]) <= NMSE[name], id
    assert float(np.abs(ours[read[0]]).max()) > 0.01
