"""Comparing two backends: a kernel that is wrong on purpose is found at its node, whatever the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import yaml

import ggmltool
from ggmltool.ask.compare.computed import compare_backends
from ggmltool.ask.compare.record import ComparedGraph
from ggmltool.ask.ops.record import RESULT, op_example
from ggmltool.ggml.device import Backend
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import CUSTOM_OPS, KEY_NAMES, VIEW_OPS, Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.placed import broken, read_injections

load()

NAN, INF = float("nan"), float("inf")
KERNEL_OPS = [
    name
    for key, name in enumerate(KEY_NAMES[: len(Op)])
    if key in KERNELS and key not in CUSTOM_OPS and key not in VIEW_OPS
] + [name for name in KEY_NAMES[len(Op) :] if op_example(name) is not None]


def compared(source: dict[str, Any], second: GraphCompute | None = None, **more: Any) -> ComparedGraph:
    """The graph `main` on CUDA0 and on the CPU, whose kernels are `second`."""

    def compute(two: tuple[Backend, Backend]) -> GraphCompute:
        if second is None:
            return backend_graph_compute
        wrong = second
        return lambda b, nodes: wrong(b, nodes) if b is two[1] else backend_graph_compute(b, nodes)

    first, other = read_devices(["CUDA0", "CPU"])
    return compare_backends(ggmltool.load(source, ggml=NEWEST), "main", (first, other), compute, **more)


def wrong_at(id: str) -> GraphCompute:
    """Kernels that get the first element of one node wrong."""

    def compute(backend: Backend, nodes: Sequence[Tensor]) -> None:
        for n in nodes:
            backend_graph_compute(backend, [n])
            if n.id == id:
                values = HostArrays().raw(n)
                right = values[0, 0, 0, 0]
                values[0, 0, 0, 0] = right * 2 + 1000 if np.isfinite(right) else 0

    return compute


def between(name: str) -> dict[str, Any]:
    """An op's example with another node before it and one behind it that uses it."""
    source = yaml.safe_load(op_example(name) or "")
    tensors = source.get("contexts", {}).get("inputs", {}).get("tensors", {})
    nodes = source["graphs"]["main"]["nodes"]
    before = {"before": f"dup({next(iter(tensors))})"} if tensors else {}
    source["graphs"]["main"]["nodes"] = {**before, **nodes, "after": f"dup({RESULT})"}
    return dict(source)


@pytest.mark.parametrize("name", KERNEL_OPS)
def test_a_wrong_kernel_is_found_at_its_node(name: str) -> None:
    right = compared(between(name))
    assert right.over == []
    wrong = compared(between(name), wrong_at(RESULT))
    assert [n.id for n in wrong.over] == [RESULT]
    assert wrong.over[0].at == (0, 0, 0, 0)
    assert [n.id for n in wrong.nodes if n.end_to_end.at is not None] == [RESULT, "after"]


MLP: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "in": {
            "tensors": {
                "w": {"type": "f16", "ne": [8, 8], "data": {"normal": {"seed": 1}}},
                "x": {"type": "f32", "ne": [8, 3], "data": {"normal": {"seed": 2}}},
            }
        }
    },
    "graphs": {
        "main": {
            "nodes": {
                "n": "rms_norm(x, eps=1e-6)",
                "side": "sqr(x)",
                "h": "mul_mat(w, n)",
                "v": "reshape(h, ne=[24])",
                "y": "sqr(v)",
            },
            "expand": ["side", "y"],
        }
    },
}


def edited(value: float, at: str = "h") -> GraphCompute:
    """Kernels that put a value into the first element of one node."""

    def compute(backend: Backend, nodes: Sequence[Tensor]) -> None:
        backend_graph_compute(backend, nodes)
        for n in nodes:
            if n.id == at:
                HostArrays().raw(n)[0, 0, 0, 0] = value

    return compute


def test_an_error_is_followed_through_a_view() -> None:
    found = compared(MLP, wrong_at("h"))
    assert [n.id for n in found.over] == ["h"]
    assert [n.id for n in found.nodes if n.end_to_end.at is not None] == ["h", "y"]
    assert [n.index for n in found.nodes] == [0, 1, 2, 4]
    assert found.n_nodes == 5


def test_a_tolerance_is_of_an_op_and_its_types() -> None:
    found = compared(MLP)
    assert {n.id: n.tolerance for n in found.nodes} == {"n": 1e-7, "side": 1e-7, "h": 5e-4, "y": 1e-7}
    assert {n.tolerance for n in compared(MLP, tolerance=0.25).nodes} == {0.25}


BEHIND_A_PRODUCT: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "w": {"tensors": {"w": {"type": "q4_0", "ne": [64, 64], "data": {"normal": {"seed": 1, "std": 2}}}}},
        "in": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "data": {"normal": {"seed": 3}}}}},
    },
    "graphs": {"main": {"nodes": {"a": "mul_mat(w, x)", "b": "silu(a)", "y": "mul_mat(w, b)"}}},
}


def test_gelu_in_place_of_silu_is_found_behind_a_quantized_product() -> None:
    """U5: the error is within what a product may have, and yet the kernel is wrong."""
    scenario = ggmltool.load(BEHIND_A_PRODUCT)
    wrong = read_injections(["b=gelu"], scenario.model.graphs["main"], "<dict>")
    first, second = read_devices(["CUDA0", "CPU"])
    found = compare_backends(
        scenario, "main", (first, second), lambda two: broken(backend_graph_compute, two[1], wrong, "<dict>")
    )
    nodes = {n.id: n for n in found.nodes}
    assert [n.id for n in found.over] == ["b"]
    assert 1e-7 < nodes["b"].nmse < 5e-4
    assert nodes["y"].nmse == 0 < nodes["y"].end_to_end.nmse


INPLACE: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "in": {
            "tensors": {
                "x": {"type": "f32", "ne": [8, 4], "data": {"normal": {"seed": 1}}},
                "cache": {"type": "f32", "ne": [8, 6], "data": {"fill": 0.5}},
                "rows": {"type": "i64", "ne": [4], "data": [0, 2, 3, 5]},
            }
        }
    },
    "graphs": {
        "main": {
            "nodes": {
                "a": "sqr(x)",
                "b": {"op": "scale", "src": ["a"], "s": 3.0, "inplace": True},
                "kept": "set_rows(cache, b, rows)",
                "part": "view(kept, ne=[8, 2], nb=[32], offset=64)",
                "y": "sum_rows(part)",
            }
        }
    },
}


@pytest.mark.parametrize("wrong", ["a", "b", "kept", "y"])
def test_nodes_in_place_and_into_a_cache_are_judged_by_themselves(wrong: str) -> None:
    assert compared(INPLACE).over == []
    found = compared(INPLACE, wrong_at(wrong))
    assert [n.id for n in found.over] == [wrong]


def test_the_second_side_goes_on_with_its_own_values_whatever_was_tried_from_the_first_ones() -> None:
    second = wrong_at("a")
    end_to_end = {n.id: n.end_to_end for n in compared(INPLACE, second).nodes}
    whole = {n.id: n.end_to_end for n in compared(INPLACE, second, tests=["kept", "y"]).nodes}
    assert {id: end_to_end[id] for id in whole} == whole


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_on_one_side_only_is_an_error(value: float) -> None:
    found = compared(MLP, edited(value), tolerance=1e9)
    first = found.over[0]
    assert first.id == "h"
    assert (first.misplaced, first.not_finite) == (1, (0, 1))
    assert first.at == (0, 0, 0, 0)


def test_what_is_not_finite_in_the_same_places_agrees() -> None:
    source = {**MLP, "contexts": {"in": {"tensors": {**MLP["contexts"]["in"]["tensors"]}}}}
    values = [NAN, INF, -INF, *[1.0] * 21]
    source["contexts"]["in"]["tensors"]["x"] = {"type": "f32", "ne": [8, 3], "data": values}
    found = compared(source)
    assert found.over == []
    assert found.nodes[0].not_finite == (3, 3)


def test_with_test_nodes_only_they_are_compared() -> None:
    found = compared(MLP, wrong_at("h"), tests=["side", "y"])
    assert [(n.id, n.ok) for n in found.nodes] == [("side", True), ("y", False)]
    assert found.whole


def test_tensors_without_data_get_values_and_indices_stay_zero() -> None:
    source = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"t": "f16[8, 4]", "ids": "i32[3]", "unused": "f32[4]"}}},
        "graphs": {"main": {"nodes": {"y": "get_rows(t, ids)"}}},
    }
    found = compared(source, edited(0.0, "y"))
    assert (found.made_up, found.zero) == (["t"], ["ids"])
    assert found.nodes[0].largest_error > 0


def test_a_backend_that_does_not_run_an_op_is_named() -> None:
    source = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": "f32[8, 4, 4]"}}},
        "graphs": {"main": {"nodes": {"y": "win_part(x, w=2)", "z": "sqr(y)"}}},
    }
    assert [n.not_run_by for n in compared(source).nodes] == [("CUDA0",), ()]


def test_the_first_difference_of_integers_is_over_any_tolerance() -> None:
    source = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": {"type": "f32", "ne": [8], "data": {"arange": {}}}}}},
        "graphs": {"main": {"nodes": {"y": "argsort(x, order=desc)"}}},
    }
    assert compared(source, edited(6, "y"), tolerance=10.0).over[0].largest_error == 1
    assert compared(source, edited(7, "y")).over == []


def inject(*texts: str) -> ComparedGraph:
    scenario = ggmltool.load(MLP)
    wrong = read_injections(texts, scenario.model.graphs["main"], "<dict>")
    first, second = read_devices(["CUDA0", "CPU"])
    return compare_backends(
        scenario, "main", (first, second), lambda two: broken(backend_graph_compute, two[1], wrong, "<dict>")
    )


@pytest.mark.parametrize(
    ("text", "first"), [("n=norm", "n"), ("side=sqrt", "side"), ("y=silu", "y"), ("h=out_prod", None), ("y=ABS", "y")]
)
def test_the_kernel_of_another_op_is_found(text: str, first: str | None) -> None:
    if first is None:
        with pytest.raises(ScenarioError, match="the kernel of OUT_PROD cannot compute h, a MUL_MAT"):
            inject(text)
    else:
        assert inject(text).over[0].id == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h", "not an injection; expected NODE=OP"),
        ("=add", "not an injection"),
        ("hh=add", 'no node "hh"; did you mean "h'),
        ("h=mulmat", 'mulmat is not an op; did you mean "mul_mat"'),
        ("h=mul_mat", "h is a MUL_MAT already"),
        ("v=add", "v is a RESHAPE, which computes nothing"),
        ("h=view", "view has no kernel of its own"),
        ("h=unary", "unary has no kernel of its own"),
        ("x=add", 'no node "x"'),
    ],
)
def test_an_injection_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        inject(text)
