"""`compare` with what a real backend computed: the library, files, logs of llama.cpp's eval callback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ggmltool.ggml.releases.table import DEFAULT
from tests.cli.conftest import SAMPLES, Call
from tests.sources.eval_printer import eval_log
from tests.sources.library import needs_library
from tests.sources.random_weights import random_model
from tests.sources.test_decode import CONTEXT, captured, tokens

SAMPLE = SAMPLES / "wrong-kernel.yaml"


@pytest.mark.parametrize("sample", ["wrong-kernel", "transformer", "moe", "views", "inplace"])
def test_the_real_library_agrees_and_a_wrong_kernel_of_its_is_found(call: Call, sample: str) -> None:
    """U6: --with library."""
    result = call("compare", "--json", "--with", "library", sample)
    document = json.loads(result.out)
    assert (result.status, result.err) == (0, "")
    assert document["backends"][1] == {"name": "library", "engine": f"ggml {DEFAULT.name}"}
    if sample == "wrong-kernel":
        result = call("compare", "--json", "--with", "library", "--inject", "act=gelu", sample)
        assert (result.status, json.loads(result.out)["first_bad"]) == (1, "act")


def test_values_that_run_dumps_are_compared(call: Call, tmp_path: Path) -> None:
    """U6: --values."""
    assert call("run", "-q", "--dump", "there", SAMPLE).status == 0
    result = call("compare", "--values", "there", SAMPLE)
    assert (result.status, result.err) == (0, "")
    assert "8 nodes, equal values on both" in result.out
    file = tmp_path / "there" / "act.npy"
    values = np.load(file)
    values[0, 0, 1, 2] += 0.5
    np.save(file, values)
    (tmp_path / "there" / "up.npy").unlink()
    result = call("compare", "--values", "there", SAMPLE)
    assert result.status == 1
    assert "first node whose own kernel is off: act" in result.out
    assert "at [2, 1, 0, 0]" in result.out
    assert "1 node without values there: up" in result.out


def test_inputs_without_values_are_asked_for(call: Call, tmp_path: Path) -> None:
    source = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": "f32[4]"}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
    }
    np.save(tmp_path / "y.npy", np.array([1.0, 4, 9, 16]))
    result = call("compare", "--values", ".", "-", stdin=json.dumps(source).encode())
    assert result.status == 2
    assert "these tensors have values neither here nor in .: x" in result.err
    np.save(tmp_path / "x.npy", np.array([1.0, 2, 3, 4]))
    assert call("compare", "--values", ".", "-", stdin=json.dumps(source).encode()).status == 0


@needs_library
@pytest.mark.parametrize("model", ["llama", "gemma2", "deepseek2"])
def test_a_log_of_llama_cpp_agrees_and_tells_a_wrong_node(call: Call, tmp_path: Path, model: str) -> None:
    """U6: --eval-log, of the real llama.cpp on its CPU."""
    path = random_model(model)
    prompt = tokens(9)
    scenario = captured(path, prompt, [])
    for tensor in scenario["contexts"]["weights"]["tensors"].values():
        tensor["data"]["gguf"] = "model.gguf"
    (tmp_path / "model.gguf").write_bytes(path.read_bytes())
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(scenario))
    log = eval_log(path, prompt, CONTEXT)
    (tmp_path / "eval.log").write_text(log)
    result = call("compare", "--eval-log", "eval.log", file)
    assert result.status == 0, result.out
    assert "no node is off by more than its inputs explain" in result.out
    if model == "deepseek2":
        return  # the rounding decides which experts are taken, and so the log cannot tell what comes behind
    nodes = scenario["graphs"]["prompt"]["nodes"]
    id = next(id for id, n in nodes.items() if n["op"] == "glu" and id.endswith("-1"))
    function = nodes[id]["op_params"][0]
    nodes[id]["op_params"][0] = 2 if function != 2 else 1
    file.write_text(json.dumps(scenario))
    names = {1: "GEGLU", 2: "SWIGLU"}
    line = rf"({re.escape(id)} = \(f32\) +){names[function]}\("
    renamed = re.sub(line, rf"\g<1>{names[nodes[id]['op_params'][0]]}(", log)
    assert renamed != log
    (tmp_path / "eval.log").write_text(renamed)
    result = call("compare", "--json", "--eval-log", "eval.log", file)
    assert (result.status, json.loads(result.out)["first_bad"]) == (1, id)
