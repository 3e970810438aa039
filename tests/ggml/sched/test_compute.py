"""Computing split by split: what is copied how, who may read what, and the values that come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAssert, GgmlFailed
from ggmltool.ggml.events import Computed, Event, TensorCopied
from ggmltool.ggml.tensor import FLAG_COMPUTE
from ggmltool.scenario.run.run import Run


def normal(*ne: int, seed: int, **more: Any) -> dict[str, Any]:
    return {"type": "f32", "ne": list(ne), "data": {"normal": {"seed": seed}}, **more}


def two_devices(nodes: dict[str, Any], backends: Sequence[str] = ("GPU0", "CPU"), **contexts: Any) -> dict[str, Any]:
    """A weight on each of two devices and an input."""
    return {
        "ggmltool": 1,
        "backends": list(backends),
        "contexts": {
            "gpu": {"buft": backends[0], "usage": "weights", "tensors": {"w": normal(8, 8, seed=1)}},
            "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"u": normal(8, 8, seed=2)}},
            "inputs": {"tensors": {"x": normal(8, 3, seed=3, flags=["input"])}},
            **contexts,
        },
        "graphs": {"g": {"nodes": nodes}},
    }


def started(source: dict[str, Any]) -> tuple[Run, list[Event]]:
    """A run after reserving and allocating, and the events from then on."""
    events: list[Event] = []
    run = ggmltool.load(source).start(events.append, values=True)
    assert run.reserve("g").ok
    assert run.alloc("g").ok
    events.clear()
    return run, events


def of(events: list[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def test_between_cuda_devices_bytes_go_by_themselves() -> None:
    second = {"buft": "CUDA1", "usage": "weights", "tensors": {"v": normal(8, 8, seed=4)}}
    nodes = {"a": "mul_mat(w, x)", "y": "mul_mat(v, a)"}
    run, events = started(two_devices(nodes, ["CUDA0", "CUDA1", "CPU"], second=second))
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


def test_an_input_that_is_no_output_is_gone_after_computing() -> None:
    run, _ = started(two_devices({"a": "mul_mat(w, x)", "b": "mul_mat(u, a)", "y": "mul_mat(w, b)"}))
    before = run.get("x")
    run.compute("g")
    assert not np.array_equal(run.get("x"), before)


def test_nodes_that_are_not_marked_for_computing_are_passed_over() -> None:
    run, _ = started(two_devices({"y": "scale(x, s=0)"}))
    graph, _ = run.newest["g"]
    before = run.get("x")
    graph.nodes[0].flags &= ~FLAG_COMPUTE
    run.compute("g")
    assert np.array_equal(run.get("y"), before), "scale in place of its input left it alone"


@pytest.mark.parametrize("bad", [8, -1])
def test_an_expert_that_is_not_there_is_ggmls_assertion(bad: int) -> None:
    source = two_devices({"y": "mul_mat_id(up, t, ids)"}) | {
        "ggml": "0.20.2",
        "backends": [{"name": "GPU0", "offload_min_batch": 1}, "CPU"],
    }
    source["contexts"]["cpu"]["tensors"]["up"] = normal(8, 8, 8, seed=4)
    source["contexts"]["inputs"]["tensors"] |= {
        "t": normal(8, 1, 1, seed=5, flags=["input"]),
        "ids": {"type": "i32", "ne": [2, 1], "flags": ["input"], "data": [[1, bad]]},
    }
    run, _ = started(source)
    with pytest.raises(GgmlAssert) as error:
        run.compute("g")
    assert error.value.condition == "id >= 0 && id < n_expert"


def test_without_an_eval_callback_a_split_is_computed_at_once_again() -> None:
    run, events = started(two_devices({"a": "mul_mat(w, x)", "b": "scale(a, s=2)"}))
    run.start().set_eval_callback(lambda t, ask: True)
    run.compute("g")
    run.start().set_eval_callback(None)
    run.compute("g")
    assert [e.nodes for e in of(events, Computed)] == [("a",), ("b",), ("a", "b")]
