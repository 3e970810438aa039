"""Used experts copied by llama.cpp's callback (ggml 0.26): the real scheduler has one that does the same."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from tests.conformance.judged import Judged, judged
from tests.conformance.test_compute import nmse


def experts(ids: list[list[int]], first: str | None = None, **more: Any) -> dict[str, Any]:
    """A layer of experts on the CPU, computed on a GPU that offloads; `first` is a node before it."""
    nodes = {"v": first} if first else {}
    nodes |= {"a": f"mul_mat_id(up, {'v' if first else 'x'}, ids)", "b": "silu(a)", "y": "mul_mat_id(down, b, ids)"}
    weight = {"type": "f32", "ne": [16, 16, 8]}
    x = {"type": "f32", "ne": [16, 1, len(ids)], "flags": ["input"], "data": {"normal": {"seed": 3}}}
    chosen = {"type": "i32", "ne": [len(ids[0]), len(ids)], "flags": ["input"], "data": ids}
    return {
        "ggml": "0.26",
        "backends": [{"name": "CUDA0", "profile": "custom", "offload_min_batch": 1, "events": True}, "CPU"],
        "scheduler": {"copy_callback": "used_experts"},
        "contexts": {
            "w": {
                "buft": "CPU",
                "usage": "weights",
                "tensors": {name: {**weight, "data": {"normal": {"seed": i}}} for i, name in enumerate(("up", "down"))},
            },
            "in": {"tensors": {"x": x, "ids": chosen}},
        },
        "graphs": {"g": {"nodes": nodes}},
        "steps": ["alloc g", "compute g", {"get": ["y"]}],
        **more,
    }


def copies_of(j: Judged, name: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in j.trace() if line.startswith(f"set_tensor CUDA0 {name} ")]
    return [(int(offset), int(size)) for *_, offset, size in lines]


@pytest.mark.parametrize(
    ("ids", "copied"),
    [
        ([[1, 2], [5, 7]], [(1024, 2560), (5120, 1536), (7168, 1024)]),
        ([[0, 1], [2, 3]], [(0, 4096 + 512)]),
        ([[7, 7]], [(7168, 1024)]),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], [(0, 8192)]),
    ],
)
def test_only_experts_in_use_are_copied(ids: list[list[int]], copied: list[tuple[int, int]]) -> None:
    j = judged("0.26", experts(ids))
    assert copies_of(j, "CUDA0#up#0") == copied
    assert copies_of(j, "CUDA0#down#0") == copied
    assert nmse(j.values["y"], j.real.values[0]["y"]) < 1e-7


def test_the_ids_are_read_once_and_from_where_the_split_has_them() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]]))
    read = [line for line in j.trace() if line.startswith("get_tensor")]
    assert read == ["get_tensor CUDA0 CUDA0#ids#0 0 16", "get_tensor CUDA0 y 0 256"]


def test_without_the_callback_the_scheduler_copies_experts_whole() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]], scheduler={}))
    assert copies_of(j, "CUDA0#up#0") == [(0, 8192)]


def test_a_node_before_them_in_the_split_makes_all_experts_be_copied() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]], "reshape(x, ne=[16, 1, 2])"))
    assert copies_of(j, "CUDA0#up#0") == [(0, 8192)]


@pytest.mark.parametrize("scheduler", [{"parallel": True}, {"op_offload": False}])
def test_with_other_options_of_the_scheduler(scheduler: dict[str, Any]) -> None:
    judged("0.26", experts([[1, 2], [5, 7]], scheduler={"copy_callback": "used_experts", **scheduler}))


def test_each_computing_reads_the_ids_anew() -> None:
    steps = ["alloc g", "compute g", "compute g"]
    j = judged("0.26", experts([[1, 2], [5, 7]], steps=steps))
    assert sum(line.startswith("get_tensor") for line in j.trace()) == 2


def test_no_ids_are_no_copies() -> None:
    scenario = experts([[1, 2]])
    scenario["contexts"]["in"]["tensors"]["ids"] = {"type": "i32", "ne": [0, 1], "flags": ["input"]}
    scenario["graphs"]["g"]["nodes"] = {"y": "mul_mat_id(up, x, ids)"}
    j = judged("0.26", scenario)
    assert copies_of(j, "CUDA0#up#0") == []


def test_an_expert_that_is_not_there_is_llama_cpps_assertion() -> None:
    with pytest.raises(ggmltool.GgmlError, match="id >= 0 && id < n_expert") as raised:
        ggmltool.load({"ggmltool": 1, **experts([[1, 8]])}).compute()
    assert "sched_copy_experts" in str(raised.value)


def test_a_release_without_the_callback_says_since_when_it_is_there() -> None:
    with pytest.raises(ggmltool.ScenarioError, match="copy_callback"):
        ggmltool.load({"ggmltool": 1, **experts([[1, 2]]), "ggml": "0.21"})
