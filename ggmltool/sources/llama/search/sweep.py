"""-ts auto: how GPUs share the layers so that the fullest of them has the most memory left."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from ggmltool.estimate.forecast import PROMPT, Forecast, Speeds, forecast
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import Measurement, Needs
from ggmltool.sources.llama.place.options import PlaceOptions, chosen_gpus
from ggmltool.sources.llama.place.place import Placement, Placer
from ggmltool.sources.llama.processes import can_fork, in_processes

_MOST_PLANS = 60

Counts = tuple[int, ...]
"""Layers on each GPU, the output's among them: as -ts, they make llama.cpp split just so."""


def best_split(measurer: Measurer, options: PlaceOptions, margins: Sequence[int] = (0,)) -> tuple[Counts, Needs]:
    """The layers on each GPU that leave the fullest of them most room, and what comes of that; () for one GPU.

    Raises PlaceError, also if the memory of a GPU is unknown.
    """
    placer = measurer.placer
    gpus = chosen_gpus(placer.gpus, options)
    if len(gpus) < 2 or not options.n_gpu(placer.parts.n_layer):
        return (), measurer.needs(options, margins)
    unknown = next((gpu.name for gpu in gpus if gpu.memory is None), None)
    if unknown is not None:
        raise PlaceError(f"-ts auto needs the memory of each GPU: --device {unknown}:24GiB")
    return _Search(measurer, options, margins, [gpu.name for gpu in gpus]).best()


class _Search:
    """The search of one placement. `tried` has every split that was planned.

    What layers need is added up, and the best shares are found for compute buffers as large as in the last plan; those
    are planned, until nothing new comes of it. Then layers are moved from the fullest GPU to others, one at a time, for
    as long as that helps.
    """

    def __init__(self, measurer: Measurer, options: PlaceOptions, margins: Sequence[int], gpus: list[str]) -> None:
        self.measurer, self.placer = measurer, measurer.placer
        self.options, self.margins, self.gpus = options, margins, gpus
        n_layer = self.placer.parts.n_layer
        self.n = min(options.n_gpu(n_layer), n_layer + 1)
        self.first = n_layer + 1 - self.n
        self.tried: dict[Counts, Needs] = {}

    def best(self) -> tuple[Counts, Needs]:
        n, k = self.n, len(self.gpus)
        counts = tuple(n * (i + 1) // k - n * i // k for i in range(k))
        needs = self.plan(counts)
        layers = list(accumulate(self.layers(self.placer.place(self.given(counts))), initial=0))
        while True:
            counts = self.shares(layers, self.free(counts, needs, layers))
            if counts in self.tried:
                break
            needs = self.plan(counts)
        counts = max(self.tried, key=self.room)
        while len(self.tried) < _MOST_PLANS:
            better = max(self.moved(counts), key=self.room, default=counts)
            if self.room(better) <= self.room(counts):
                break
            counts = better
        return counts, self.tried[counts]

    def given(self, counts: Counts) -> PlaceOptions:
        """The options with these shares."""
        return replace(self.options, tensor_split=tuple(map(float, counts)))

    def plan(self, counts: Counts) -> Needs:
        """What becomes of these shares; planned once."""
        if counts not in self.tried:
            self.tried[counts] = self.measurer.needs(self.given(counts), self.margins)
        return self.tried[counts]

    def room(self, counts: Counts) -> tuple[int, ...]:
        """What each GPU has left beyond its margin, the fullest first: the more, the better."""
        room = self.plan(counts).room
        return tuple(sorted(room[gpu] for gpu in self.gpus))

    def layers(self, placement: Placement) -> list[int]:
        """Bytes of each layer that is on a GPU: its weights and caches that go where it goes."""
        bufts = {self.placer.devices[gpu].buft.name for gpu in self.gpus}
        out = [0] * self.n
        for t in placement.tensors:
            il = self.first + self.n - 1 if t.layer == "output" else int(t.layer) if t.layer.isdecimal() else -1
            if t.buft in bufts and il >= self.first and not t.rule.startswith("-"):
                out[min(il - self.first, self.n - 1)] += t.nbytes
        return out

    def free(self, counts: Counts, needs: Needs, layers: Sequence[int]) -> list[int]:
        """What each GPU has for layers, if all else takes what it takes in this plan."""
        ends = list(accumulate(counts, initial=0))
        room = needs.room
        return [room[gpu] + layers[ends[i + 1]] - layers[ends[i]] for i, gpu in enumerate(self.gpus)]

    def shares(self, layers: Sequence[int], free: Sequence[int]) -> Counts:
        """The shares that leave most room on the fullest GPU; `layers` are sums of bytes up to each."""
        n = self.n
        # For the first GPUs and the first layers: the most room of the fullest, and how many layers the last one has.
        best = [(free[0] - layers[m], m) for m in range(n + 1)]
        taken = [[count for _, count in best]]
        for more in free[1:]:
            best = [
                max((min(best[m - c][0], more - layers[m] + layers[m - c]), c) for c in range(m + 1))
                for m in range(n + 1)
            ]
            taken.append([count for _, count in best])
        counts: list[int] = []
        for row in reversed(taken):
            counts.append(row[n])
            n -= row[n]
        return tuple(reversed(counts))

    def moved(self, counts: Counts) -> Iterator[Counts]:
        """The shares with one layer less on the fullest GPU."""
        room: Mapping[str, int] = self.plan(counts).room
        fullest = min(range(len(counts)), key=lambda i: room[self.gpus[i]])
        for other in range(len(counts)):
            if other != fullest and counts[fullest]:
                step = list(counts)
                step[fullest] -= 1
                step[other] += 1
                yield tuple(step)


_EACH = 4
"""Placements that a process is worth."""


class Job(NamedTuple):
    """A placement to make: which of the models, with what options, and what has to stay free on the GPUs.

    `search` is -ts auto: the best split is looked for. Its speeds are for a prompt of `n_prompt` tokens, and with
    `n_depth` in the caches.
    """

    model: int
    options: PlaceOptions
    margins: tuple[int, ...] = (0,)
    search: bool = False
    n_depth: int = 0
    n_prompt: int = PROMPT


@dataclass(frozen=True, kw_only=True)
class JobOutcome(Measurement):
    """What a placement came to: `tensor_split` is the split that was found, `speeds` are estimates, None if the rates
    of devices are not known.
    """

    n_gpu_layers: int
    tensor_split: tuple[int, ...]
    speeds: Speeds | None


_measurers: list[Measurer] = []
"""The models of the sweep under way. Processes are forked, so that they have them without reading anything again."""

_forecasts: dict[tuple[int, int, int], Forecast | None] = {}
"""What tells their speeds, by the numbers of the model, of tokens in the caches, and of tokens of a prompt."""


def sweep(
    placers: Sequence[Placer], jobs: Sequence[Job], processes: int, done: Callable[[], None] | None = None
) -> list[JobOutcome]:
    """The outcome of every job, in their order; `done` hears of each. Raises PlaceError for options that are wrong."""
    with _given(placers, jobs):
        n = min(processes, -(-len(jobs) // _EACH))
        if n > 1 and can_fork():
            return in_processes(_outcome, jobs, n, done)
        outcomes = []
        for job in jobs:
            outcomes.append(_outcome(job))
            if done is not None:
                done()
        return outcomes


def usable_processes() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _given(placers: Sequence[Placer], jobs: Sequence[Job]) -> Iterator[None]:
    """The models, out of reach of the collector: a forked process would copy all that it looks at."""
    _measurers[:] = map(Measurer, placers)
    for asked in dict.fromkeys((job.model, job.n_depth, job.n_prompt) for job in jobs):
        i, *tokens = asked
        _forecasts[asked] = forecast(placers[i].model, *tokens)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _measurers.clear()
        _forecasts.clear()


def _outcome(job: Job) -> JobOutcome:
    measurer = _measurers[job.model]
    found: tuple[int, ...] = ()
    if job.search:
        found, needs = best_split(measurer, job.options, job.margins)
    else:
        needs = measurer.needs(job.options, job.margins)
    told = _forecasts[job.model, job.n_depth, job.n_prompt]
    return JobOutcome(
        **needs.measurement(),
        n_gpu_layers=needs.n_gpu_layers,
        tensor_split=found,
        speeds=told.speeds(needs.splits, needs.parallel) if told is not None and needs.error is None else None,
    )
