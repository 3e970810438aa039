"""A placement of llama.cpp's: what lies where, what each device needs, whether it fits, and why ops are not on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.estimate.forecast import Speeds, forecast
from ggmltool.estimate.records import Rates
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.placing import Asked, Common, devices_of
from ggmltool.inspect.program import answers_for
from ggmltool.inspect.reasons import TurnedDown, unsupported
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.meta_device import Share, place_on_all
from ggmltool.sources.llama.place.needs import Needs, PlannedNeeds, place_and_measure
from ggmltool.sources.llama.place.place import Placement, Placer
from ggmltool.sources.llama.search.sweep import best_split

if TYPE_CHECKING:
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
