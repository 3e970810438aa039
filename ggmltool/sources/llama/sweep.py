"""Many placements of captured models, each planned, side by side in several processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.estimate.forecast import PROMPT, Forecast, Speeds, forecast
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.needs import GraphCost, Needs
from ggmltool.sources.llama.processes import can_fork, in_processes
from ggmltool.sources.llama.search.split import best_split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ggmltool.sources.llama.layers import PlaceOptions
    from ggmltool.sources.llama.place import Placer

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


class Bytes(NamedTuple):
    """What a device's memory is needed for."""

    weights: int
    cache: int
    compute: int
    output: int

    @property
    def total(self) -> int:
        return sum(self)


NOTHING = Bytes(0, 0, 0, 0)


class Outcome(NamedTuple):
    """What a placement came to: bytes needed on each device and left there (where its memory is known), what has to
    stay free of that, and what each graph is planned to.

    `tensor_split` is the split that was found; `with_copies` what pipeline copies would need, where they do not fit;
    `parallel` says whether there are some; `error` is ggml's message if there is no plan. `speeds` are estimates, None
    if the rates of devices are not known.
    """

    n_gpu_layers: int
    needs: dict[str, Bytes]
    left: dict[str, int]
    margins: dict[str, int]
    graphs: tuple[GraphCost, ...]
    tensor_split: tuple[int, ...]
    parallel: bool
    with_copies: dict[str, int]
    error: str
    speeds: Speeds | None


_measurers: list[Measurer] = []
"""The models of the sweep under way. Processes are forked, so that they have them without reading anything again."""

_forecasts: dict[tuple[int, int, int], Forecast | None] = {}
"""What tells their speeds, by the numbers of the model, of tokens in the caches, and of tokens of a prompt."""


def sweep(
    placers: Sequence[Placer], jobs: Sequence[Job], processes: int, done: Callable[[], None] | None = None
) -> list[Outcome]:
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


def _outcome(job: Job) -> Outcome:
    measurer = _measurers[job.model]
    found: tuple[int, ...] = ()
    if job.search:
        found, needs = best_split(measurer, job.options, job.margins)
    else:
        needs = measurer.needs(job.options, job.margins)
    devices = dict.fromkeys(use.device for use in needs.uses)
    told = _forecasts[job.model, job.n_depth, job.n_prompt]
    return Outcome(
        needs.n_gpu_layers,
        {device: _bytes(needs, device) for device in devices},
        {device: left for device in devices if (left := needs.left(device)) is not None},
        {device: margin for device, margin in needs.margins.items() if device in needs.memory},
        needs.graphs,
        found,
        needs.parallel,
        dict(needs.with_copies),
        dict(needs.error or ()).get("message") or "",
        told.speeds(needs.splits, needs.parallel) if told is not None and needs.error is None else None,
    )


def _bytes(needs: Needs, device: str) -> Bytes:
    mine = [use for use in needs.uses if use.device == device]
    return Bytes(*(sum(getattr(use, kind) for use in mine) for kind in Bytes._fields))
