"""Scenarios that are cut after a step: what the scheduler was then is the past of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import ggmltool
from ggmltool.ggml.errors import Error
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.sched.past import past_of
from ggmltool.scenario.dump import dump
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.conformance.fuzz import scenario
from tests.conformance.run import Outcome

PLANS = ("reserve", "alloc")


def steps_of(model: ScenarioSpec) -> list[Step]:
    """Steps that make several plans: every graph in turn, some again."""
    graphs = list(model.graphs)
    out = [s for s in model.steps if s.kind in (*PLANS, "reset")]
    for name in (graphs[-1], graphs[0], graphs[-1]):
        out += [Step("reset"), Step("alloc", name)]
    return [*out, Step("reset"), Step("reserve", graphs[0]), Step("alloc", graphs[-1])]


def differences(seeds: Sequence[int], release: str) -> Iterator[tuple[int, str]]:
    """Steps whose plan is another one when they are the first after a past, by seed."""
    make = partial(scenario, inputs_anywhere=not RELEASES[release].ops.inputs_are_leafs)
    for seed in seeds:
        try:
            model = ggmltool.load(make(seed), ggml=release).model
        except Error:
            # The release does not have one of the ops.
            continue
        for k, whole, cut in cuts(replace(model, steps=steps_of(model))):
            if whole != cut:
                keys = [key for key in whole if whole[key] != cut.get(key)]
                yield seed, f"step {k}: {keys}"


def cuts(model: ScenarioSpec) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Of each step that plans, after one that did: its plan in the run, and that of the step alone after its past."""
    run = cast("ReservingRun", LoadedScenario(model).start())
    for k, step in enumerate(model.steps):
        # What a scheduler knows of tensors is no part of its past: it was reset, or its graph is gone.
        past = past_of(run.start()) if run.plans and run.start().is_reset else None
        run.step(step)
        if run.plans and not run.plans[-1].ok:
            return
        if step.kind in PLANS and past is not None:
            scheduler = replace(model.scheduler, past=past)
            rest = ggmltool.load(dump(replace(model, scheduler=scheduler, steps=[step])), ggml=model.release).model
            (alone,) = LoadedScenario(rest).start().run(rest.steps)
            yield k, run.plans[-1].as_dict(), alone.as_dict()


def outcomes(seeds: Sequence[int], release: str) -> Iterator[Outcome]:
    """The outcome of every seed."""
    for seed in seeds:
        yield Outcome(seed, [found for _, found in differences([seed], release)])
