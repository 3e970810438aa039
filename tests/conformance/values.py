"""Random scenarios computed on the engine and on the real library: values, and the order of waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ggmltool
from ggmltool.ggml.events import EventCall, Listener, Synchronized
from ggmltool.oracle import OracleRun, run_many
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from tests.another_cpu import another_cpu
from tests.conformance.compare import compare_runs
from tests.conformance.fuzz import scenario
from tests.conformance.run import Outcome

NMSE_F32, NMSE_OTHER = 1e-6, 1e-2
"""How far outputs may be off after a whole graph (normalized mean squared error): f32 throughout, or not."""

CANCELLED = 1e-4
"""Differences below this say nothing: a sum of what cancels is rounding error throughout."""

OWN_ROUNDING = 16
"""How far a value may be off, in squared errors that the engine itself makes with sums in another order: a graph whose
results go back into its caches makes a difference in the last digit larger at every step."""

NOT_A_NUMBER = 0x7C00_FFFF
"""Above this the upper half of a word is a NaN of f16, whose sign IEEE 754 leaves open. Such a word is found where
results in f16 were written over an output of f32, as ggml does where it takes the plan of a graph without that flag."""

Read = list[dict[str, NDArray[Any]]]


def engine_run(loaded: LoadedScenario) -> tuple[list[dict[str, Any]], Read, list[str]]:
    """The engine's plans, the values it read, and the order in which it waited."""
    waits: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, Synchronized):
            waits.append(f"synchronize {event.backend}")
        elif isinstance(event, EventCall):
            waits.append(f"event_{event.call} {event.backend} {event.copy}")

    plans, read = run_steps(loaded, listen)
    return plans, read, waits


def run_steps(loaded: LoadedScenario, listen: Listener) -> tuple[list[dict[str, Any]], Read]:
    """The engine's plans, and the values that it read, up to the first step that fails."""
    run = loaded.start(events=listen, values=True)
    read = stepped(run)
    return [plan.as_dict() for plan in run.plans], read


def stepped(run: Run, after: Callable[[], None] = lambda: None) -> Read:
    """The values that a run reads, up to the first step that fails; `after` is called after every other one."""
    read: Read = []
    for step in run.model.steps:
        done = run.step(step)
        if isinstance(done, dict):
            read.append(done)
        if run.plans and not run.plans[-1].ok:
            break
        after()
    return read


def tolerance(model: ScenarioSpec) -> float:
    """What the model's types allow."""
    specs = [*model.tensors(), *(node for graph in model.graphs.values() for node in graph.nodes)]
    exact = all(t.type.name in ("f32", "i32", "i64") for t in specs)
    return NMSE_F32 if exact else NMSE_OTHER


def judge(
    ours: tuple[list[dict[str, Any]], Read, list[str]], real: OracleRun, allowed: float, again: Read | None = None
) -> list[str]:
    """All differences between the engine's run and the library's, and those alone that are larger than the rounding of
    the engine's own where `again` has its values with sums in another order.

    The engine does not compute on memory that a device could not read, the mock devices do: a step of the engine's
    that says so ends the comparison.
    """
    plans, read, waits = ours
    declined = bool(plans) and plans[-1]["step"] == "compute"
    out = compare_runs(plans[:-1], real.plans[: len(plans) - 1]) if declined else compare_runs(plans, real.plans)
    for i, (mine, theirs) in enumerate(zip(read, real.values, strict=False)):
        for id, values in mine.items():
            most = allowed if again is None else max(allowed, OWN_ROUNDING * nmse(again[i][id], values))
            out += [f"get {i}: {id}: {text}" for text in compare_values(values, theirs[id], most)]
    their_waits = [
        line for line in real.trace if line.startswith(("synchronize", "event_")) and "event_new" not in line
    ]
    for i, (a, b) in enumerate(zip(waits, their_waits, strict=False)):
        if a != b:
            out.append(f"wait {i}: {a}, not {b}")
            break
    if len(waits) != len(their_waits) and not declined:
        out.append(f"{len(waits)} waits, not {len(their_waits)}")
    return out


def compare_values(ours: NDArray[Any], theirs: NDArray[Any], allowed: float) -> Iterator[str]:
    """How two arrays differ by more than is allowed."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        yield f"{ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
    elif ours.dtype.kind != "f":
        if not np.array_equal(ours, theirs):
            yield f"{int((ours != theirs).sum())} of {ours.size} integers differ"
    elif not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        yield "NaN or infinities in other places"
    else:
        if ours.dtype == np.float32:
            of_halves = [
                x.view(np.uint32) & 0x7FFF_FFFF > NOT_A_NUMBER for x in map(np.ascontiguousarray, (ours, theirs))
            ]
            ours, theirs = (np.where(of_halves[0] & of_halves[1], 0, x) for x in (ours, theirs))
        error = nmse(ours, theirs)
        if error > allowed and float(np.abs(ours - theirs)[np.isfinite(theirs)].max()) > CANCELLED:
            yield f"NMSE {error:.1e}"


def nmse(values: NDArray[Any], others: NDArray[Any]) -> float:
    """The normalized mean squared error of what is finite."""
    finite = np.isfinite(others) & np.isfinite(values)
    a, b = values[finite].astype(np.float64), others[finite].astype(np.float64)
    return float(((a - b) ** 2).sum()) / max(float((b**2).sum()), 1e-30)


def outcomes(seeds: Sequence[int], release: str) -> Iterator[Outcome]:
    """The outcome, with the number of arrays, of every seed whose scenario the real library could compute."""
    loaded = [ggmltool.load(scenario(seed, values=True), ggml=release) for seed in seeds]
    for seed, one, real in zip(seeds, loaded, run_many((x.model for x in loaded), debug=0), strict=True):
        ended = real.plans[-1] if real.plans else None
        if ended is None or ended["step"] == "compute" or (not ended["ok"] and ended["error"]["kind"] == "crash"):
            continue
        ours = engine_run(one)
        found = judge(ours, real, tolerance(one.model))
        if found:
            with another_cpu():
                found = judge(ours, real, tolerance(one.model), engine_run(one)[1])
        yield Outcome(seed, found, n=sum(len(v) for v in real.values))
