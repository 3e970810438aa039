"""A scheduler with a past: the step after it is planned as it is at the end of the whole run."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.sched.past import Past, past_of
from ggmltool.scenario.dump import dump
from ggmltool.scenario.model import Step
from ggmltool.scenario.reserving_run import ReservingRun
from ggmltool.scenario.scenario import Scenario
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
    for seed in range(30):
        model = ggmltool.load(scenario(seed)).model
        for k, whole, _ in cuts(replace(model, steps=steps_of(model))):
            (fresh,) = Scenario(replace(model, steps=[])).start().run([Step(whole["step"], whole["graph"])])
            otherwise += k > 0 and fresh.as_dict() != whole
    assert otherwise > 20


def test_buffers_that_are_too_small_are_made_anew_and_that_is_logged() -> None:
    model = ggmltool.load(TWO, ggml="2025-03").model
    run = cast("ReservingRun", Scenario(model).start())
    run.step(model.steps[0])
    past = past_of(run.start())
    (plan,) = Scenario(replace(model, scheduler=replace(model.scheduler, past=past))).start().run(model.steps[1:])
    assert plan.debug_log is not None
    assert any("reallocating CUDA0 buffer from size 0.00 MiB to " in line for line in plan.debug_log)
    assert dict(plan.buffer_sizes)["CUDA0"] > dict(run.plans[0].buffer_sizes)["CUDA0"]


def test_a_past_over_other_backends_is_none() -> None:
    model = ggmltool.load(TWO).model
    past = Past(("Vulkan0", "CPU"), is_alloc=True)
    (plan,) = Scenario(replace(model, scheduler=replace(model.scheduler, past=past))).start().run(model.steps[:1])
    assert plan.ok


def test_a_scheduler_that_holds_a_graph_takes_no_other() -> None:
    source = {**TWO, "scheduler": {"past": {"is_alloc": True, "is_reset": False}}, "steps": ["alloc small"]}
    (plan,) = ggmltool.load(source).start().run(ggmltool.load(source).model.steps)
    assert not plan.ok
    assert dict(plan.error or ())["condition"] == "!sched->is_alloc"


def test_a_past_is_written_and_read() -> None:
    model = ggmltool.load(TWO).model
    run = cast("ReservingRun", Scenario(model).start())
    run.run(model.steps)
    told = replace(model, scheduler=replace(model.scheduler, past=past_of(run.start())))
    written = dump(told)
    assert written["scheduler"]["past"]["node_ids"] == [["CUDA0", 1]]
    assert written["scheduler"]["past"]["nodes"] == [[[0, 0, 0, 1048576], [0, 0, 0, 1048576]]]
    assert ggmltool.load(written).model.scheduler == told.scheduler
