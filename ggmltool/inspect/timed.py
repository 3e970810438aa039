"""How long a plan takes on the devices of its scenario, split by split: an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.forecast import SOME_HOST, forecast, is_gpu
from ggmltool.estimate.planned import PlannedSplit, splits_of
from ggmltool.estimate.rates import rates_of_backend
from ggmltool.estimate.records import Estimate, Rates, added
from ggmltool.estimate.seconds import Estimator
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.watched import watch


class SplitTime(NamedTuple):
    """The seconds of a split: of its `nodes`, and of the `inputs` that are copied before, `nbytes` in all."""

    split: int
    backend: str
    nodes: int
    inputs: int
    nbytes: float
    computes: Estimate
    copies: Estimate


class Timed(NamedTuple):
    """The seconds of a plan.

    `n_tokens` are those of the batch, None for a graph that is no llama.cpp's; `cached` those in the caches before it.
    `pinned` is the time of all if weights on the host were in pinned memory, None if none are copied; `other` the time
    with op offload the other way round, where that plans otherwise. `rates` are those of each backend; a host among
    `assumed` has some that nobody named.
    """

    plan: Plan
    n_tokens: int | None
    cached: int
    splits: Sequence[SplitTime]
    pinned: Estimate | None
    other: tuple[bool, Estimate] | None
    rates: Mapping[str, Rates]
    assumed: Sequence[str]

    @property
    def computes(self) -> Estimate:
        """The seconds of all nodes."""
        return added(s.computes for s in self.splits)

    @property
    def copies(self) -> Estimate:
        """The seconds of all copies."""
        return added(s.copies for s in self.splits)

    @property
    def all(self) -> Estimate:
        """The seconds of everything, one after the other."""
        return self.computes + self.copies


def timed(opened: Opened, plan: Plan, moment: Moment, cached: int = 0) -> Timed:
    """The seconds of a plan, of its splits, and of what could be otherwise. Raises InspectError without rates."""
    model = opened.model
    told = forecast(model, cached)
    if told is None:
        lacking = [b.name for b in model.backends if is_gpu(b) and rates_of_backend(b) is None]
        raise InspectError(
            f"how fast is {' and '.join(lacking or [b.name for b in model.backends])}? Name the hardware, for example "
            "`rates: RTX 3090` at a backend, or `ggmltool place --device 'RTX 3090'`; `ggmltool backends --rates` "
            "lists what is known"
        )
    graph = plan.graph or ""
    estimator = told.estimator(graph, cached)
    splits = splits_of(plan) if plan.ok else []
    return Timed(
        plan,
        told.n_tokens.get(graph),
        cached,
        [_split(at.id, split, estimator) for at, split in zip(plan.splits, splits, strict=False)],
        _pinned(splits, estimator),
        _other(opened, plan, moment, estimator),
        told.rates,
        [name for name, rates in told.rates.items() if rates is SOME_HOST],
    )


def _split(i: int, split: PlannedSplit, estimator: Estimator) -> SplitTime:
    return SplitTime(
        i,
        split.backend,
        split.i_end - split.i_start,
        len(split.inputs),
        sum(estimator.copied_nbytes(c, split) for c in split.inputs),
        estimator.compute(split),
        added(estimator.copy(c, split) for c in split.inputs),
    )


def _pinned(splits: Sequence[PlannedSplit], estimator: Estimator) -> Estimate | None:
    """The seconds of all if no weight had to be copied from pages."""
    if (
        not any(estimator.work.copied_as(c.id).what == "weight" for s in splits for c in s.inputs)
        or estimator.weights_pinned
    ):
        return None
    return Estimator(estimator.work, estimator.rates, True, estimator.copies_experts).seconds(splits)


def _other(opened: Opened, plan: Plan, moment: Moment, estimator: Estimator) -> tuple[bool, Estimate] | None:
    """Op offload the other way round, if that plans otherwise."""
    offload = not opened.model.scheduler.op_offload
    other = watch(opened.what_if(WhatIf(op_offload=offload)), moment).plan
    if not (plan.ok and other.ok) or other.splits == plan.splits:
        return None
    return offload, estimator.seconds(splits_of(other))
