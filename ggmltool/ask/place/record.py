"""A placement of llama.cpp's: what lies where, what each device needs, whether it fits, and why ops are not on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.chosen import FitRow
from ggmltool.ask.place.options import Asked, Common, devices_of
from ggmltool.estimate.forecast import SOME_HOST, Speeds, forecast
from ggmltool.estimate.records import Rates
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.decisions import TurnedDown, unsupported
from ggmltool.inspect.opened import answers_for
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.show.document import Error, EstimateRow, ReleaseDocument, Row, part
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.meta_device import Share, place_on_all
from ggmltool.sources.llama.place.needs import Needs, PlannedNeeds, place_and_measure
from ggmltool.sources.llama.place.place import Placement, Placer
from ggmltool.sources.llama.search.sweep import best_split
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ggmltool.ask.place.chosen import Chosen
    from ggmltool.estimate.forecast import Speeds
    from ggmltool.inspect.opened import Opened
    from ggmltool.sources.llama.place.options import PlaceOptions


class PlacedTensor(NamedTuple):
    """A weight or a cache: `layer` is a number, `input` or `output`; `rule` says what put it into the buffer type."""

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


class Placed(NamedTuple):
    """A placement with its plan in numbers.

    `layers` are the devices of the layers, then that of the output layer; `needs` is what every device needs, and what
    the graphs are planned to. `pipeline` says why there are no pipeline copies ("": there are). `error` is ggml's, if
    there is no plan. `program` says in words whose memory it is, `ggml` which release plans.
    `shares` are what GPUs have that share every tensor (-sm tensor).
    `speeds` are estimates by the `rates` of the backends, None if those are not known.
    `unsupported` are ops that a GPU does not support, with the backend that runs them and how many nodes there are.
    """

    options: Mapping[str, Any]
    layers: Sequence[str]
    backends: Sequence[str]
    tensors: Sequence[PlacedTensor]
    needs: Needs
    pipeline: str
    parallel: bool
    warnings: Sequence[str]
    error: Mapping[str, str | None] | None
    program: str
    ggml: str
    unsupported: Sequence[tuple[TurnedDown, str, int]] = ()
    shares: Sequence[Share] = ()
    speeds: Speeds | None = None
    rates: Mapping[str, Rates] = {}

    @property
    def short(self) -> dict[str, int]:
        """What devices lack to have their margin left, in bytes; {} where it fits."""
        return self.needs.short


class Found(NamedTuple):
    """A placement with its record: the placed model, and the options as one would write them."""

    placed: Placed
    model: ScenarioSpec
    plan: Plan
    words: str


def place(
    opened: Opened,
    common: Common,
    asked: Asked,
    captured_with: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> Found:
    """Place a captured model and reserve its graphs, with the best -ts where it is searched.

    `captured_with` are the options that the capture was made with, as text; `note` is told of devices that are not
    known. Raises InspectError.
    """
    options = asked.options(opened.model, common)
    opened.scenario.graph_name()
    devices = devices_of(opened.model, common, len(options.tensor_split), note)
    found: tuple[int, ...] = ()
    shares: tuple[Share, ...] = ()
    if asked.searched and options.split_mode == "tensor":
        raise InspectError("-ts auto gives whole layers to GPUs; with -sm tensor, name the shares")
    try:
        if options.split_mode == "tensor":
            placement, needs, shares = place_on_all(opened.model, devices, options, common.margin)
        else:
            placer = Placer(opened.model, devices)
            if asked.searched:
                found, *_ = best_split(Measurer(placer), options, common.margin)
                options = replace(options, tensor_split=tuple(map(float, found)))
            placement, needs = place_and_measure(placer, options, common.margin, probe=True)
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}", error.refused) from None
    words = " ".join(filter(None, [asked.words(common, found), captured_with]))
    told = None
    if needs.error is None and not shares:
        told = forecast(placement.model, common.n_depth, common.n_prompt)
    speeds = None if told is None else told.speeds(needs.splits, needs.parallel)
    placed = _placed(placement, needs, options, words, shares)._replace(
        speeds=speeds, rates={} if told is None else told.rates
    )
    return Found(placed, placement.model, needs.plan, words)


def _placed(
    placement: Placement, needs: PlannedNeeds, options: PlaceOptions, words: str, shares: Sequence[Share]
) -> Placed:
    """The records that the view shows."""
    devices = {use.buft: use.device for use in needs.uses}
    tensors = [
        PlacedTensor(
            t.id, t.name, t.kind, t.layer, t.type, t.nbytes, t.buft, devices.get(t.buft, t.buft), t.rule,
            t.rule.startswith("-"), t.used,
        )
        for t in placement.tensors
    ]  # fmt: skip
    told: dict[str, Any] = {k: v for k, v in asdict(options).items() if k not in ("overrides", "assigns")}
    told["overrides"] = [o.option for o in options.overrides]
    told |= {name: placement.model.meta[name] for name in ("program", "n_outputs") if name in placement.model.meta}
    return Placed(
        options={"command_line": words, **told, "n_gpu_layers": placement.n_gpu_layers},
        layers=[*placement.layers.layers, placement.layers.output],
        backends=[b.name for b in placement.model.backends],
        tensors=tensors,
        needs=needs,
        pipeline=placement.pipeline,
        parallel=placement.model.scheduler.parallel,
        warnings=(*_without_effect(placement, options), *needs.warnings),
        error=dict(needs.error) if needs.error is not None else None,
        program=answers_for(placement.model.meta),
        ggml=placement.model.ggml,
        unsupported=_unsupported(placement.model, needs.plan),
        shares=shares,
    )


def _unsupported(model: ScenarioSpec, plan: Plan) -> list[tuple[TurnedDown, str, int]]:
    """The ops of the planned graph that a GPU does not support, the most frequent first."""
    if not plan.ok or plan.graph is None:
        return []
    run = Scenario(model).start()
    nodes = run.build(plan.graph).nodes
    found = unsupported(run.backends, nodes, {n.id: n.backend for n in plan.nodes})
    return [(refused, there, n) for (refused, there), n in found.most_common()]


def _without_effect(placement: Placement, options: PlaceOptions) -> list[str]:
    """What was asked for and moves nothing."""
    out = []
    if not placement.layers.layers:
        out.append("there are no layers: no tensor has a name such as blk.0.attn_q.weight, which captures have")
    asked_for = dict.fromkeys(override.option for override in options.overrides)
    idle = [option for option in asked_for if not any(t.rule.startswith(option) for t in placement.tensors)]
    return out + [f"no weight is placed by {option}" for option in idle]


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
    captured. `rates` names the hardware of each backend, null where none is named."""

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


class PlacementTable(ReleaseDocument, kw_only=True):
    """`place --json`: where llama.cpp puts a captured model, tensor by tensor, and whether it fits.

    `short` is what devices lack; `decided` says which part of llama.cpp decided what; `with_pipeline_copies` are the
    bytes that the copies of pipeline parallelism would need, where there are none. `speeds` are estimates, where the
    hardware of the devices is named. With --fit, `fit` is llama.cpp's own choice.
    """

    view = "placement"
    tells_refusal = ("text", "json", "csv", "scenario")
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


class PlacementShown(PlacementTable, kw_only=True):
    """The placement as it was found, `chosen` by llama.cpp or not; `all_tensors`: it is shown tensor by tensor."""

    placed: Placed
    chosen: Chosen | None
    all_tensors: bool

    @property
    def needs(self) -> Needs:
        """What lies on each device."""
        return self.placed.needs

    def document(self) -> PlacementTable:
        """As numbers and words."""
        return part(self, PlacementTable)

    def rows(self) -> tuple[PlacedTensor, ...]:
        """The tensors of the model."""
        return tuple(self.placed.tensors)

    @classmethod
    def of(cls, placed: Placed, chosen: Chosen | None = None, all_tensors: bool = False) -> PlacementShown:
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
            placed=placed,
            chosen=chosen,
            all_tensors=all_tensors,
        )


def placement_of(
    found: Found, title: str, chosen: Chosen | None = None, all_tensors: bool = False
) -> Answer[PlacementShown]:
    """A placement as an answer: it is fine if it fits, ggml plans it, and llama.cpp chose it where it was to."""
    placed = found.placed
    fine = not placed.short and placed.error is None and (chosen is None or chosen.ok)
    return Answer(PlacementShown.of(placed, chosen, all_tensors), title, found.words, found.plan, fine)


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
