"""The engine against the real library on random scenarios.

    python -m tests.conformance.run --seeds 0:20000 --jobs 2 --ggml 0.26
    python -m tests.conformance.run --seeds 0:20000 --jobs 2 --ggml 0.26 --wide
    python -m tests.conformance.run --seeds 0:20000 --jobs 2 --ggml 0.26 --rare
    python -m tests.conformance.run --seeds 0:20000 --jobs 2 --ggml 0.26 --builds
    python -m tests.conformance.run --seeds 0:500 --ggml 0.26 --values

Every seed is a scenario of `fuzz`, with --wide of `fuzz_wide`, with --rare of `fuzz_rare`, or with --builds of
`builds_scenario`; compared are all plans in every field and the debug print byte for byte. With --values, --freed,
--recorded or --past it is what the module of that kind (`ELSEWHERE`) compares.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import repeat
from multiprocessing import get_context
from typing import Any, NamedTuple

import ggmltool
from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle import OracleRun, run_many
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance.compare import compare_runs, is_crash
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_rare import rare_scenario
from tests.conformance.fuzz_wide import builds_scenario, wide_scenario

CHUNK = 100
PLANNING = ("reserve", "alloc", "compute", "reset")


class Outcome(NamedTuple):
    """What a seed gave: `differences` empty where engine and library agree, `end` how the library ended, `n` the plans
    or arrays that were compared, `freed` the tensors that were found in freed memory.
    """

    seed: int
    differences: list[str]
    end: str = "ok"
    n: int = 0
    freed: int = 0


def planning_only(loaded: LoadedScenario) -> ScenarioSpec:
    """The model without the steps that are about values."""
    return replace(loaded.model, steps=[step for step in loaded.model.steps if step.kind in PLANNING])


def engine_run(
    loaded: LoadedScenario, model: ScenarioSpec, debug: bool = True
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The engine's plans and its debug prints, without causes."""
    return _of_run(loaded.start(debug=debug), model)


def _of_run(run: Run, model: ScenarioSpec) -> tuple[list[dict[str, Any]], list[bytes]]:
    plans = [plan.as_dict() for plan in run.run(model.steps)]
    texts = [sched_debug(record, 2, causes=False) for record in run.debug_records]
    return plans, [text.encode("utf-8", "surrogateescape") for text in texts]


def judge(plans: Sequence[Mapping[str, Any]], texts: Sequence[bytes], real: OracleRun) -> list[str]:
    """All differences between the engine's run and the library's."""
    out = compare_runs(plans, real.plans)
    for i, (ours, theirs) in enumerate(zip(texts, real.debug, strict=False)):
        if ours != theirs and real.plans[i]["ok"]:
            ours_lines, their_lines = ours.split(b"\n"), theirs.split(b"\n")
            pairs = [(a, b) for a, b in zip(ours_lines, their_lines, strict=False) if a != b]
            first = pairs[0] if pairs else (len(ours_lines), len(their_lines))
            out.append(f"plan {i} debug text: {first[0]!r}, not {first[1]!r}")
    return out


MAKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "usual": scenario,
    "long": partial(scenario, short_forms=False),
    "wide": wide_scenario,
    "rare": rare_scenario,
    "builds": builds_scenario,
}
"""What makes the scenario of a seed, by the kind of scenarios."""

ELSEWHERE = {
    "values": "tests.conformance.values",
    "freed": "tests.conformance.builds",
    "recorded": "tests.conformance.recorded",
    "past": "tests.ggml.sched.pasts",
}
"""Modules whose `outcomes` compares something else, by its kind."""


def outcomes(seeds: Sequence[int], release: str, kind: str = "usual") -> Iterator[Outcome]:
    """The outcome of every seed, first those with a debug print, which itself changes ggml's state, then the others."""
    if kind in ELSEWHERE:
        yield from import_module(ELSEWHERE[kind]).outcomes(seeds, release)
        return
    make = partial(MAKERS[kind], inputs_anywhere=not RELEASES[release].ops.inputs_are_leafs)
    for debug in (True, False):
        yield from _outcomes([s for s in seeds if (s % 5 != 0) == debug], release, make, debug)


def _outcomes(
    seeds: Sequence[int], release: str, make: Callable[[int], dict[str, Any]], debug: bool
) -> Iterator[Outcome]:
    ours: list[tuple[int, list[dict[str, Any]], list[bytes], bool]] = []
    models: list[ScenarioSpec] = []
    for seed in seeds:
        try:
            loaded = ggmltool.load(make(seed), ggml=release)
            model = planning_only(loaded)
            run = loaded.start(debug=debug)
            ours.append((seed, *_of_run(run, model), bool(run.freed.uses)))
        except Exception as error:
            # A traceback of the engine's is a failure like any other.
            yield Outcome(seed, [f"{type(error).__name__}: {error}"], "not run", 0)
            continue
        models.append(model)
    for (seed, plans, texts, uses_freed), real in zip(
        ours, run_many(models, 2 if debug else 0, values=False), strict=True
    ):
        last = real.plans[-1] if real.plans else {"ok": True}
        end = "ok" if last["ok"] else "crash" if is_crash(last) else "abort"
        if uses_freed and (end == "crash" or (end == "abort" and last["error"]["condition"] == "buft")):
            # What is computed in freed memory may end the process, or not; a buffer there may have no buft.
            n = len(real.plans) - 1
            plans, texts, real = plans[:n], texts[:n], replace(real, plans=real.plans[:n])
        yield Outcome(seed, judge(plans, texts, real), end, len(real.plans))


def _chunk(seeds: range, release: str, kind: str) -> list[Outcome]:
    return list(outcomes(seeds, release, kind))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints every seed that differs and a summary; 1 where one did."""
    parser = argparse.ArgumentParser(description="Compare the engine with the real library on random scenarios.")
    parser.add_argument("--seeds", default="0:1000", metavar="A:B", help="from A up to, not including, B")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--ggml", default=DEFAULT.name, choices=tuple(RELEASES), help="the release that is judged")
    for kind, about in (
        ("long", "long forms only"),
        ("wide", "with more of what is rare"),
        ("rare", "at the ends of all"),
        ("builds", "with steps that go back to older builds"),
        ("freed", "the values and the places of such builds"),
        ("values", "computed values, and the order of waiting"),
        ("recorded", "devices turned into recorded ones"),
        ("past", "steps after what the scheduler was (without the library)"),
    ):
        parser.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="usual", help=about)
    parser.add_argument("--stop-after", type=int, default=50, metavar="N", help="give up after N failures")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    started = time.perf_counter()
    ends: dict[str, int] = {}
    n_failed = n_compared = n_freed = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        for results in pool.map(_chunk, chunks, repeat(options.ggml), repeat(options.kind)):
            for outcome in results:
                ends[outcome.end] = ends.get(outcome.end, 0) + 1
                n_compared += outcome.n
                n_freed += outcome.freed
                if outcome.differences:
                    n_failed += 1
                    _say(f"seed {outcome.seed}: " + "\n    ".join(outcome.differences[:5]))
            if n_failed >= options.stop_after:
                pool.shutdown(cancel_futures=True)
                break
    seconds = time.perf_counter() - started
    n = sum(ends.values())
    ended = ", ".join(f"{v} {k}" for k, v in sorted(ends.items()))
    _say(f"{n} scenarios ({ended}), {n_compared} compared, {n_freed} tensors in freed memory")
    _say(f"{n_failed} differ; {seconds:.1f} s, {n / seconds:.0f} scenarios/s")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
