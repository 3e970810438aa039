"""`ggmltool capture`: the graph of a model is the one that llama.cpp builds, and plans to what llama.cpp reserves."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.dtypes import TYPES
from tests.cli.conftest import Call, call
from tests.sources.models import MODELS, cached

__all__ = ["call"]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp, extra llama)"
)

CONTEXT = ("-c", "512", "-b", "512")


def scenario(call: Call, name: str, *options: object) -> dict[str, Any]:
    """What the command prints for a model of ours."""
    result = call("capture", cached(name), *CONTEXT, *options)
    assert (result.status, result.err) == (0, "")
    document: dict[str, Any] = json.loads(result.out)
    return document


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prompt", "token"])
def test_a_model_of_each_architecture_is_captured_and_planned(call: Call, name: str, phase: str) -> None:
    captured = scenario(call, name, "--phase", phase)
    model = MODELS[name]()
    weights = captured["contexts"]["weights"]["tensors"]
    assert {id: (t["type"], tuple(t["ne"])) for id, t in weights.items()} == {
        id: (type_, ne + (1,) * (4 - len(ne))) for id, (type_, ne) in model.tensors.items()
    }
    assert all(TYPES[t["type"]] for t in weights.values())
    meta = captured["meta"]
    assert meta["architecture"] == model.architecture
    assert meta["n_layer"] == model.values["block_count"]
    assert meta["n_tokens"] == (512 if phase == "prompt" else 1)
    for step in ("reserve", "alloc"):
        plan = ggmltool.load(captured).plan(step=step)
        assert plan.ok
        assert len(plan.splits) == 1
        assert [node.id for node in plan.nodes] == list(captured["graphs"]["main"]["nodes"])
        assert [t.id for t in (*plan.leafs, *plan.nodes)] == captured["graphs"]["main"]["expand"]


def test_on_a_terminal_it_goes_to_a_file_named_after_the_model(call: Call) -> None:
    result = call("capture", cached("llama"), *CONTEXT, tty=True)
    assert (result.status, result.out) == (0, "")
    first, second = result.err.splitlines()
    assert first == "Wrote llama.json.gz"
    assert second == (
        "llama, 6 layers · 192 nodes, 76 leafs · 512 tokens in a context of 512 · weights 2.27 MiB · kv 1.5 MiB"
    )
    written = gzip.decompress(Path("llama.json.gz").read_bytes()).decode()
    assert written == call("capture", cached("llama"), *CONTEXT).out
    assert call("plan", "llama.json.gz").status == 0
    assert "--force" in call("capture", cached("llama"), *CONTEXT, tty=True).err
