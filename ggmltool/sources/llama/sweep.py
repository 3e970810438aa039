"""Many placements of captured models, each planned, side by side in several processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.sources.llama.fit import GraphCost, measure
from ggmltool.sources.llama.processes import can_fork, in_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ggmltool.sources.llama.layers import PlaceOptions
    from ggmltool.sources.llama.place import Placer

_EACH = 4
"""Placements that a process is worth."""


class Job(NamedTuple):
    """A placement to make: which of the models, with what options."""

    model: int
    options: PlaceOptions


class Outcome(NamedTuple):
    """What a placement came to: bytes needed on each device and left there (where its memory is known), and what each
    graph is planned to; `error` is ggml's message where there is no plan.
    """

    n_gpu_layers: int
    needs: dict[str, int]
    left: dict[str, int]
    graphs: tuple[GraphCost, ...]
    error: str


_placers: list[Placer] = []
"""The models of the sweep under way. Processes are forked, so that they have them without reading anything again."""


def sweep(
    placers: Sequence[Placer], jobs: Sequence[Job], processes: int, done: Callable[[], None] | None = None
) -> list[Outcome]:
    """The outcome of every job, in their order; `done` hears of each. Raises PlaceError for options that are wrong."""
    with _given(placers):
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
def _given(placers: Sequence[Placer]) -> Iterator[None]:
    """The models, out of reach of the collector: a forked process would copy all that it looks at."""
    _placers[:] = placers
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _placers.clear()


def _outcome(job: Job) -> Outcome:
    placement = _placers[job.model].place(job.options)
    fit = measure(placement)
    devices = dict.fromkeys(use.device for use in fit.uses)
    error = dict(fit.plan.error or ()).get("message") or ""
    return Outcome(
        placement.n_gpu_layers,
        {device: fit.needs(device) for device in devices},
        {device: left for device in devices if (left := fit.left(device)) is not None},
        fit.graphs,
        error if not fit.plan.ok else "",
    )
