"""Graphs of real models computed, with values made up, on the engine and on the real library."""

from __future__ import annotations

import numpy as np
import pytest

import ggmltool
from ggmltool.oracle import run
from ggmltool.oracle.lib import Lib
from tests.conformance import captured
from tests.conformance.captured_values import with_values
from tests.conformance.ops_case import nmse
from tests.conformance.releases import in_turn

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
