"""The JSON of `fit`: the best placements of a model, what was given up for each, and the lines that run the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.views.place.documents import PlacedGraph, PlacedRow, UseRow, placed_rows, use_rows

if TYPE_CHECKING:
    from ggmltool.estimate.records import Estimate
    from ggmltool.inspect.fitting import Fit
    from ggmltool.sources.llama.search.candidates import Candidate
    from ggmltool.sources.llama.search.sweep import Bytes


class SecondsRow(Row):
    """An estimate in seconds: at least, likely, at most."""

    low: float
    mid: float
    high: float


class BytesRow(Row):
    """What a device is needed for, in bytes; what it has left and the margin that has to be, null where its memory is
    not known."""

    device: str
    weights: int
    cache: int
    compute: int
    output: int
    total: int
    left: int | None
    margin: int | None


class CandidateRow(Row):
    """A placement that was planned: its options in llama.cpp's spelling, seconds of one generated token of each
    sequence and of one token of a prompt (null where the devices' rates are not known or no such graph was captured),
    and what it has less of than was wanted most."""

    options: dict[str, str]
    n_ctx: int
    fits: bool
    seconds_token: SecondsRow | None
    seconds_prompt_token: SecondsRow | None
    graphs: list[PlacedGraph]
    parallel: bool
    devices: list[BytesRow]
    given_up: list[str]
    error: str | None


class CountsRow(Row):
    """How many placements there are, how many were planned, and how many graphs were captured for that."""

    placements: int
    planned: int
    captured: int


class FitDocument(ReleaseDocument, kw_only=True):
    """`fit --json`: `candidates` has the best placement of each setting that fits, the best of all first; `pareto` are
    the numbers of those that nothing beats in context and speed. `proved`: nothing that was left out can be better.

    `nearest` is what lacks the least where nothing fits. `devices` and `tensors` are those of the best (or the nearest)
    placement; `lines` run the best, by tool, and `again` shows it.
    """

    kind: Literal["fit"] = "fit"
    objective: str
    options: str
    fits: bool
    memory: dict[str, int]
    candidates: list[CandidateRow]
    pareto: list[int]
    proved: bool
    counts: CountsRow
    lines: dict[str, str]
    again: str
    devices: list[UseRow]
    tensors: list[PlacedRow]
    warnings: list[str]
    nearest: CandidateRow | UnsetType = UNSET

    @classmethod
    def of(cls, fit: Fit) -> FitDocument:
        """What was found."""
        found = fit.found
        ranked = [r.candidate for r in found.ranked]
        placed = fit.placed.placed
        return cls(
            ggml=fit.ggml,
            objective=fit.wishes.objective,
            options=fit.fixed,
            fits=found.best is not None,
            memory=dict(fit.memory),
            candidates=[_row(fit, r.candidate, r.given_up) for r in found.ranked],
            pareto=[ranked.index(c) for c in found.pareto],
            proved=found.proved,
            counts=CountsRow(found.counts.placements, found.counts.planned, found.counts.captured),
            lines=dict(fit.lines),
            again=fit.again,
            devices=use_rows(placed),
            tensors=placed_rows(placed),
            warnings=list(placed.warnings),
            nearest=UNSET if ranked or found.nearest is None else _row(fit, found.nearest, ()),
        )


def _row(fit: Fit, c: Candidate, given_up: tuple[str, ...]) -> CandidateRow:
    return CandidateRow(
        options=fit.wishes.options(c),
        n_ctx=c.n_ctx,
        fits=c.fits,
        seconds_token=_seconds(fit.token(c)),
        seconds_prompt_token=_seconds(fit.prompt(c)),
        graphs=[PlacedGraph(*graph) for graph in c.graphs],
        parallel=c.parallel,
        devices=[_bytes(device, needs, c) for device, needs in c.needs.items()],
        given_up=list(given_up),
        error=c.error or None,
    )


def _seconds(seconds: Estimate | None) -> SecondsRow | None:
    return None if seconds is None else SecondsRow(*seconds)


def _bytes(device: str, needs: Bytes, c: Candidate) -> BytesRow:
    left = c.left.get(device)
    return BytesRow(device, *needs, needs.total, left, None if left is None else c.margins.get(device, 0))
