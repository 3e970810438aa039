"""A scheduler with a past: the step after it is planned as it is at the end of the whole run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.plan import CopyPlan, DebugSource, LeafPlan, Plan, SplitPlan
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.ggml.sched.past import Past, PastCopy, past_of
from ggmltool.ggml.sched.plans import failed_plan
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.dump import dump
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import Step
from tests.conformance.fuzz import scenario
from tests.ggml.sched.pasts import cuts, differences, steps_of

RESERVE = [release.name for release in RELEASES.values() if release.reserves]

TWO = {
    "ggmltool": 1,
    "backends": ["CUDA0", "CPU"],
    "contexts": {"c": {"tensors": {"x": "f32[64]"}}, "d": {"tensors": {"z": "f32[262144]"}}},
    "graphs": {"small": {"nodes": {"y": "sqr(x)"}}, "large": {"nodes": {"w": "sqr(z)"}}},
    "steps": ["reserve small", "alloc large"],
}


@pytest.mark.parametrize("release", RESERVE)
def test_a_step_after_its_past_is_planned_as_in_the_whole_run(release: str) -> None:
    assert list(differences(range(25), release)) == []


def test_the_past_decides_about_plans() -> None:
    otherwise = 0
    for seed in range(40):
        model = ggmltool.load(scenario(seed)).model
        for k, whole, _ in cuts(replace(model, steps=steps_of(model))):
            (fresh,) = LoadedScenario(replace(model, steps=[])).start().run([Step(whole["step"], whole["graph"])])
            otherwise += k > 0 and fresh.as_dict() != whole
    assert otherwise > 20


def test_buffers_that_are_too_small_are_made_anew_and_that_is_logged() -> None:
    model = ggmltool.load(TWO, ggml="2025-03").model
    run = cast("ReservingRun", LoadedScenario(model).start())
    run.step(model.steps[0])
    past = past_of(run.start())
    (plan,) = LoadedScenario(replace(model, scheduler=replace(model.scheduler, past=past))).start().run(model.steps[1:])
    assert plan.debug_log is not None
    assert any("reallocating CUDA0 buffer from size 0.00 MiB to " in line for line in plan.debug_log)
    assert dict(plan.buffer_sizes)["CUDA0"] > dict(run.plans[0].buffer_sizes)["CUDA0"]


def test_a_past_over_other_backends_is_none() -> None:
    model = ggmltool.load(TWO).model
    past = Past(("Vulkan0", "CPU"), is_alloc=True)
    (plan,) = LoadedScenario(replace(model, scheduler=replace(model.scheduler, past=past))).start().run(model.steps[:1])
    assert plan.ok


def test_a_scheduler_that_holds_a_graph_takes_no_other() -> None:
    source = {**TWO, "scheduler": {"past": {"is_alloc": True, "is_reset": False}}, "steps": ["alloc small"]}
    (plan,) = ggmltool.load(source).start().run(ggmltool.load(source).model.steps)
    assert not plan.ok
    assert dict(plan.error or ())["condition"] == "!sched->is_alloc"


def test_a_past_is_written_and_read() -> None:
    model = ggmltool.load(TWO).model
    run = cast("ReservingRun", LoadedScenario(model).start())
    run.run(model.steps)
    told = replace(model, scheduler=replace(model.scheduler, past=past_of(run.start())))
    written = dump(told)
    assert written["scheduler"]["past"]["node_ids"] == [["CUDA0", 1]]
    assert written["scheduler"]["past"]["nodes"] == [[[0, 0, 0, 1048576], [0, 0, 0, 1048576]]]
    assert ggmltool.load(written).model.scheduler == told.scheduler


KEPT = {
    "ggmltool": 1,
    "backends": [{"name": "CUDA0", "profile": "custom", "supports": {"except": ["silu"]}}, "CPU"],
    "contexts": {"w": {"buft": "CUDA0", "tensors": {"x": "f32[64]", "z": "f32[64]"}}},
    "graphs": {"main": {"nodes": {"y": "silu(x)", "r": "add(y, z)", "s": "silu(r)", "t": "silu(z)"}}},
    "steps": ["alloc main", "reserve main"],
}
"""A graph that is reserved while another is allocated: the scheduler still has copies of the context's tensors."""


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
@pytest.mark.parametrize("parallel", [False, True])
def test_copies_of_a_graph_before_are_used_again(release: str, parallel: bool) -> None:
    given = {**KEPT, "scheduler": {"parallel": parallel}}
    model = ggmltool.load(given, ggml=release).model
    run = cast("ReservingRun", LoadedScenario(model).start())
    run.step(model.steps[0])
    sched = run.start()
    table = {t.id: t for t in run.newest["main"][1] if t.id in ("x", "z")}
    copies = []
    assigned = {}
    for id, t in table.items():
        assigned[id] = sched.names[sched.ids[t.index]]
        for b, made in enumerate(sched.copies[t.index] or ()):
            if made is not None:
                at = [None if c is t else (sched.arena.slots.index(c), _place(c)) for c in made]
                copies.append(PastCopy(id, b, tuple(at)))
    past = replace(past_of(sched), copies=tuple(copies))
    told = dump(replace(model, scheduler=replace(model.scheduler, past=past)))
    for id, backend in assigned.items():
        told["contexts"]["w"]["tensors"][id]["backend"] = backend
    again = ggmltool.load(told, ggml=release)
    assert again.model.scheduler.past == past
    whole = run.step(model.steps[1])
    (cut,) = again.start().run(model.steps[1:])
    assert isinstance(whole, Plan)
    ours, theirs = cut.as_dict(), whole.as_dict()
    for plan in (ours, theirs):
        for node in plan["nodes"]:
            del node["cause"]
    assert ours == theirs
    assert len(whole.copies) < len(run.plans[0].copies)


def _place(copy: Tensor) -> tuple[int, int] | None:
    return None if copy.buffer is None else (copy.buffer.chunk, copy.data - copy.buffer.base)


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
