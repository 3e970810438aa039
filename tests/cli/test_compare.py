"""`compare`: two backends node by node, the first bad node, and the exit status."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import SAMPLES, Call

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
    text = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": "f32[8]"}}},
        "graphs": {"main": {"nodes": {"y": "map_custom1(x)"}}},
    }
    result = call("compare", "-", stdin=json.dumps(text).encode())
    assert result.status == 1
    assert "y" in result.err
    assert "Traceback" not in result.err


def test_an_engine_that_there_is_not_is_refused(call: Call) -> None:
    text = {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "engine": "cupy"}, "CPU"],
        "contexts": {"in": {"tensors": {"x": "f32[8]"}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
    }
    result = call("compare", "-", stdin=json.dumps(text).encode())
    assert (result.status, result.out) == (1, "")
    assert "CUDA0 has the engine cupy" in result.err
    assert call("compare", "--backends", "CPU,Metal", "-", stdin=json.dumps(text).encode()).status == 0
