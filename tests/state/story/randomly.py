"""Histories of random scenarios of all releases against fresh runs.

    python -m tests.state.story.randomly --seeds 0:1000

Every seed is a scenario of `conformance/fuzz` and one of `fuzz_wide`, for every release that can take it; of the two
oldest, in which others may not be, also what their libraries were run on. The state at every point has to be what a
fresh run has there; from a random point to any other, and to the end and back, the walk has to lead to the same.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.story.history import History, Point, record_history, visit_points
from ggmltool.state.story.points import Cells
from ggmltool.state.story.shadow import cells_of
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import wide_scenario

KEPT = Path(__file__).parents[2] / "conformance" / "data"
N_JUMPS = 12
N_LOOKS = 60
"""At about so many points of a history the state is compared, besides those that are jumped to."""


def random_scenarios(release: str, seeds: range, values: bool = False) -> Iterator[LoadedScenario]:
    """Scenarios that a release can take; those that say more than it knows are left out."""
    for seed in seeds:
        for spec in (scenario(seed, values=values), wide_scenario(seed)):
            try:
                yield ggmltool.load({**spec, **_as_old(spec, release)}, ggml=release)
            except (ScenarioError, ggmltool.GgmlError):
                continue


def _as_old(spec: Any, release: str) -> dict[str, Any]:
    if RELEASES[release].reserves:
        return {}
    first = next(iter(spec["graphs"]))
    return {"steps": [{"measure": first}, *({"compute": name} for name in spec["graphs"])]}


def kept_scenarios(release: str, numbers: slice) -> Iterator[LoadedScenario]:
    """What the library of an old release was run on."""
    content = json.loads(lzma.decompress((KEPT / f"random-{release}.json.xz").read_bytes()))
    for real in content[numbers]:
        steps = [dict([text.split(" ", 1)]) if " " in text else text for text in real["steps"]]
        yield ggmltool.load({**real["scenario"], "ggml": release, "steps": steps})


def check(of: LoadedScenario, rng: Random, compute: bool = False) -> History:
    """The state at every point is that of a fresh run, and the way there does not matter."""
    history = record_history(of, compute)
    jumps = {rng.randrange(len(history.points)) for _ in range(N_JUMPS)} | {0, len(history.points) - 1}
    kept: dict[int, Cells] = {}
    cursor = history.cursor()
    at = -1

    def visit(run: Run, point: Point) -> None:
        nonlocal at
        at += 1
        assert history.points[at] == point
        if at not in jumps and rng.random() * len(history.points) > N_LOOKS:
            return
        real = cells_of(run)
        assert cursor.move_to(at) == real, (at, point, _differing(cursor.cells, real))
        if at in jumps:
            kept[at] = real

    error = visit_points(of, compute, visit)
    assert at == len(history.points) - 1
    assert history.error == error
    order = [*kept, *reversed(kept), *rng.sample(list(kept), len(kept))]
    for to in order:
        assert cursor.move_to(to) == kept[to]
        assert history.cells(to) == kept[to]
    return history


def _differing(mine: Any, real: Any) -> list[Any]:
    keys = sorted(mine.keys() | real.keys(), key=str)
    return [(key, mine.get(key), real.get(key)) for key in keys if mine.get(key) != real.get(key)][:5]


def main() -> None:
    """Check as many scenarios as are asked for, and say how many."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="the first and the one behind the last")
    first, _, end = parser.parse_args().seeds.partition(":")
    seeds = range(int(first), int(end))
    for release in reversed(RELEASES):
        start = time.process_time()
        n_scenarios = n_points = n_refused = 0
        kept = release in ("2025-03", "2024-01")
        scenarios = [random_scenarios(release, seeds)]
        if kept:
            scenarios.append(kept_scenarios(release, slice(seeds.start, seeds.stop)))
        for of in (one for part in scenarios for one in part):
            history = check(of, Random(n_scenarios), compute=n_scenarios % 4 == 0)
            n_scenarios += 1
            n_points += len(history.points)
            n_refused += history.error is not None
        seconds = time.process_time() - start
        line = f"{release}: {n_scenarios} scenarios, {n_points} points, {n_refused} refused, {seconds:.0f} s\n"
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
