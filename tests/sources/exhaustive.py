"""`fit` of models of real shapes on one to four GPUs, held against everything there is to hold it against.

    python -m tests.sources.exhaustive [--most N] [--gpus N...] [--objective fastest|longest]... [MODEL...]

For each model and number of GPUs: no other placement that fits is better (of all, or of N drawn at random where there
are more), nor is there one that fits with a longer context where that is wanted; the `place` line that it prints has
its numbers; and real llama.cpp puts the model so on fake GPUs.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise, product
from pathlib import Path

from ggmltool.ask.fit.record import FitShown, fit
from ggmltool.ask.fit.wishes import Ranges, Wishes
from ggmltool.ask.place.options import Placing, devices_of
from ggmltool.inspect.ranges import doublings
from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.options import ALL
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.anatomy import Request, Speed, anatomies
from ggmltool.sources.llama.search.candidates import OBJECTIVES, CandidatePlanner, Objective, rank
from ggmltool.sources.llama.search.space import CTX_STEP, Choice, Setting
from ggmltool.sources.llama.search.tables import Tables
from tests.sources.fake_device import FakeGpu
from tests.sources.fake_gpus import Settings
from tests.sources.real_models import REAL_MODELS, real
from tests.sources.test_place import check

SHARES = (8, 6, 4, 3)
"""How large GPUs are beside one another."""

CONTEXTS = doublings(4096, 1 << 20)
"""Of the longest context."""


def memory(path: Path, n_gpus: int) -> list[int]:
    """MiB that are free on each GPU: a margin, something for compute buffers, and together four fifths of the model."""
    model = (path.stat().st_size >> 20) * 4 // 5
    return [1536 + model * share // sum(SHARES[:n_gpus]) for share in SHARES[:n_gpus]]


def fitted(path: Path, n_gpus: int, objective: Objective = "fastest") -> FitShown:
    """The best placement on so many GPUs: of one context, or the longest with all layers there."""
    on = tuple(f"CUDA{i}:{mib}MiB" for i, mib in enumerate(memory(path, n_gpus)))
    ranges = Ranges(contexts=CONTEXTS, layers=(ALL,)) if objective == "longest" else Ranges(contexts=(8192,))
    return fit(Wishes(str(path), replace(ranges, ubatches=(512,)), Placing(device=on, n_depth=4096), objective)).facts


def better(found: FitShown, most: int) -> Iterator[Choice]:
    """Placements that fit and are better than the best: there are none."""
    best = found.found.best
    if best is None:
        return
    yield from _better(found, best.setting, most)
    if found.wishes.objective == "longest" and best.n_ctx < CONTEXTS[-1]:
        yield from _better(found, best.setting._replace(n_ctx=best.n_ctx + CTX_STEP), most)


def _better(found: FitShown, setting: Setting, most: int) -> Iterator[Choice]:
    """Those of one setting."""
    best, wishes = found.found.best, found.wishes
    assert best is not None
    model = load_spec(capture(Path(wishes.argument), setting.capture_options(wishes.base)).scenario)
    placer = Placer(model, devices_of(model, wishes.common, 0))
    space, request = wishes.space(model), Request(cached=wishes.common.n_depth)
    speed = Speed(placer, anatomies(placer, request.cached), {}, request)
    planner = CandidatePlanner(Measurer(placer), space, speed, setting, best.order)
    of_best = rank(wishes.objective, best, best.seconds.of(request))
    for choice in _drawn(Tables(placer, space), most, whole=bool(space.layers)):
        candidate = planner.plan(choice)
        if candidate.fits and rank(wishes.objective, candidate, candidate.seconds.of(request)) < of_best:
            yield choice


def _drawn(tables: Tables, most: int, whole: bool) -> Iterator[Choice]:
    """All choices for one GPU if they are no more than `most`, else so many at random; `whole`: all layers on GPUs."""
    n, k = tables.n, len(tables.gpus)
    if k == 1 and not whole:
        every = [(c, s) for c in range(n + 1) for s in chain(*tables.ways(n - c, n))]
        if len(every) <= most:
            yield from (tables.choice([c], [s]) for c, s in every)
            return
    draw = random.Random(n * k)
    for _ in range(most):
        cuts = sorted(draw.randint(0, n) for _ in range(k + (draw.random() < 0.5)))[-k - 1 :]
        cuts = cuts if len(cuts) > k else [draw.randint(0, cuts[0]), *cuts]
        cuts[-1] = n
        cuts[0] = 0 if whole else cuts[0]
        counts = [b - a for a, b in pairwise(cuts)]
        units = [tables.ways(a, b)[-1][-1] for a, b in pairwise(cuts)]
        yield tables.choice(counts, [min(draw.choice((0, 0, draw.randint(0, u))), u) for u in units])


def same_numbers(found: FitShown) -> bool:
    """Whether the line that is printed has the numbers of the search."""
    best = found.found.best
    if best is None:
        return True
    _, *words = shlex.split(found.again)
    told = subprocess.run([sys.executable, "-m", "ggmltool", *words, "--json"], capture_output=True, check=True)
    placed = json.loads(told.stdout)
    totals: dict[str, int] = {}
    for use in placed["devices"]:
        totals[use["device"]] = totals.get(use["device"], 0) + use["total"]
    needed = {device: needs.total for device, needs in best.needs.items()}
    return totals == needed and [g["splits"] for g in placed["graphs"]] == [g.splits for g in best.graphs]


def as_llama_cpp(found: FitShown) -> None:
    """Raise AssertionError where real llama.cpp puts the model otherwise."""
    best = found.found.best
    if best is None:
        return
    path = Path(found.wishes.argument)
    gpus = [FakeGpu(f"CUDA{i}", memory=mib << 20) for i, mib in enumerate(memory(path, len(best.gpus)))]
    options = best.choice.options(found.wishes.space(load_spec(_captured(found))).base, best.n_layer)
    overrides = tuple((o.pattern.pattern, o.buft) for o in options.overrides)
    context = best.setting.capture_options(found.wishes.base)
    settings = Settings(options.n_gpu_layers, tensor_split=options.tensor_split, overrides=overrides)
    check(path, gpus, replace(settings, options=replace(context, phase="prompt")))


def _captured(found: FitShown) -> dict[str, object]:
    return capture(Path(found.wishes.argument), found.wishes.base).scenario


def _told(name: str, n_gpus: int, objective: Objective, most: int) -> bool:
    """Check one, and say what was found; whether all of it is as it has to be."""
    found = fitted(real(name), n_gpus, objective)
    others = list(better(found, most))
    same = same_numbers(found)
    as_llama_cpp(found)
    proved = "proved" if found.found.proved else "not proved"
    sys.stdout.write(f"{name} on {n_gpus}, {objective}: {found.again.partition(' --device')[2]} {proved}, ")
    sys.stdout.write(f"{len(others)} of {most} better, numbers {'agree' if same else 'DIFFER'}\n")
    sys.stdout.writelines(f"  better: {choice}\n" for choice in others[:3])
    sys.stdout.flush()
    return same and not others


def main() -> int:
    """Check all that is asked for; 1 if anything is not as it has to be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--objective", choices=OBJECTIVES, nargs="*", default=["fastest"])
    parser.add_argument("models", nargs="*", default=list(REAL_MODELS))
    asked = parser.parse_args()
    runs = product(asked.models, asked.gpus, asked.objective)
    return int(not all(_told(*run, asked.most) for run in runs))


if __name__ == "__main__":
    sys.exit(main())
