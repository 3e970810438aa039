"""A placement of llama.cpp's: what lies where, what each device needs, whether it fits, and why ops are not on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.chosen import Chosen, FitRow
from ggmltool.ask.place.options import PlaceRequest, devices_of
from ggmltool.estimate.forecast import SOME_HOST, Speeds, forecast
from ggmltool.estimate.records import Rates
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.decisions import unsupported
from ggmltool.inspect.opened import Opened, answers_for
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.show.document import Error, EstimateRow, ReleaseDocument, Row, error_of
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.meta_device import GpuShare, place_on_all
from ggmltool.sources.llama.place.needs import PlannedNeeds, place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placement, Placer
from ggmltool.sources.llama.search.sweep import best_split
from ggmltool.state.errors import InspectError


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


@dataclass(frozen=True, slots=True)
class PlacedRow:
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
    """The placement as it was found, `chosen` by llama.cpp or not: the placed model, and what every device needs.
    `program` says in words whose memory it is; `estimates` are by the `rates` of the backends, None if those are not
    known. `all_tensors`: it is shown tensor by tensor."""

    model: ScenarioSpec
    needs: PlannedNeeds
    program: str
    estimates: Speeds | None
    rates: dict[str, Rates]
    chosen: Chosen | None
    all_tensors: bool

    @property
    def backends(self) -> list[str]:
        """The backends, in priority order."""
        return [b.name for b in self.model.backends]

    def rows(self) -> tuple[PlacedRow, ...]:
        """The tensors of the model."""
        return tuple(self.tensors)


def place(
    opened: Opened,
    asked: PlaceRequest[Any],
    captured_with: str = "",
    note: Callable[[str], None] = lambda text: None,
    chosen: Chosen | None = None,
) -> Answer[PlacementShown]:
    """Place a captured model and reserve its graphs, with the best -ts where it is searched. It is fine if it fits,
    ggml plans it, and llama.cpp chose it where it was to; its heading are the options as one would write them.

    `captured_with` are the options that the capture was made with, as text; `note` is told of devices that are not
    known. Raises InspectError.
    """
    options = asked.options(opened.model)
    opened.scenario.graph_name()
    devices = devices_of(opened.model, asked, len(options.tensor_split), note)
    found: tuple[int, ...] = ()
    shares: tuple[GpuShare, ...] = ()
    if asked.searched and options.split_mode == "tensor":
        raise InspectError("-ts auto gives whole layers to GPUs; with -sm tensor, name the shares")
    try:
        if options.split_mode == "tensor":
            placement, needs, shares = place_on_all(opened.model, devices, options, asked.margins)
        else:
            placer = Placer(opened.model, devices)
            if asked.searched:
                found, *_ = best_split(Measurer(placer), options, asked.margins)
                options = replace(options, tensor_split=tuple(map(float, found)))
            placement, needs = place_and_measure(placer, options, asked.margins, probe=True)
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}", error.refused) from None
    words = " ".join(filter(None, [asked.words(found), captured_with]))
    model, meta = placement.model, placement.model.meta
    told = forecast(model, asked.n_depth, asked.n_prompt) if needs.error is None and not shares else None
    speeds, rates = (None, {}) if told is None else (told.speeds(needs.splits, needs.parallel), dict(told.rates))
    given: dict[str, Any] = {k: v for k, v in asdict(options).items() if k not in ("overrides", "assigns")}
    given["overrides"] = [o.option for o in options.overrides]
    given |= {name: meta[name] for name in ("program", "n_outputs") if name in meta}
    owners = {use.buft: use.device for use in needs.uses}
    shown = PlacementShown(
        ggml=model.ggml,
        options={"command_line": words, **given, "n_gpu_layers": placement.n_gpu_layers},
        fits=not needs.short,
        short=needs.short,
        graphs=[PlacedGraph(*graph) for graph in needs.graphs],
        parallel=model.scheduler.parallel,
        no_pipeline_because=placement.pipeline or None,
        with_pipeline_copies=dict(needs.with_copies) or None,
        decided=dict(needs.decided),
        devices=[
            UseRow(
                **asdict(use),
                total=use.total,
                memory=needs.memory.get(use.device),
                left=needs.left(use.device),
                margin=needs.margins.get(use.device, 0) if use.device in needs.memory else None,
            )
            for use in needs.uses
        ],
        layers=[LayerRow(i, device) for i, device in enumerate(placement.layers.layers)]
        + [LayerRow("output", placement.layers.output)],
        tensors=[
            PlacedRow(**asdict(t), device=owners.get(t.buft, t.buft), option=t.rule.startswith("-"))
            for t in placement.tensors
        ],
        unsupported=_unsupported(model, needs.plan),
        speeds=UNSET if speeds is None else SpeedsRow.of(speeds, rates),
        warnings=[*_without_effect(placement, options), *needs.warnings],
        shares=[ShareRow(*share) for share in shares] or UNSET,
        error=error_of(needs.error),
        fit=UNSET if chosen is None else FitRow.of(chosen),
        model=model,
        needs=needs,
        program=answers_for(meta),
        estimates=speeds,
        rates=rates,
        chosen=chosen,
        all_tensors=asked.tensors,
    )
    fine = shown.fits and needs.error is None and (chosen is None or chosen.ok)
    return Answer(shown, opened.title, words, needs.plan, fine)


def _unsupported(model: ScenarioSpec, plan: Plan) -> list[UnsupportedRow]:
    """The ops of the planned graph that a GPU does not support, the most frequent first."""
    if not plan.ok or plan.graph is None:
        return []
    run = LoadedScenario(model).start()
    nodes = run.build(plan.graph).nodes
    found = unsupported(run.backends, nodes, {n.id: n.backend for n in plan.nodes})
    return [UnsupportedRow(r.backend, r.op, r.why, r.lacks, there, n) for (r, there), n in found.most_common()]


def _without_effect(placement: Placement, options: PlaceOptions) -> list[str]:
    """What was asked for and moves nothing."""
    out = []
    if not placement.layers.layers:
        out.append("there are no layers: no tensor has a name such as blk.0.attn_q.weight, which captures have")
    asked_for = dict.fromkeys(override.option for override in options.overrides)
    idle = [option for option in asked_for if not any(t.rule.startswith(option) for t in placement.tensors)]
    return out + [f"no weight is placed by {option}" for option in idle]
