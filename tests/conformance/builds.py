"""Several builds of graphs on one scheduler, in any order: where their tensors lie, what was freed, and the values.

A build keeps its tensors while others are allocated. The library's devices never give freed memory out again and fill
it with NaN, so that what lies there is known, and what was computed from it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import ggmltool
from ggmltool.oracle import OracleRun, run_many
from ggmltool.oracle.run import FREED, Places
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance.compare import compare_runs, is_crash
from tests.conformance.fuzz_wide import builds_scenario
from tests.conformance.run import Outcome
from tests.conformance.values import Read, compare_values, stepped, tolerance

VALUES = ("compute", "set", "get")
"""Steps that end a comparison: a mock GPU computes what the engine does not, and may refuse what the engine does."""


MOST_ELEMENTS = 2_000_000
"""Of all tensors of a scenario: some random weights would have gigabytes."""


def places(run: Run) -> dict[str, Places]:
    """Where the tensors of each graph's newest build lie, as `OracleRun.builds` has them."""
    out: dict[str, Places] = {}
    for name, (graph, _) in run.newest.items():
        found: Places = {}
        for t in (*graph.leafs, *graph.nodes):
            b = t.buffer
            found[t.id] = None if b is None or not t.data else FREED if b.freed else (b.buft.name, t.data - b.base)
        out[name] = found
    return out


def engine_run(loaded: LoadedScenario) -> tuple[Run, list[dict[str, Places]], Read, set[str]]:
    """The run, where everything lay after each step, what was read, and what lay in freed memory when it was used."""
    run = loaded.start(values=True)
    where: list[dict[str, Places]] = []
    read = stepped(run, lambda: where.append(places(run)))
    return run, where, read, {id for use in run.freed.uses for id in use.tensors}


def judge(loaded: LoadedScenario, real: OracleRun) -> Outcome:
    """All differences between the engine's run and the library's, up to a step that freed memory made abort there."""
    run, where, read, used = engine_run(loaded)
    plans = [plan.as_dict() for plan in run.plans]
    ended = real.plans[-1] if real.plans else None
    stopped = ended is not None and not ended["ok"] and (ended["step"] in VALUES or (is_crash(ended) and bool(used)))
    declined = bool(plans) and not plans[-1]["ok"] and plans[-1]["step"] in VALUES
    mine, theirs = plans[: len(plans) - declined], real.plans[: len(real.plans) - stopped]
    n = min(len(mine), len(theirs)) if stopped or declined else max(len(mine), len(theirs))
    out = compare_runs(mine[:n], theirs[:n])
    if "get" in (plans[-1]["step"] if declined else "", ended["step"] if stopped else "") and stopped != declined:
        out.append(f"get: {plans[-1]['error'] if declined else ended['error']} only on one side")
    for i, (ours, other) in enumerate(zip(where, real.builds, strict=False)):
        if ours != other:
            pairs = [(g, id, p, other.get(g, {}).get(id)) for g, t in ours.items() for id, p in t.items()]
            out.append(f"step {i}: {next((p for p in pairs if p[2] != p[3]), (list(ours), list(other)))}")
            break
    arrays = 0
    allowed = tolerance(loaded.model)
    for i, (values, others) in enumerate(zip(read, real.values, strict=False)):
        for id, array in values.items():
            arrays += 1
            found = compare_values(array, others[id], allowed) if id in others else ["freed memory in the library"]
            out += [f"get {i}: {id}: {text}" for text in found]
    freed = sum(place == FREED for tables in where for table in tables.values() for place in table.values())
    return Outcome(0, out, n=arrays, freed=freed)


def elements(model: ScenarioSpec) -> int:
    """How many all tensors of a scenario have."""
    specs = [*model.tensors(), *(node for graph in model.graphs.values() for node in graph.nodes)]
    return sum(prod(t.ne) for t in specs)


def outcomes(seeds: Sequence[int], release: str) -> Iterator[Outcome]:
    """The outcome of every seed."""
    loaded = {seed: ggmltool.load(builds_scenario(seed), ggml=release) for seed in seeds}
    loaded = {seed: one for seed, one in loaded.items() if elements(one.model) < MOST_ELEMENTS}
    for (seed, one), real in zip(loaded.items(), run_many((x.model for x in loaded.values()), debug=0), strict=True):
        yield judge(one, real)._replace(seed=seed)
