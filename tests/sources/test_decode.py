"""Captures of given tokens: computed here, their logits are llama.cpp's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.sources.llama.capture.capture import add_weights, capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.cli.conftest import Call
from tests.sources.library import needs_library
from tests.sources.models import MODELS, VOCAB
from tests.sources.random_weights import random_model
from tests.sources.reference import decode

pytestmark = needs_library

CONTEXT = 512
DECODERS = sorted(set(MODELS) - {"bert", "t5"})
LOGITS = "result_output"
LIMITS = {"llama": 1e-2, "qwen3": 1e-2, "phi3": 1e-2, "deepseek2": 0.2}
"""NMSE allowed where it is not 1e-3. A product rounds its rows to 8 bits. Where a sum that differs in its last bit is
rounded to the other side, all that comes after it differs by as much as the rounding of its rows makes up: more with
q4_K, whose rows are rounded in blocks of 256, and most where it decides which experts are taken. With the same weights
in f32 there is next to none of it.
"""


def tokens(n: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(n).integers(0, VOCAB, n)]


def captured(path: Path, prompt: list[int], following: list[int], **more: Any) -> dict[str, Any]:
    options = CaptureOptions(n_ctx=CONTEXT, tokens=tuple(prompt), next_tokens=tuple(following), **more)
    scenario = capture(path, options).scenario
    add_weights(scenario, path, path.parent)
    return scenario


def logits(scenario: dict[str, Any], folder: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Those of every `compute` step, one below the other."""
    file = folder / "captured.json"
    file.write_text(json.dumps(scenario))
    loaded = ggmltool.load(file)
    run = loaded.start(values=True)
    found = []
    for step in loaded.steps():
        run.step(step)
        assert all(plan.ok for plan in run.plans)
        if step.kind == "compute":
            found.append(run.get(LOGITS)[0, 0])
    return np.concatenate(found)


def nmse(a: Any, b: Any) -> float:
    return float(np.square(a - b).sum() / np.square(b).sum())


@pytest.mark.parametrize("name", DECODERS)
def test_the_logits_of_each_architecture_are_llama_cpps(name: str) -> None:
    path, words = random_model(name), tokens(75)
    prompt, following = words[:70], words[70:]
    real = decode(path, prompt, following, CONTEXT)
    ours = logits(captured(path, prompt, following), path.parent)
    assert ours.shape == real.logits.shape == (75, VOCAB)
    assert nmse(ours[0], real.logits[0]) < 2e-5, "the first token attends to itself alone"
    assert nmse(ours, real.logits) < LIMITS.get(name, 1e-3)


@pytest.mark.parametrize("name", DECODERS)
def test_with_weights_in_f32_the_logits_of_each_architecture_are_llama_cpps(name: str) -> None:
    path, words = random_model(name, exact=True), tokens(75)
    prompt, following = words[:70], words[70:]
    real = decode(path, prompt, following, CONTEXT)
    ours = logits(captured(path, prompt, following), path.parent)
    assert nmse(ours[:70], real.logits[:70]) < 1e-7, "what is left are keys and values rounded to f16"
    assert nmse(ours[70:], real.logits[70:]) < 2e-5, "for a single token llama.cpp adds up the values in f16"


def test_a_sliding_window_and_several_batches_are_those_of_llama_cpp() -> None:
    path, words = random_model("gemma3"), tokens(303)
    scenario = captured(path, words[:300], words[300:], n_ubatch=128)
    assert list(scenario["graphs"]) == ["prompt", "prompt_2", "token"]
    assert [step for step in scenario["steps"] if isinstance(step, str)] == [
        *("reserve prompt", "alloc prompt", "compute prompt", "compute prompt"),
        *("reset", "alloc prompt_2", "compute prompt_2"),
        *("reset", "alloc token", *["compute token"] * 3),
    ]
    real = decode(path, words[:300], words[300:], CONTEXT)
    assert nmse(logits(scenario, path.parent), real.logits) < 1e-3


def test_inputs_are_those_of_the_tokens() -> None:
    path = random_model("llama")
    scenario = captured(path, [5, 6, 7], [8, 9], n_outputs=1)
    tensors = scenario["contexts"]["inputs"]["tensors"]
    inputs = {id: t for id, t in tensors.items() if "data" in t}
    assert {id.removesuffix("~1") for id in tensors.keys() - inputs} <= {
        "inp_embd", "inp_mixed_tokens", "inp_mixed_slots", "inp_mixed_embd"
    }, "what another kind of batch would read"  # fmt: skip
    assert inputs["inp_tokens"]["data"] == [5, 6, 7]
    assert [t["data"] for t in inputs.values() if t["type"] == "i32"][1] == [0, 1, 2]
    assert [t["data"] for t in inputs.values() if t["type"] == "i32"][-1] == [2], "only the last one has logits"
    assert [t["data"] for t in inputs.values() if t["type"] == "i64"] == [[0, 1, 2]] * 2, "cells of the KV cache"
    (later,) = (step["set"] for step in scenario["steps"] if isinstance(step, dict))
    assert [v for v in later.values() if isinstance(v, list)] == [[9], [4], [4], [4], [0]]
    meta = scenario["meta"]
    assert (meta["phase"], meta["n_tokens"], meta["n_outputs"]) == ("tokens", 3, 1)


def test_run_computes_what_the_command_captured(call: Call, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(random_model("gemma3").read_bytes())
    (tmp_path / "words").write_text("3, 1\n4 1\n5\n")
    ask = ("-c", "512", "--tokens", f"@{tmp_path / 'words'}", "--outputs", "1", "-o", tmp_path / "a.json.gz")
    assert call("capture", tmp_path / "m.gguf", *ask).status == 0
    result = call("run", "--json", tmp_path / "a.json.gz")
    assert result.status == 0
    found = np.array(json.loads(result.out)["outputs"][LOGITS]).ravel()
    assert nmse(found, decode(random_model("gemma3"), [3, 1, 4, 1, 5], [], CONTEXT).logits[-1]) < 1e-3
