"""Computing split by split: what is copied how, who may read what, and the values that come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAssert, GgmlFailed
from ggmltool.ggml.events import Computed, Event, TensorCopied, TensorWritten
from ggmltool.ggml.tensor import FLAG_COMPUTE
from ggmltool.scenario.run.run import Run


def normal(*ne: int, seed: int, **more: Any) -> dict[str, Any]:
    return {"type": "f32", "ne": list(ne), "data": {"normal": {"seed": seed}}, **more}


def two_devices(nodes: dict[str, Any], *, backends: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """A weight on each of two devices and an input."""
    backends = backends or ["GPU0", "CPU"]
    first = backends[0] if isinstance(backends[0], str) else backends[0]["name"]
    return {
        "ggmltool": 1,
        "backends": backends,
        "contexts": {
            "gpu": {"buft": first, "usage": "weights", "tensors": {"w": normal(8, 8, seed=1)}},
            "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"u": normal(8, 8, seed=2)}},
            "inputs": {"tensors": {"x": normal(8, 3, seed=3, flags=["input"])}},
        },
        "graphs": {"g": {"nodes": nodes}},
        **more,
    }


LAYERS = {"a": "mul_mat(w, x)", "b": "mul_mat(u, a)", "y": "mul_mat(w, b)"}


def started(source: dict[str, Any], *steps: str) -> tuple[Run, list[Event]]:
    """A run after reserving and allocating, and the events from then on."""
    events: list[Event] = []
    run = ggmltool.load(source).start(events.append, values=True)
    for step in steps or ("reserve", "alloc"):
        assert getattr(run, step)("g").ok
    events.clear()
    return run, events


def of(events: list[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def test_the_values_are_those_of_the_same_graph_on_one_device() -> None:
    split = ggmltool.load(two_devices(LAYERS)).compute()["y"]
    alone = two_devices(LAYERS, backends=["CPU"])
    whole = ggmltool.load(alone).compute()["y"]
    assert split.shape == (1, 1, 3, 8)
    np.testing.assert_allclose(split, whole, rtol=1e-6)


def test_between_devices_that_cannot_copy_bytes_go_by_way_of_the_host() -> None:
    source = two_devices({"a": "mul_mat(w, x)", "y": "mul_mat(v, a)"}, backends=["GPU0", "GPU1", "CPU"])
    source["contexts"]["second"] = {"buft": "GPU1", "usage": "weights", "tensors": {"v": normal(8, 8, seed=4)}}
    run, events = started(source)
    run.compute("g")
    assert [(e.src, e.how, e.src_buft, e.dst_buft) for e in of(events, TensorCopied)] == [
        ("x", "set", "CPU", "GPU0"),
        ("a", "bounce", "GPU0", "GPU1"),
    ]


def test_between_cuda_devices_bytes_go_by_themselves() -> None:
    source = two_devices({"a": "mul_mat(w, x)", "y": "mul_mat(v, a)"}, backends=["CUDA0", "CUDA1", "CPU"])
    source["contexts"]["second"] = {"buft": "CUDA1", "usage": "weights", "tensors": {"v": normal(8, 8, seed=4)}}
    run, events = started(source)
    run.compute("g")
    assert [(e.src, e.how) for e in of(events, TensorCopied)] == [("x", "set"), ("a", "async")]


def test_a_device_cannot_read_what_was_not_copied_to_it() -> None:
    source = two_devices({"y": {"op": "mul_mat", "src": ["u", "x"], "backend": "GPU0"}})
    source["contexts"]["cpu"]["tensors"]["u"]["backend"] = "GPU0"
    run, _ = started(source)
    with pytest.raises(GgmlFailed, match="GPU0 cannot read u, which lies in CPU"):
        run.compute("g")


def test_who_watches_sees_every_node_in_order_views_too() -> None:
    run, _ = started(two_devices({"a": "mul_mat(w, x)", "v": "view(a, ne=[8])", "b": "sin(v)"}))
    seen: list[str] = []
    run.compute("g", lambda t: seen.append(t.id))
    assert seen == ["a", "v", "b"]


def test_computing_again_copies_and_computes_again() -> None:
    source = two_devices(LAYERS)
    source["contexts"]["inputs"]["tensors"]["x"]["flags"] = ["input", "output"]
    run, events = started(source)
    run.compute("g")
    first = run.get("y")
    n = len(events)
    run.compute("g")
    assert len([e for e in events[n:] if isinstance(e, Computed)]) == 3
    assert np.array_equal(run.get("y"), first)


def test_an_input_that_is_no_output_is_gone_after_computing() -> None:
    run, _ = started(two_devices(LAYERS))
    before = run.get("x")
    run.compute("g")
    assert not np.array_equal(run.get("x"), before)


def test_a_graph_that_is_not_allocated_is_allocated_first() -> None:
    run, _ = started(two_devices(LAYERS), "reserve")
    assert run.sched is not None
    assert not run.sched.is_alloc
    run.compute("g")
    assert run.sched.is_alloc


def test_new_input_gives_new_values() -> None:
    scenario = ggmltool.load(two_devices({"y": "scale(x, s=2)"}, steps=["alloc g", "compute g", {"get": ["y"]}]))
    run = scenario.start(values=True)
    run.alloc("g")
    (step,) = scenario.steps([{"set": {"x": {"fill": 3}}}])
    run.step(step)
    run.compute("g")
    assert np.array_equal(run.get("y"), np.full((1, 1, 3, 8), 6, np.float32))


def test_nodes_that_are_not_marked_for_computing_are_passed_over() -> None:
    run, _ = started(two_devices({"y": "scale(x, s=0)"}))
    graph, _ = run.newest["g"]
    before = run.get("x")
    graph.nodes[0].flags &= ~FLAG_COMPUTE
    run.compute("g")
    assert np.array_equal(run.get("y"), before), "scale in place of its input left it alone"


def test_empty_nodes_are_passed_over() -> None:
    source = two_devices({"y": "sin(e)", "z": "sin(x)"})
    source["contexts"]["inputs"]["tensors"]["e"] = {"type": "f32", "ne": [8, 0], "flags": ["input"]}
    assert ggmltool.load(source).compute(outputs=["y", "z"])["y"].size == 0


def experts(ids: list[list[int]], **more: Any) -> dict[str, Any]:
    return {
        "ggmltool": 1,
        "ggml": "0.20.2",
        "backends": [{"name": "GPU0", "offload_min_batch": 1}, "CPU"],
        "contexts": {
            "w": {"buft": "CPU", "usage": "weights", "tensors": {"up": normal(16, 16, 8, seed=1)}},
            "inputs": {
                "tensors": {
                    "x": normal(16, 1, len(ids), seed=2, flags=["input"]),
                    "ids": {"type": "i32", "ne": [len(ids[0]), len(ids)], "flags": ["input"], "data": ids},
                }
            },
        },
        "graphs": {"g": {"nodes": {"y": "mul_mat_id(up, x, ids)"}}},
        **more,
    }


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
    run, events = started(experts(ids))
    run.compute("g")
    written = [e for e in of(events, TensorWritten) if not e.get]
    assert [(e.offset, e.nbytes) for e in written] == copied


def test_experts_not_in_use_keep_what_was_there() -> None:
    run, _ = started(experts([[1, 2]]))
    run.compute("g")
    assert run.sched is not None
    split = run.sched.splits[0]
    copy = run.sched.copy_of(split.inputs[0], 0)
    assert copy.buffer is not None
    start = copy.data - copy.buffer.base
    bytes_ = copy.buffer.memory[start : start + copy.nbytes].reshape(8, 1024)
    assert [bool(expert.any()) for expert in bytes_] == [False, True, True, True, False, False, False, False]
    assert bytes_[3, 512:].sum() == 0


def test_the_values_do_not_depend_on_where_experts_are() -> None:
    ids = [[1, 2], [5, 7]]
    there = ggmltool.load(experts(ids)).compute()["y"]
    here = ggmltool.load(experts(ids, backends=["CPU"])).compute()["y"]
    np.testing.assert_allclose(there, here, rtol=1e-6)


@pytest.mark.parametrize("bad", [8, -1])
def test_an_expert_that_is_not_there_is_ggmls_assertion(bad: int) -> None:
    run, _ = started(experts([[1, bad]]))
    with pytest.raises(GgmlAssert) as error:
        run.compute("g")
    assert error.value.condition == "id >= 0 && id < n_expert"


def test_an_eval_callback_that_refuses_ends_its_split_only() -> None:
    run, events = started(two_devices({"a": "mul_mat(w, x)", "b": "scale(a, s=2)", "c": "mul_mat(u, b)"}))
    asked: list[tuple[str, bool]] = []

    def callback(t: Any, ask: bool) -> bool:
        asked.append((t.id, ask))
        return ask and t.id == "a"

    run.start().set_eval_callback(callback)
    run.compute("g")
    assert asked == [("a", True), ("a", False), ("c", True)]
    assert [e.nodes for e in of(events, Computed)] == [("a",), ("c",)]


def test_without_an_eval_callback_a_split_is_computed_at_once_again() -> None:
    run, events = started(two_devices({"a": "mul_mat(w, x)", "b": "scale(a, s=2)"}))
    run.start().set_eval_callback(lambda t, ask: True)
    run.compute("g")
    run.start().set_eval_callback(None)
    run.compute("g")
    assert [e.nodes for e in of(events, Computed)] == [("a",), ("b",), ("a", "b")]
