"""Runs: steps in order on one scheduler, and what a run refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool


def doubled(**more: Any) -> dict[str, Any]:
    return {
        "ggmltool": 1,
        "backends": [{"name": "GPU0", "profile": "custom"}, "CPU"],
        "contexts": {
            "w": {
                "buft": "GPU0",
                "usage": "weights",
                "tensors": {"w": {"type": "f32", "ne": [4], "data": [1, 2, 3, 4]}},
            },
            "i": {"tensors": {"x": {"type": "f32", "ne": [4], "flags": ["input"], "data": {"fill": 2}}}},
        },
        "graphs": {"main": {"nodes": {"p": "mul(x, w)", "y": {"op": "sqr", "src": ["p"], "flags": ["output"]}}}},
    } | more


def test_compute_gives_the_flagged_outputs_four_dimensional() -> None:
    values = ggmltool.load(doubled()).compute()
    assert list(values) == ["y"]
    assert values["y"].shape == (1, 1, 1, 4)
    assert values["y"].dtype == np.float32
    assert values["y"].ravel().tolist() == [4, 16, 36, 64]


def test_a_node_that_ggml_overwrites_is_read_when_it_was_computed() -> None:
    scenario = ggmltool.load(doubled())
    plan = scenario.plan()
    assert plan.nodes[0].offset == plan.nodes[1].offset, "y is computed in place of p"
    values = scenario.compute(outputs=["p", "y", "w", "x"])
    assert values["p"].ravel().tolist() == [2, 4, 6, 8]
    assert values["w"].ravel().tolist() == [1, 2, 3, 4]
    assert values["x"].ravel().tolist() == [2, 2, 2, 2]


def test_a_run_gives_one_plan_for_each_reserve_and_alloc() -> None:
    plans = ggmltool.load(doubled()).run(["reserve main", "alloc main", "compute main", "reset", "alloc main"])
    assert [(p["step"], p["ok"]) for p in plans] == [("reserve", True), ("alloc", True), ("alloc", True)]
    assert plans[0]["nodes"][0]["buffer"] is None
    assert plans[1] == plans[2]


def test_a_run_ends_with_the_step_that_aborts() -> None:
    plans = ggmltool.load(doubled()).run(["alloc main", "alloc main", "reset"])
    assert [p["ok"] for p in plans] == [True, False]
    assert plans[1]["error"]["condition"] == "!sched->is_alloc"


def test_setting_a_tensor_without_memory_is_ggml_s_assertion() -> None:
    [plan] = ggmltool.load(doubled()).run([{"set": {"x": [1, 2, 3, 4]}}])
    assert plan["step"] == "set"
    assert plan["error"]["message"] == 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed'


def test_what_was_set_is_what_is_computed_with() -> None:
    steps = ["alloc main", {"set": {"x": [1, 0, 1, 0]}}, "compute main", {"get": ["y", "x"]}]
    scenario = ggmltool.load(doubled(steps=steps))
    run = scenario.start(values=True)
    *_, read = [run.step(step) for step in scenario.model.steps]
    assert isinstance(read, dict)
    assert read["y"].ravel().tolist() == [1, 0, 9, 0]
    assert read["x"].ravel().tolist() == [1, 0, 1, 0]


def test_compute_without_alloc_allocates_and_writes_the_data() -> None:
    scenario = ggmltool.load(doubled())
    run = scenario.start(values=True)
    run.compute("main")
    assert run.sched is not None
    assert run.sched.is_alloc
    assert run.get("y").ravel().tolist() == [4, 16, 36, 64]


def test_a_graph_that_is_not_there_is_a_mistake_with_the_nearest_name() -> None:
    with pytest.raises(ggmltool.ScenarioError, match='did you mean "main'):
        ggmltool.load(doubled()).plan("mian")


def test_planning_never_asks_for_cupy_and_computing_says_that_it_cannot() -> None:
    scenario = ggmltool.load(doubled(backends=[{"name": "GPU0", "profile": "custom", "engine": "cupy"}, "CPU"]))
    assert scenario.plan().ok
    with pytest.raises(ggmltool.GgmlError, match="cupy"):
        scenario.compute()


def test_plans_are_values() -> None:
    scenario = ggmltool.load(doubled())
    assert scenario.plan() == scenario.plan()
    assert scenario.plan() != scenario.plan(step="reserve")
    assert scenario.plan().as_dict()["buffer_sizes"] == {"GPU0": 128, "CPU": 32}


def test_memory_that_comes_apart_is_ggml_s_assertion_and_names_the_tensor() -> None:
    inputs = {f"x{i}": {"type": "f32", "ne": [8], "flags": ["input", *["output"] * (i % 2)]} for i in range(600)}
    nodes = {f"n{i}": f"repeat(x{i}, ne=[64])" for i in range(600)}
    scenario = ggmltool.load(
        {"ggmltool": 1, "contexts": {"i": {"tensors": inputs}}, "graphs": {"main": {"nodes": nodes}}}
    )
    error = dict(scenario.plan().error or ())
    assert error["message"] == 'GGML_ASSERT(chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks") failed'
    assert "when x510 was given back to CPU" in str(error["explanation"])


def test_a_set_that_the_next_alloc_undoes_is_known() -> None:
    """ggml writes to the tensor that was; `alloc` makes it anew, with the file's data."""
    source = {
        "ggmltool": 1,
        "contexts": {
            "kept": {"buft": "CPU", "tensors": {"k": {"type": "f32", "ne": [4], "data": {"fill": 1}}}},
            "in": {"tensors": {"x": {"type": "f32", "ne": [4], "data": {"fill": 2}}}},
        },
        "graphs": {"main": {"nodes": {"y": "mul(x, k)"}}},
    }
    run = ggmltool.load(source).start(values=True)
    run.alloc("main")
    run.set("x", {"fill": 3})
    assert run.undone == []
    run.compute("main")
    run.start().reset()
    run.set("x", {"fill": 3})
    run.set("k", {"fill": 5})
    run.alloc("main")
    assert run.undone == ["x"]
    run.compute("main")
    assert run.undone == []
    assert run.get("y")[0, 0, 0].tolist() == [10] * 4
