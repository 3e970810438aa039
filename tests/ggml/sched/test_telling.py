"""What a scheduler and its allocator tell: it is what they did, and telling changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import (
    SPLIT_GRAPH,
    Allocated,
    AllocationStarted,
    Assigned,
    Entered,
    Event,
    Reused,
    SplitStarted,
)
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import scenario_with_rules

BLOCK = 50
PLANNING = ("reserve", "alloc", "reset", "measure", "compute")


def loaded(seed: int, ggml: str) -> LoadedScenario | None:
    """A random scenario, None where that ggml has no such thing."""
    source = scenario(seed) if seed % 4 else scenario_with_rules(seed)
    try:
        return ggmltool.load(source, ggml=ggml)
    except ScenarioError:
        return None


class Told:
    """A listener: the backend that each tensor was told to have got last, and which since a graph was split last."""

    def __init__(self) -> None:
        self.backends: dict[str, str] = {}
        self.now: set[str] = set()
        self.starts: list[int] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Entered) and event.function in SPLIT_GRAPH:
            self.now, self.starts = set(), []
        elif isinstance(event, Assigned):
            self.backends[event.tensor] = event.backend
            self.now.add(event.tensor)
        elif isinstance(event, SplitStarted):
            self.starts.append(event.at)


def steps(run: Run) -> Iterator[str]:
    """The steps of a run that plan, as they are done, up to one on which ggml fails."""
    for step in run.model.steps:
        if step.kind in PLANNING and step.graph is not None:
            try:
                run.step(step)
            except GgmlError:
                return
            if run.plans and run.plans[-1].error is not None:
                return
            yield step.graph


@pytest.mark.parametrize("ggml", ["0.20.2", "2025-03", "2024-01"])
@pytest.mark.parametrize("first", range(0, 200, BLOCK))
def test_the_backends_that_are_told_are_those_that_tensors_have(first: int, ggml: str) -> None:
    for seed in range(first, first + BLOCK):
        source = loaded(seed, ggml)
        if source is None:
            continue
        told = Told()
        run = source.start(told)
        try:
            sched = run.start()
        except GgmlError:
            continue
        for name in steps(run):
            graph, _ = run.newest[name]
            assigned = {t.id: sched.assigned[t.index] for t in (*graph.leafs, *graph.nodes)}
            backends = {t: sched.names[b] for t, b in assigned.items() if b != -1}
            assert backends == {t: told.backends[t] for t in backends}, seed
            assert told.now & assigned.keys() <= backends.keys(), seed
            assert told.starts in ([s.i_start for s in sched.splits[: sched.n_splits]], []), seed


class Places:
    """A listener: where the allocator told to have put each tensor, in its last walk over a graph."""

    def __init__(self) -> None:
        self.at: dict[str, tuple[str, int, int]] = {}
        self.walked = False

    def __call__(self, event: Event) -> None:
        match event:
            case AllocationStarted(-1):
                self.at, self.walked = {}, True
            case Allocated(tensor, buft, chunk, offset) | Reused(tensor, _, buft, chunk, offset):
                self.at[tensor] = (buft, chunk, offset)
            case _:
                pass


@pytest.mark.parametrize("ggml", ["0.20.2", "2025-03", "2024-01"])
def test_the_places_that_are_told_are_those_in_the_plan(ggml: str) -> None:
    n_compared = 0
    for seed in range(BLOCK):
        source = loaded(seed, ggml)
        if source is None:
            continue
        told = Places()
        run = source.start(told)
        for _ in steps(run):
            plan = run.plans[-1]
            if told.walked and plan.step != "reserve":
                there = {n.id: (n.buffer, n.chunk, n.offset) for n in (*plan.nodes, *plan.leafs) if n.id in told.at}
                assert there == {t: told.at[t] for t in there}, seed
                n_compared += len(there)
            told.walked = False
    assert n_compared > 100


@pytest.mark.parametrize("ggml", ["0.20.2", "2025-03", "2024-01"])
def test_a_plan_is_the_same_where_nobody_listens(ggml: str) -> None:
    for seed in range(BLOCK):
        source = loaded(seed, ggml)
        if source is not None:
            heard, silent = source.start(lambda event: None), source.start()
            assert list(steps(heard)) == list(steps(silent)), seed
            assert heard.plans == silent.plans, seed
