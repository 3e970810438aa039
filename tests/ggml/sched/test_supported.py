"""A backend that is to compute what its device does not support ends in ggml's own words, when it computes."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from tests.needs import library

BLAS = ("abort", "ggml_backend_blas_graph_compute", "ggml_backend_blas_graph_compute: unsupported op SCALE")
CUDA = ("abort", "ggml_cuda_graph_evaluate_and_capture", "GGML_ASSERT(ok) failed")


def scenario(backends: list[Any], node: dict[str, Any], ggml: str = "0.20.2", ne: int = 4) -> Any:
    """One node over a matrix `x` in the CPU's memory."""
    tensors = {"x": {"type": "f32", "ne": [ne, ne], "data": {"fill": 1}}}
    return ggmltool.load(
        {
            "ggmltool": 1,
            "backends": backends,
            "contexts": {"w": {"buft": "CPU", "tensors": tensors}},
            "graphs": {"main": {"nodes": {"y": {"src": ["x"], **node}}}},
        },
        ggml=ggml,
    )


def failure(scenario: Any, values: bool = True) -> tuple[list[Plan], Any]:
    """The plans of the scenario's steps, and the error of the last."""
    run = scenario.start(values=values)
    plans = run.run(scenario.model.steps)
    return plans, dict(plans[-1].error or ())


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("BLAS", BLAS),
        ({"name": "NPU", "supports": {"only": ["mul_mat"]}}, ("abort", "graph_compute", "unsupported op SCALE")),
        ({"name": "CUDA0", "supports": {"except": ["scale"]}}, CUDA),
        (
            {"name": "Metal", "supports": {"except": ["scale"]}},
            ("abort", "ggml_metal_op_encode_impl", "unsupported op"),
        ),
    ],
)
def test_ggml_ends_when_it_computes_what_the_user_assigned(backend: Any, expected: tuple[str, str, str]) -> None:
    name = backend if isinstance(backend, str) else backend["name"]
    loaded = scenario([backend, "CPU"], {"op": "scale", "s": 2.0, "backend": name})
    plans, error = failure(loaded)
    assert [(p.step, p.ok) for p in plans] == [("reserve", True), ("alloc", True), ("compute", False)]
    assert (error["kind"], error["function"], error["message"]) == expected
    assert f"y (SCALE) is assigned to {name} by the user" in error["explanation"]
    assert "(CPU)" in error["explanation"]


def test_the_line_that_ggml_prints_before_it_asserts_is_told() -> None:
    backend = {"name": "CUDA0", "supports": {"except": ["scale"]}}
    _, error = failure(scenario([backend, "CPU"], {"op": "scale", "s": 2.0, "backend": "CUDA0"}))
    printed = "ggml_cuda_graph_evaluate_and_capture: op not supported y (SCALE)"
    assert f"before it, ggml prints: {printed}" in error["explanation"]


def test_in_2024_the_assertion_says_where_it_stands() -> None:
    loaded = scenario(["CUDA0", "CPU"], {"op": "elu", "backend": "CUDA0"}, "2024-01")
    plans, error = failure(loaded)
    assert [(p.step, p.ok) for p in plans] == [("measure", True), ("compute", False)]
    assert error["message"] == "GGML_ASSERT: ggml-cuda.cu:10761: ok"


@pytest.mark.parametrize("step", ["reserve", "alloc"])
def test_a_plan_says_it_and_keeps_what_was_planned(step: str) -> None:
    plan = scenario(["BLAS", "CPU"], {"op": "scale", "s": 2.0, "backend": "BLAS"}).plan(step=step)
    error = dict(plan.compute_error)
    assert plan.ok
    assert (error["kind"], error["function"], error["message"]) == BLAS
    assert error["explanation"].endswith(f"{step} main itself succeeds: this comes when it is computed")
    assert [(n.id, n.backend, n.cause) for n in plan.nodes] == [("y", "BLAS", "usr")]


def test_blas_computes_a_product_that_it_calls_too_small() -> None:
    loaded = scenario(["BLAS", "CPU"], {"op": "mul_mat", "src": ["x", "x"], "backend": "BLAS"})
    plans, _ = failure(loaded)
    assert [p.ok for p in plans] == [True, True]
    assert loaded.plan().compute_error is None


def test_types_that_a_gpu_refuses_give_no_values() -> None:
    node = {"op": "cast", "type": "f16", "backend": "CUDA0"}
    rules = [{"op": "cpy", "result": {"types": ["f32"]}}]
    loaded = scenario([{"name": "CUDA0", "supports": {"profile": True, "rules": rules}}, "CPU"], node)
    _, error = failure(loaded)
    assert error["kind"] == "failed"
    assert error["message"].startswith("CUDA0 does not support y (CPY): ")


def test_what_computes_nothing_may_be_assigned_anywhere() -> None:
    loaded = scenario(["BLAS", "CPU"], {"op": "reshape", "ne": [16], "backend": "BLAS"})
    assert loaded.plan().compute_error is None
    assert all(p.ok for p in failure(loaded)[0])


def test_the_real_library_is_told_to_end_so_too() -> None:
    """A mock of the oracle computes everything: it says how the backend that it stands for would end."""
    library("0.20.2")
    loaded = scenario(["BLAS", "CPU"], {"op": "scale", "s": 2.0, "backend": "BLAS"})
    assert loaded.verify(values=True).facts.differences == []
