"""The JSON of placements: where a captured model goes and whether it fits, one way or many."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from ggmltool.estimate.forecast import SOME_HOST
from ggmltool.show.document import Error, EstimateRow, ReleaseDocument, Row
from ggmltool.views.place.chosen_document import FitRow
from ggmltool.views.place.sweep import costs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ggmltool.estimate.forecast import Speeds
    from ggmltool.estimate.records import Rates
    from ggmltool.inspect.chosen import Chosen
    from ggmltool.inspect.placed import Placed
    from ggmltool.inspect.swept import Sweep, Swept


class UseRow(Row):
    """What lies in the buffers of a type on a device, in bytes; how much the device has, what is left of it, and the
    margin that has to be; null where the memory is not known."""

    device: str
    buft: str
    weights: int
    cache: int
    compute: int
    output: int
    total: int
    memory: int | None
    left: int | None
    margin: int | None


class PlacedGraph(Row):
    """A graph: its splits, and the bytes that they copy."""

    graph: str
    splits: int
    copied: int


class LayerRow(Row):
    """The device of a layer, or of the output layer."""

    layer: int | str
    device: str


class PlacedRow(Row):
    """A tensor of the model: where it goes, by which `rule`; `option`: an option says so; `used`: a graph reads it."""

    id: str
    name: str
    kind: str
    layer: str
    type: str
    nbytes: int
    buft: str
    device: str
    rule: str
    option: bool
    used: bool


class UnsupportedRow(Row):
    """An op that a device does not support, why, and how many nodes run elsewhere for it."""

    backend: str
    op: str
    why: str
    lacks: bool
    runs_on: str
    nodes: int


class ShareRow(Row):
    """With -sm tensor, the part of 1 of all cut tensors that a GPU was to have, and has; the bytes that are whole."""

    gpu: str
    asked: float
    got: float
    whole: int


class SpeedsRow(Row):
    """What is estimated of a placement: tokens of answers a second, tokens of a prompt a second, and the seconds to the
    first token behind a prompt of `n_prompt` tokens, `n_depth` tokens being in the caches; null for what was not
    captured. `rates` names the hardware of each backend, null where nobody named it."""

    tokens_per_second: EstimateRow | None
    prompt_tokens_per_second: EstimateRow | None
    first_token: EstimateRow | None
    n_prompt: int
    n_depth: int
    n_seqs: int
    rates: dict[str, str | None]

    @classmethod
    def of(cls, speeds: Speeds, rates: Mapping[str, Rates]) -> SpeedsRow:
        """The speeds of a placement on backends of these rates."""
        token, prompt, first = (
            None if estimate is None else EstimateRow.of(estimate)
            for estimate in (speeds.token_rate, speeds.prompt_rate, speeds.prompt)
        )
        named = {name: None if of is SOME_HOST else of.name for name, of in rates.items()}
        return cls(token, prompt, first, speeds.n_prompt, speeds.cached, speeds.n_seqs, named)


class PlacementDocument(ReleaseDocument, kw_only=True):
    """`place --json`: where llama.cpp puts a captured model, tensor by tensor, and whether it fits.

    `short` is what devices lack; `decided` says which part of llama.cpp decided what; `with_pipeline_copies` are the
    bytes that the copies of pipeline parallelism would need, where there are none. `speeds` are estimates, where the
    hardware of the devices is named. With --fit, `fit` is llama.cpp's own choice.
    """

    main_table = "devices"
    kind: Literal["placement"] = "placement"
    options: dict[str, Any]
    fits: bool
    short: dict[str, int]
    graphs: list[PlacedGraph]
    parallel: bool
    no_pipeline_because: str | None
    with_pipeline_copies: dict[str, int] | None
    decided: dict[str, str]
    devices: list[UseRow]
    layers: list[LayerRow]
    tensors: list[PlacedRow]
    unsupported: list[UnsupportedRow]
    speeds: SpeedsRow | UnsetType = UNSET
    warnings: list[str]
    shares: list[ShareRow] | UnsetType = UNSET
    error: Error | UnsetType = UNSET
    fit: FitRow | UnsetType = UNSET

    @classmethod
    def of(cls, placed: Placed, chosen: Chosen | None = None) -> PlacementDocument:
        """A placement; `chosen` is what llama.cpp chose it as."""
        *layers, output = placed.layers
        return cls(
            ggml=placed.ggml,
            options=dict(placed.options),
            fits=not placed.short,
            short=placed.short,
            graphs=[PlacedGraph(*graph) for graph in placed.needs.graphs],
            parallel=placed.parallel,
            no_pipeline_because=placed.pipeline or None,
            with_pipeline_copies=dict(placed.needs.with_copies) or None,
            decided=dict(placed.needs.decided),
            devices=use_rows(placed),
            layers=[*(LayerRow(i, device) for i, device in enumerate(layers)), LayerRow("output", output)],
            tensors=placed_rows(placed),
            unsupported=[UnsupportedRow(*refused, there, n) for refused, there, n in placed.unsupported],
            speeds=UNSET if placed.speeds is None else SpeedsRow.of(placed.speeds, placed.rates),
            warnings=list(placed.warnings),
            shares=[ShareRow(*share) for share in placed.shares] or UNSET,
            error=UNSET if placed.error is None else Error(**placed.error),
            fit=UNSET if chosen is None else FitRow.of(chosen),
        )


def placed_rows(placed: Placed) -> list[PlacedRow]:
    """All weights and caches."""
    return [PlacedRow(*t) for t in placed.tensors]


def use_rows(placed: Placed) -> list[UseRow]:
    """What lies in the buffers of each type."""
    return [
        UseRow(
            **asdict(use),
            total=use.total,
            memory=placed.needs.memory.get(use.device),
            left=placed.needs.left(use.device),
            margin=placed.needs.margins.get(use.device, 0) if use.device in placed.needs.memory else None,
        )
        for use in placed.needs.uses
    ]


class SweepDocument(ReleaseDocument, kw_only=True):
    """`sweep --json`: many placements of a captured model; `best` is the number of the largest that fits.

    A placement has a key for every option that varies, `splits` and `copied` (of several graphs each with its name
    before it), `parallel`, `fits` and `error`; then by device `needs` in bytes, its `parts`, what is `left`, and the
    `margin` that has to be; with `with_pipeline_copies` where those would need more.
    """

    kind: Literal["sweep"] = "sweep"
    options: str
    devices: list[str]
    memory: dict[str, int]
    best: int | None
    placements: list[dict[str, Any]]

    @classmethod
    def of(cls, sweep: Sweep) -> SweepDocument:
        """A sweep."""
        best = sweep.best() if sweep.memory else None
        return cls(
            ggml=sweep.ggml,
            options=sweep.fixed,
            devices=list(sweep.devices),
            memory=dict(sweep.memory),
            best=None if best is None else list(sweep.swept).index(best),
            placements=[{**costs_of(s), **_bytes(s)} for s in sweep.swept],
        )


def _bytes(s: Swept) -> dict[str, Any]:
    parts = {device: needs._asdict() for device, needs in s.needs.items()}
    needs = {device: needs.total for device, needs in s.needs.items()}
    more = {"with_pipeline_copies": dict(s.with_copies)} if s.with_copies else {}
    return {"needs": needs, "parts": parts, "left": dict(s.left), "margin": dict(s.margins), **more}
