"""How long `fit` takes: a model of experts on two GPUs, over many settings, and candidates planned one by one.

    python -m tests.benchmarks.searching

Prints figures with the goal of each, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, product

from ggmltool.ask.fit.record import fit
from ggmltool.ask.fit.wishes import Ranges, Wishes
from ggmltool.ask.place.options import Placing
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.processes import in_processes
from ggmltool.sources.llama.search.anatomy import Request, Speed, anatomies
from ggmltool.sources.llama.search.candidates import CandidatePlanner
from ggmltool.sources.llama.search.space import Choice, Setting, Space
from ggmltool.sources.llama.search.sweep import usable_processes
from ggmltool.sources.llama.search.tables import Tables
from tests.sources.real_models import real

MODEL = "qwen3-30b-a3b"
DEVICES = ("CUDA0:8GiB", "CUDA1:6GiB")
CONTEXTS = (4096, 8192, 16384, 32768)
UBATCHES = (512, 1024)
CANDIDATES = 500
GOAL = 10.0
"""Seconds of a search over 500 candidates, on two cores."""


@contextmanager
def timed(told: list[str]) -> Iterator[None]:
    """Print what was told meanwhile, with the seconds that passed and those of all processes."""
    start, used = time.perf_counter(), sum(os.times()[:4])
    yield
    took, used = time.perf_counter() - start, sum(os.times()[:4]) - used
    print(f"{' '.join(told)}  {took:6.2f} s, {used:.2f} s of work  (goal on two cores: {GOAL:.0f} s)")


def fits(contexts: tuple[int, ...], ubatches: tuple[int, ...], processes: int) -> None:
    """A search as it is asked for, with its captures: what bounds rule out is not planned."""
    ranges, told = Ranges(contexts=contexts, ubatches=ubatches), list[str]()
    wishes = Wishes(str(real(MODEL)), ranges, Placing(device=DEVICES, n_depth=4096))
    with timed(told):
        counts = fit(wishes, processes=processes).facts.found.counts
        told.append(
            f"fit, {counts.settings} settings, {processes} processes: {counts.placements} placements, "
            f"{counts.planned} of them planned, the rest ruled out by bounds of whole groups"
        )


def choices(tables: Tables) -> Iterator[Choice]:
    """All layers on two GPUs, in every split, with the experts of ever more layers on the CPU."""
    n = tables.n
    for units, first in product(range(0, tables.ways(0, n)[-1][-1] + 1, 3), range(1, n, 4)):
        counts = (first, n - first)
        most = [tables.ways(0, first)[-1][-1], tables.ways(first, n)[-1][-1]]
        spilled = [min(units, most[0]), min(max(units - most[0], 0), most[1])]
        yield tables.choice(counts, spilled)


def planned(processes: int) -> None:
    """As many candidates as the goal names, each of them planned, with nothing ruled out; the capture is counted."""
    told = list[str]()
    with timed(told):
        setting, space, request = Setting(8192), Space(contexts=(8192,)), Request()
        model = load_spec(capture(real(MODEL), setting.capture_options(Wishes("", Ranges(), Placing()).base)).scenario)
        placer = Placer(model, read_devices([*DEVICES]))
        speed = Speed(placer, anatomies(placer, request.cached), {}, request)
        planner = CandidatePlanner(Measurer(placer), space, speed, setting, 0)
        asked = list(islice(dict.fromkeys(choices(Tables(placer, space))), CANDIDATES))
        planner.plan(asked[0])
        found = in_processes(planner.plan, asked, processes)
        nodes = max(len(graph.nodes) for graph in model.graphs.values())
        told.append(
            f"{len(found)} candidates of {nodes} nodes, {processes} processes: all planned, prompt and token, "
            f"{sum(c.fits for c in found)} fit"
        )


def main() -> None:
    for processes in sorted({1, usable_processes()}):
        fits((8192,), (512,), processes)
        fits(CONTEXTS, UBATCHES, processes)
        planned(processes)


if __name__ == "__main__":
    main()
