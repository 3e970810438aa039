"""The scheduler of March 2025 where it does otherwise than today's; what it decides is compared with golden plans."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.debug_assert import DebugAssert
from ggmltool.ggml.events import Event, TensorCopied, TensorWritten
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.samples import samples_folder

Spec = dict[str, Any]
GPU: Spec = {"name": "G0", "profile": "custom"}


def start(tensors: Spec, graphs: Spec, ggml: str = "2025-03", **more: Any) -> Run:
    scenario = {
        "ggmltool": 1,
        "backends": [{**GPU, **more.pop("gpu", {})}, "CPU"],
        "contexts": {
            "w": {"buft": "G0", "usage": "weights", "tensors": {"w": "f32[64, 64]"}},
            "c": {"tensors": tensors},
        },
        "graphs": {name: {"nodes": nodes} for name, nodes in graphs.items()},
        **more,
    }
    return ggmltool.load(scenario, ggml=ggml).start()


def inputs(n: int) -> Spec:
    return {f"x{i}": {"type": "f32", "ne": [64, 4], "flags": ["input"]} for i in range(n)}


def products(n: int) -> Spec:
    return {f"p{i}": f"mul_mat(w, x{i})" for i in range(n)}


@pytest.mark.parametrize(("ggml", "copies"), [("2025-03", [0, 0, 1, 1]), ("0.20.2", [0, 1, 2, 3])])
def test_the_next_copy_comes_after_computing_not_with_every_alloc(ggml: str, copies: list[int]) -> None:
    run = start(inputs(1), {"g": products(1)}, ggml, scheduler={"parallel": True})
    used = []
    for computes in (False, True, False, False):
        plan = run.alloc("g")
        used.append(int(str(plan.nodes[0].src[1]).rpartition("#")[2]))
        if computes:
            run.compute("g")
        run.start().reset()
    assert used == copies


def test_a_split_that_is_full_ends_before_the_next_node() -> None:
    plan = start(inputs(21), {"g": products(21)}).alloc("g")
    assert [len(split.inputs) for split in plan.splits] == [10, 10, 1]


def test_nobody_counts_what_a_node_needs_before_the_split_is_full() -> None:
    nodes = {**products(9), "last": "add(x9, x10)"}
    plan = start(inputs(11), {"g": nodes}, gpu={"supports": {"only": ["mul_mat", "add"]}}).alloc("g")
    error = dict(plan.error or ())
    assert error["condition"] == "n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS"
    assert start(inputs(11), {"g": nodes}, "0.20.2").alloc("g").ok


def test_a_graph_goes_onto_another_without_a_reset() -> None:
    graphs = {"one": products(1), "two": products(2)}
    run = start(inputs(2), graphs)
    assert run.alloc("one").ok
    assert run.alloc("two").ok
    today = start(inputs(2), graphs, "0.20.2")
    assert today.alloc("one").ok
    assert dict(today.alloc("two").error or ())["condition"] == "!sched->is_alloc"


def test_a_leaf_that_nobody_uses_is_compared_by_a_debug_build_only() -> None:
    def of(n: int) -> Spec:
        tensors = {name: {"type": "f32", "ne": [k], "flags": ["input"]} for name, k in (("x", n), ("y", 4))}
        return {"backends": ["CPU"], "contexts": {"c": {"tensors": tensors}}}

    graphs = {"g": {"nodes": {"z": "relu(y)"}, "expand": ["z", "x"]}}
    small, large = (
        ggmltool.load({"ggmltool": 1, "ggml": "2025-03", **of(n), "graphs": graphs}).start() for n in (4, 64)
    )
    assert small.alloc("g").ok
    small.start().reset()
    large.start_behind(small)
    plan = large.alloc("g")
    assert isinstance(large.failure(plan), DebugAssert)
    assert "release build" in large.failure(plan).explanation


@pytest.mark.parametrize(("ggml", "whole"), [("2025-03", True), ("0.20.2", False)])
def test_experts_are_copied_whole(ggml: str, whole: bool) -> None:
    heard: list[Event] = []
    scenario = ggmltool.load(
        {
            "ggmltool": 1,
            "backends": [{**GPU, "offload_min_batch": 1}, "CPU"],
            "contexts": {
                "w": {
                    "buft": "CPU",
                    "usage": "weights",
                    "tensors": {"w": {"type": "f32", "ne": [8, 8, 4], "data": {"fill": 1}}},
                },
                "c": {
                    "tensors": {
                        "x": {"type": "f32", "ne": [8, 1, 2], "flags": ["input"], "data": {"fill": 1}},
                        "i": {"type": "i32", "ne": [1, 2], "flags": ["input"], "data": [[1], [1]]},
                    }
                },
            },
            "graphs": {"g": {"nodes": {"y": "mul_mat_id(w, x, i)"}}},
        },
        ggml=ggml,
    )
    run = scenario.start(heard.append, values=True)
    assert run.alloc("g").ok
    run.compute("g")
    copies = [e.nbytes for e in heard if isinstance(e, TensorCopied) and e.src == "w"]
    parts = [e for e in heard if isinstance(e, TensorWritten) and e.tensor == "G0#w#0"]
    assert copies == ([8 * 8 * 4 * 4] if whole else [])
    assert bool(parts) or whole


def test_the_sample_says_what_a_debug_build_logs() -> None:
    plans = ggmltool.load(samples_folder() / "march-2025.yaml").run()
    assert [bool(plan["debug_log"]) for plan in plans] == [True, False, True, True]
    assert "debug_log" not in ggmltool.load(samples_folder() / "outgrown.yaml").plan().as_dict()
