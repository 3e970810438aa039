"""The plan as a value, and the debug print as records."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.plan import CopyPlan, LeafPlan, SplitPlan
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.sched.debug import DebugSource
from ggmltool.ggml.sched.snapshot import failed_plan

SOURCE: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["GPU0", "CPU"],
    "contexts": {
        "w": {"buft": "GPU0", "usage": "weights", "tensors": {"w": "f32[8, 8]"}},
        "inputs": {"tensors": {"x": {"type": "f32", "ne": [8, 3], "flags": ["input"]}}},
    },
    "graphs": {"main": {"nodes": {"h": "mul_mat(w, x)", "v": "view(h, ne=[8])", "y": "sqr(v)"}}},
}


def test_a_plan_after_alloc_has_every_field_of_the_specification() -> None:
    plan = ggmltool.load(SOURCE).plan()
    assert (plan.graph, plan.step, plan.ok, plan.ggml) == ("main", "alloc", True, DEFAULT.name)
    assert plan.backends == (("GPU0", "GPU0"), ("CPU", "CPU"))
    assert plan.splits == (SplitPlan(0, "GPU0", 0, 3, ("x",)),)
    assert plan.leafs == (
        LeafPlan(0, "w", "GPU0", "GPU0", "weights", 0, 0),
        LeafPlan(1, "x", "CPU", "CPU", "compute", 0, 0),
    )
    assert plan.copies == (CopyPlan("GPU0#x#0", "x", "GPU0", 0, "GPU0", 0, 0),)
    assert dict(plan.buffer_sizes) == {"GPU0": 256, "CPU": 96}
    assert plan.log == ()
    h = plan.nodes[0].__struct_fields__
    assert {name: getattr(plan.nodes[0], name) for name in h} == {
        "index": 0,
        "id": "h",
        "name": "h",
        "op": "MUL_MAT",
        "op_desc": "MUL_MAT",
        "type": "f32",
        "ne": (8, 3, 1, 1),
        "nb": (4, 32, 96, 96),
        "backend": "GPU0",
        "cause": "1.wgt0",
        "split": 0,
        "use_count": 1,
        "src": ("w", "GPU0#x#0"),
        "buffer": "GPU0",
        "usage": "compute",
        "chunk": 0,
        "offset": 128,
        "alloc_size": 96,
    }


def test_a_view_lies_in_its_root_and_has_no_size_of_its_own() -> None:
    v = ggmltool.load(SOURCE).plan().nodes[1]
    assert (v.buffer, v.offset, v.alloc_size, v.cause) == ("GPU0", 128, None, "4.vsrc")


def test_a_plan_after_reserve_has_sizes_and_no_places() -> None:
    plan = ggmltool.load(SOURCE).plan(step="reserve")
    assert dict(plan.buffer_sizes) == {"GPU0": 256, "CPU": 96}
    assert all((n.buffer, n.usage, n.chunk, n.offset) == (None,) * 4 for n in plan.nodes)
    assert [n.alloc_size for n in plan.nodes] == [96, None, 32]
    assert plan.leafs[0].buffer == "GPU0"
    assert plan.leafs[1].buffer is None
    assert plan.copies[0].offset is None


def test_plans_of_the_same_scenario_are_equal_values() -> None:
    scenario = ggmltool.load(SOURCE)
    assert scenario.plan() == scenario.plan()
    assert scenario.plan() != scenario.plan(step="reserve")
    with pytest.raises(AttributeError):
        scenario.plan().ok = False  # type: ignore[misc]


def test_as_json_a_plan_keeps_the_order_of_the_specification() -> None:
    text = json.dumps(ggmltool.load(SOURCE).plan().as_dict())
    back = json.loads(text)
    assert list(back) == [
        "ggmltool", "kind", "ggml", "graph", "step", "ok", "backends", "splits", "nodes", "leafs", "copies",
        "buffer_sizes", "log",
    ]  # fmt: skip
    assert back["nodes"][0]["ne"] == [8, 3, 1, 1]
    assert back["buffer_sizes"] == {"GPU0": 256, "CPU": 96}


def test_pipeline_copies_are_listed_graph_inputs_first() -> None:
    plan = ggmltool.load(SOURCE | {"scheduler": {"parallel": True}}).plan()
    assert [(c.name, c.backend, c.copy) for c in plan.copies] == [
        ("x", "CPU", 0),
        *((f"CPU#x#{c}", "CPU", c) for c in (1, 2, 3)),
        *((f"GPU0#x#{c}", "GPU0", c) for c in range(4)),
    ]


def test_a_failed_plan_says_what_ggml_says_and_nothing_else() -> None:
    error = GgmlAbort("ggml_f", "no good", None, "because")
    plan = failed_plan(error, "main", "alloc", [("CPU", "CPU")], ["a line"])
    assert not plan.ok
    assert plan.nodes == ()
    assert plan.log == ("a line",)
    assert plan.as_dict()["error"] == {
        "kind": "abort",
        "function": "ggml_f",
        "condition": None,
        "message": "no good",
        "explanation": "because",
    }


def test_the_debug_print_has_a_record_for_each_node_but_views() -> None:
    run = ggmltool.load(SOURCE).start(debug=True)
    run.alloc("main")
    (split,) = run.debug_records[0]
    assert (split.id, split.backend, split.inputs) == (0, "GPU0", (("x", 96),))
    assert [n.index for n in split.nodes] == [0, 2]
    h, y = split.nodes
    assert (h.op_desc, h.name, h.nbytes, h.backend, h.cause, h.use_count, h.compute) == (
        "MUL_MAT", "h", 96, "GPU0", "1.wgt0", 1, True,
    )  # fmt: skip
    assert h.sources == (
        DebugSource("w", 256, "GPU0", "1.dst"),
        DebugSource("GPU0#x#0", 96, None, "4.cpy"),
    )
    assert y.sources == (DebugSource("v", 32, "GPU0", "4.vsrc"),)


def test_there_is_a_record_for_every_reserve_and_alloc() -> None:
    run = ggmltool.load(SOURCE).start(debug=True)
    run.reserve("main")
    run.alloc("main")
    assert len(run.debug_records) == 2
    quiet = ggmltool.load(SOURCE).start()
    quiet.alloc("main")
    assert quiet.debug_records == []
