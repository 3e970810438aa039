"""`supports`: the op × device matrix, with the reason of each no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("sample", ["transformer", "offload", "gemma-3-270m-ngl9"])
def test_the_backend_that_gets_a_node_never_said_no_and_offloads_are_those_of_the_plan(call: Call, sample: str) -> None:
    path = next(SAMPLES.glob(f"{sample}.*"))
    supports = json.loads(call("supports", "--json", path).out)
    plan = json.loads(call("plan", "--json", path).out)
    nodes = {n["id"]: n for n in plan["nodes"]}
    assert [n["id"] for n in supports["nodes"]] == list(nodes)
    for n in supports["nodes"]:
        planned = nodes[n["id"]]
        assert n["backend"] == planned["backend"]
        given = n["answers"][n["backend"]]["answer"]
        assert given != "no"
        assert (given == "offload") == (planned["cause"] == "1.off")
    assert any(n["cause"] == "1.off" for n in plan["nodes"]) == (sample != "transformer")


def test_each_no_says_which_rule_it_was(call: Call) -> None:
    text = {
        "ggmltool": 1,
        "backends": ["CUDA0", "BLAS", "CPU"],
        "contexts": {
            "weights": {"buft": "CUDA0", "usage": "weights", "tensors": {"w": "q4_0[256, 64]"}},
            "inputs": {"tensors": {"x": "f16[256, 4]", "y": "f32[256, 4]"}},
        },
        "graphs": {"main": {"nodes": {"p": "mul_mat(w, y)", "q": "mul_mat(w, x)", "t": "silu(y)"}}},
    }
    result = call("supports", "--json", "-", stdin=json.dumps(text).encode())
    answers = {n["id"]: n["answers"] for n in json.loads(result.out)["nodes"]}
    assert answers["p"]["CUDA0"] == {"answer": "yes"}
    assert answers["p"]["CPU"]["copies"] == [
        {"slot": 0, "id": "w", "why": "CUDA0 is not host memory, nor one of its own buffer types (CPU)"}
    ]
    assert answers["p"]["BLAS"]["why_not"].startswith("too small to be worth it: ne[1] of the result is 4")
    assert answers["q"]["CUDA0"]["why_not"] == "source 1 is f16, and source 0 is q4_0, not f16 too"
    assert answers["q"]["BLAS"]["why_not"] == "source 1 is f16, not f32"
    assert answers["t"]["BLAS"]["why_not"] == "SILU is not supported"
    assert answers["t"]["CUDA0"] == {"answer": "yes"}


def test_a_weight_on_another_cuda_device_is_a_reason(call: Call) -> None:
    text = (
        b"ggmltool: 1\nbackends: [CUDA0, CUDA1, CPU]\n"
        b"contexts: {w: {buft: CUDA1, usage: weights, tensors: {a: 'q4_0[256, 64]'}}, i: {tensors: {x: 'f32[256]'}}}\n"
        b"graphs: {main: {nodes: {y: 'mul_mat(a, x)'}}}\n"
    )
    (node,) = json.loads(call("supports", "--json", "-", stdin=text).out)["nodes"]
    assert node["answers"]["CUDA0"]["why_not"] == "source 0 lies in CUDA1, memory of another CUDA device"
    assert node["answers"]["CUDA1"] == {"answer": "yes"}


@pytest.mark.parametrize("by", ["op", "node"])
def test_sixteen_backends_have_room_in_a_narrow_terminal(call: Call, by: str) -> None:
    names = ", ".join(f"Vulkan{i}" for i in range(15))
    text = f"ggmltool: 1\nbackends: [{names}, CPU]\ncontexts: {{c: {{tensors: {{x: 'f32[4]'}}}}}}\n"
    text += "graphs: {main: {nodes: {y: sqr(x)}}}\n"
    result = call("supports", "--by", by, "-", stdin=text.encode(), columns=80)
    assert max(map(len, result.out.splitlines())) <= 80
    check_golden(GOLDEN / f"supports_sixteen_by_{by}.txt", result.out)


def test_answers_of_a_real_device_say_what_they_rest_on(call: Call, tmp_path: Path) -> None:
    """U16."""
    head = "backend_name,op_name,op_params,test_mode,supported,error_message,backend_reg_name\n"
    cases = (
        'NPU,SILU,"type=f32,ne_a=[8,2,1,1],v=0",support,1,,NPU\n'
        'NPU,SQR,"type=f32,ne=[4,2,1,1]",support,1,,NPU\n'
        'NPU,SQR,"type=f32,ne=[64,2,1,1]",support,0,,NPU\n'
        'NPU,ABS,"type=f16,ne_a=[8,2,1,1],v=0",support,1,,NPU\n'
    )
    (tmp_path / "npu.csv").write_text(head + cases)
    (tmp_path / "graph.yaml").write_text(
        "ggmltool: 1\nbackends: [{name: NPU0, supports: {csv: npu.csv}}, CPU]\n"
        'contexts: {i: {tensors: {x: "f32[8, 2]"}}}\n'
        "graphs: {main: {nodes: {a: silu(x), b: sqr(a), c: abs(b), v: transpose(c)}}}\n"
    )
    out = call("supports", tmp_path / "graph.yaml", columns=100).out
    assert out.endswith(
        "NPU0 does not support\n"
        "  1 ABS: test-backend-ops has no case with these types\n"
        "    c\n"
        "\n"
        "NPU0 answers as test-backend-ops found\n"
        "  1 SILU: the same case was tested\n"
        "    a\n"
        "  1 SQR: taken from the cases with these types and the nearest rows\n"
        "    b\n"
        "  1 ABS: no case has these types, assumed not supported\n"
        "    c\n"
    )
    nodes = json.loads(call("supports", "--json", tmp_path / "graph.yaml").out)["nodes"]
    measured = [node["answers"]["NPU0"].get("measured") for node in nodes]
    assert measured == [
        {"basis": "exact", "yes": 1, "of": 1},
        {"basis": "nearest", "yes": 1, "of": 1},
        {"basis": "no_case", "yes": 0, "of": 0},
        None,
    ]
