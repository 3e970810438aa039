"""A scheduler with a past: the step after it is planned as it is at the end of the whole run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.table import RELEASES
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


def test_room_for_inputs_that_has_grown_is_part_of_the_past() -> None:
    """In this scenario a graph has more than 30 inputs, which 0.20.2 logs once."""
    assert list(differences([960119], "0.20.2")) == []


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


def test_plans_of_the_same_scenario_are_equal_values() -> None:
    scenario = ggmltool.load(SOURCE)
    assert scenario.plan() == scenario.plan()
    assert scenario.plan() != scenario.plan(step="reserve")
    with pytest.raises(AttributeError):
        scenario.plan().ok = False  # type: ignore[misc]


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
