"""How long a plan takes on the devices of its scenario, split by split: an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.estimate.forecast import SOME_HOST, Speeds, forecast, is_gpu, splits_of
from ggmltool.estimate.rates import rates_of_backend
from ggmltool.estimate.records import Estimate, Rates, added
from ggmltool.estimate.seconds import Estimator
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.watched import watch
from ggmltool.show.colors import term_colors
from ggmltool.show.document import EstimateRow, Row, StepDocument, head
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, rate_text, seconds_text, size
from ggmltool.state.errors import InspectError


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
    times = [
        SplitTime(
            at.id,
            split.backend,
            split.i_end - split.i_start,
            len(split.inputs),
            sum(estimator.copied_nbytes(c, split) for c in split.inputs),
            estimator.compute(split),
            added(estimator.copy(c, split) for c in split.inputs),
        )
        for at, split in zip(plan.splits, splits, strict=False)
    ]
    pinned = None
    if not estimator.weights_pinned and any(
        estimator.work.copied_as(c.id).what == "weight" for s in splits for c in s.inputs
    ):
        pinned = Estimator(estimator.work, estimator.rates, True, estimator.copies_experts).seconds(splits)
    offload = not opened.model.scheduler.op_offload
    otherwise = watch(opened.what_if(WhatIf(op_offload=offload)), moment).plan
    other = None
    if plan.ok and otherwise.ok and otherwise.splits != plan.splits:
        other = offload, estimator.seconds(splits_of(otherwise))
    assumed = [name for name, rates in told.rates.items() if rates is SOME_HOST]
    return Timed(plan, told.n_tokens.get(graph), cached, times, pinned, other, told.rates, assumed)


class SplitSecondsRow(Row):
    """A split: its nodes, the inputs that are copied before it with their bytes (of experts those that are used, of
    caches the filled cells), and the seconds of both."""

    split: int
    backend: str
    nodes: int
    inputs: int
    nbytes: int
    computes: EstimateRow
    copies: EstimateRow


class Seconds(StepDocument, kw_only=True):
    """`splits --seconds --json`: an estimate of the seconds that each split takes, and all of them.

    `n_tokens` are those of the batch, null for a graph that is no llama.cpp's, with `n_depth` in the caches before.
    `with_pinned_weights` are the seconds of all where weights on the host lie in pinned memory; `with_op_offload` or
    `without_op_offload` with that option the other way. `rates` names the hardware of each backend; that of `assumed`
    nobody named.
    """

    view = "seconds:shown"
    beside = ("timed",)
    """The seconds, with all their digits."""
    kind: Literal["seconds"] = "seconds"
    n_tokens: int | None
    n_depth: int
    seconds: EstimateRow
    computes: EstimateRow
    copies: EstimateRow
    splits: list[SplitSecondsRow]
    with_pinned_weights: EstimateRow | UnsetType = UNSET
    with_op_offload: EstimateRow | UnsetType = UNSET
    without_op_offload: EstimateRow | UnsetType = UNSET
    rates: dict[str, str]
    assumed: list[str]
    timed: Timed

    @property
    def all(self) -> Estimate:
        """The seconds of everything, one after the other."""
        return self.timed.all

    def rows(self) -> tuple[SplitTime, ...]:
        """The seconds of the splits."""
        return tuple(self.timed.splits)

    @classmethod
    def of(cls, timed: Timed) -> Seconds:
        """The seconds of a plan."""
        other = {} if timed.other is None else {timed.other[0]: EstimateRow.of(timed.other[1])}
        return cls(
            **head(timed.plan),
            n_tokens=timed.n_tokens,
            n_depth=timed.cached,
            seconds=EstimateRow.of(timed.all),
            computes=EstimateRow.of(timed.computes),
            copies=EstimateRow.of(timed.copies),
            splits=[
                SplitSecondsRow(
                    s.split, s.backend, s.nodes, s.inputs, round(s.nbytes),
                    EstimateRow.of(s.computes), EstimateRow.of(s.copies),
                )
                for s in timed.splits
            ],
            with_pinned_weights=UNSET if timed.pinned is None else EstimateRow.of(timed.pinned),
            with_op_offload=other.get(True, UNSET),
            without_op_offload=other.get(False, UNSET),
            rates={backend: rates.name for backend, rates in timed.rates.items()},
            assumed=list(timed.assumed),
            timed=timed,
        )  # fmt: skip


def shown(answer: Answer[Seconds], style: Style) -> str:
    """A line per split, then what all of it comes to, and what it could be otherwise."""
    timed = answer.facts.timed
    inks = term_colors(name for name, _ in timed.plan.backends)
    table = Table[SplitTime](
        Column("split", lambda s: f"#{s.split}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, ""))),
        Column("nodes", lambda s: s.nodes, right=True, drop=1),
        Column("copied", lambda s: size(round(s.nbytes)) if s.inputs else None, right=True, drop=2),
        Column("copies", lambda s: seconds_text(s.copies) if s.inputs else None, right=True),
        Column("computes", lambda s: seconds_text(s.computes), right=True),
    )
    parts = [heading(answer.title, [answer.heading, f"an estimate: {seconds_text(timed.all)}"], style)]
    if timed.splits:
        parts += ["\n", table.render(timed.splits, style)]
    lines = [f"copies {seconds_text(timed.copies)}, computes {seconds_text(timed.computes)}"]
    if timed.n_tokens is not None:
        batch = f"{count(timed.n_tokens, 'token')} with {timed.cached} in the cache"
        lines.append(f"{batch}: {rate_text(timed.all.rate(timed.n_tokens))} tokens/s")
    if timed.pinned is not None:
        lines.append(f"weights in pinned memory (--no-mmap): {seconds_text(timed.pinned)}")
    if timed.other is not None:
        offload, seconds = timed.other
        lines.append(f"{'with' if offload else 'without'} op offload: {seconds_text(seconds)}")
    wide = max(style.width, 20)
    wrapped = [line for text in (*lines, hardware(timed.rates)) for line in wrap(printable(text), wide)]
    return "".join([*parts, "\n", render_lines(wrapped, style)])


def speed_lines(speeds: Speeds, rates: Mapping[str, Rates]) -> list[str]:
    """What is estimated of a placement, and whose rates that is by."""
    lines = []
    deep = f" with {speeds.cached} in the cache" if speeds.cached else ""
    if speeds.token is not None and speeds.token_rate is not None:
        seqs = f" of {speeds.n_seqs} sequences" if speeds.n_seqs > 1 else ""
        lines.append(f"estimate: {rate_text(speeds.token_rate)} tokens/s{seqs}{deep}")
    if speeds.prompt is not None and speeds.prompt_rate is not None:
        lines.append(
            f"estimate: first token of a prompt of {speeds.n_prompt}{deep} after {seconds_text(speeds.prompt)}, "
            f"{rate_text(speeds.prompt_rate)} tokens/s"
        )
    return [*lines, hardware(rates)]


def hardware(rates: Mapping[str, Rates]) -> str:
    """The hardware of each backend, and for which nobody named it."""
    named = [f"{name} is {of.name}" for name, of in rates.items() if of is not SOME_HOST]
    assumed = [name for name, of in rates.items() if of is SOME_HOST]
    return ", ".join(named) + (f"; {' and '.join(assumed)} not named, taken for {SOME_HOST.name}" if assumed else "")
