"""Captured graphs and random scenarios on the real scheduler with the real Vulkan device, beside the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import ggmltool
from ggmltool.ask.compare.sides import on_this_vulkan
from ggmltool.ask.verify.record import Verification, verify
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.vulkan import FAMILY, answered_by_vulkan
from ggmltool.oracle.worker import run_on
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.scenario import LoadedScenario
from tests.conformance import captured
from tests.conformance.fuzz import scenario
from tests.conformance.run import engine_run, judge, planning_only

RELEASE = "0.26"
_KEPT = ("name", "alignment", "max_size", "events", "offload_min_batch")


def names() -> list[str]:
    """The captured graphs that were on a GPU."""
    return [name for name in captured.names() if "CUDA0" in json.dumps(captured.read(name)["backends"])]


def verified(name: str) -> Verification:
    """A captured graph with its GPUs taken for Vulkan's: what the real scheduler and device do otherwise."""
    text = json.dumps(captured.read(name)).replace("CUDA", "Vulkan")
    spec = json.loads(text)
    spec["ggml"] = RELEASE
    spec["backends"] = [backend["name"] for backend in spec["backends"]]
    return verify(ggmltool.load(spec), values=False, vulkan=True)


class Random(NamedTuple):
    """Random scenarios on the real scheduler: how many there were, how many plans, and what differs."""

    scenarios: int
    plans: int
    wrong: list[str]


def random_scenarios(seeds: range) -> Random:
    """Random scenarios whose own devices are Vulkan's."""
    loaded = dict(_loaded(seeds))
    on_vulkan = {seed: on_this_vulkan(scenario.model) for seed, scenario in loaded.items()}
    models = {seed: planning_only(LoadedScenario(on.model)) for seed, on in on_vulkan.items()}
    plans, wrong = 0, []
    runs = run_on(load(RELEASES[RELEASE]), models.values(), values=False, answered=answered_by_vulkan)
    for (seed, model), real in zip(models.items(), runs, strict=True):
        ours, texts = engine_run(LoadedScenario(model), model)
        plans += len(ours)
        wrong += [f"seed {seed}: {difference}" for difference in judge(ours, texts, real)]
    return Random(len(models), plans, wrong)


def _loaded(seeds: range) -> Iterator[tuple[int, LoadedScenario]]:
    for seed in seeds:
        spec = scenario(seed)
        spec["ggml"] = RELEASE
        spec["backends"] = [_as_vulkan(backend) for backend in spec["backends"]]
        try:
            made = ggmltool.load(spec)
        except (ScenarioError, GgmlError):  # it names memory that only another device has
            continue
        if any(backend.profile == FAMILY for backend in made.model.backends):
            yield seed, made


def _as_vulkan(backend: Any) -> Any:
    """A device of one's own as one of Vulkan's; any other as it is."""
    if not isinstance(backend, dict) or "buft" in backend or backend["name"] in ("CPU", "BLAS"):
        return backend
    return {"profile": FAMILY} | {key: backend[key] for key in _KEPT if key in backend}
