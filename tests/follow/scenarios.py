"""Scenarios on the engine and on a library: what differs, and which switches of `Rules` make it equal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import ggmltool
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Event
from ggmltool.ggml.releases.release import Release, Rules
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle import OracleRun
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance import run as planning
from tests.conformance import values as computing
from tests.conformance.compare import calls_of, trace_of
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import wide_scenario
from tests.follow.library import Library

Kind = Literal["plans", "calls"]
"""What is compared: plans and debug prints of a scenario that is planned, or what computing asks of the devices."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A switch of `Rules` in another position: that of other `releases`, or one that no release has it in."""

    field: str
    value: object
    releases: tuple[str, ...]

    def applied(self, release: Release) -> Release:
        """The release with the switch turned."""
        return replace(release, rules=replace(release.rules, **{self.field: self.value}))


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario as a document; `debug` says whether the scheduler prints, which changes its state."""

    kind: Kind
    seed: int
    document: dict[str, Any]
    debug: bool

    def model(self, release: Release) -> ScenarioSpec:
        """The model that is run. Raises ScenarioError."""
        loaded = ggmltool.load(self.document, ggml=release.name)
        return planning.planning_only(loaded) if self.kind == "plans" else loaded.model


@dataclass(frozen=True, slots=True)
class Observed:
    """A case, what a library did with it, and how the engine differs: the first of it."""

    case: Case
    real: OracleRun
    told: tuple[str, ...]

    @property
    def size(self) -> int:
        """About how much there is to read."""
        return len(str(self.case.document))


def random_case(kind: Kind, seed: int, release: Release) -> Case:
    """The scenario of a seed of the fuzzer, everything explicit; every fourth that is planned is a wide one."""
    source = wide_scenario(seed) if kind == "plans" and seed % 4 == 3 else scenario(seed, values=kind == "calls")
    loaded = ggmltool.load(source, ggml=release.name)
    return Case(kind, seed, {**dump(loaded.model), "ggml": release.name}, kind == "plans" and seed % 5 != 0)


def switches_to_turn(release: Release) -> tuple[Turn, ...]:
    """Every switch in each position that another release has it in, and what is on or off in the other one."""
    out: list[Turn] = []
    for field in fields(Rules):
        own = getattr(release.rules, field.name)
        values = [getattr(other.rules, field.name) for other in RELEASES.values()]
        values += [not own] if isinstance(own, bool) else []
        for value in dict.fromkeys(v for v in values if v != own):
            names = tuple(o.name for o in RELEASES.values() if getattr(o.rules, field.name) == value)
            out.append(Turn(field.name, value, names))
    return tuple(out)


def observed(library: Library, release: Release, cases: Sequence[Case]) -> Iterator[Observed | None]:
    """For each case what differs, or None where nothing does, or where it is not one that can be run."""
    models = [_model(case, release) for case in cases]
    runs = iter(
        library.runs([(c.kind == "calls", c.debug, m) for c, m in zip(cases, models, strict=True) if m is not None])
    )
    for case, model in zip(cases, models, strict=True):
        real = None if model is None else next(runs)
        told = [] if real is None else compared(case, release, real, model)
        yield Observed(case, real, tuple(told)) if real is not None and told else None


def compared(case: Case, release: Release, real: OracleRun, model: ScenarioSpec | None = None) -> list[str]:
    """The differences between the engine as this release and what a library did; empty where they agree.

    `model` is the case's, where it has been loaded before.
    """
    loaded = LoadedScenario(replace(model or case.model(release), release=release))
    try:
        return _plans(case, loaded, real) if case.kind == "plans" else _calls(loaded, real)
    except Exception as error:
        # A traceback of the engine's is a difference like any other.
        return [f"{type(error).__name__}: {error}"]


def explaining(of: Observed, release: Release, turns: Sequence[Turn]) -> list[Turn]:
    """The switches that make the engine equal, each turned alone."""
    model = of.case.model(release)
    return [turn for turn in turns if not compared(of.case, turn.applied(release), of.real, model)]


def sign(difference: str) -> str:
    """A difference without numbers, names and values: the field or the kind of call that differs."""
    path, _, values = difference.partition(": ")
    found = re.match(r"(?:plan \d+ \((\w+) [^)]*\) )?(.*)", path)
    step, place = (found[1], found[2]) if found else (None, path)
    place = re.sub(r"\[\d+\]", "[]", re.sub(r"buffer_sizes\..*", "buffer_sizes", place))
    place = re.sub(r"^(call|plan|get) \d+\b", r"\1", place)
    if place == "call":
        calls = [side.split(" ")[0] for side in values.split(", not ")]
        return f"call: {', not '.join(calls)}"
    return f"{step}: {place}" if step else place


def _model(case: Case, release: Release) -> ScenarioSpec | None:
    try:
        return case.model(release)
    except (ScenarioError, GgmlError):
        return None


def _plans(case: Case, loaded: LoadedScenario, real: OracleRun) -> list[str]:
    plans, texts = planning.engine_run(loaded, loaded.model, case.debug)
    return planning.judge(plans, texts, real)


def _calls(loaded: LoadedScenario, real: OracleRun) -> list[str]:
    last = real.plans[-1] if real.plans else None
    if last is None or last["step"] == "compute" or (not last["ok"] and last["error"]["kind"] == "crash"):
        return []
    events: list[Event] = []
    plans, read = computing.run_steps(loaded, events.append)
    if plans and plans[-1]["step"] == "compute":
        # The engine does not compute on memory that a device could not read, the mock devices do.
        return []
    silent = replace(real, trace=[])
    out = computing.judge((plans, [], []), silent, 0)
    ours = trace_of(events, lambda buft: buft != "CPU")
    theirs = calls_of(real.trace)
    for i, (a, b) in enumerate(zip([*ours, "(end)"], [*theirs, "(end)"], strict=False)):
        if a != b:
            return [*out, f"call {i}: {a}, not {b}"]
    return out or computing.judge((plans, read, []), silent, computing.tolerance(loaded.model))
