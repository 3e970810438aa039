"""`ggmltool place`: where llama.cpp would put a captured model with these options, and whether it fits."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.captures import open_captures
from ggmltool.cli.command import Command
from ggmltool.cli.endings import ending_of
from ggmltool.cli.errors import CliError
from ggmltool.cli.model_options import ModelOptions, model_options, spelled
from ggmltool.cli.options import format_option, output_to, scenario_argument
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.placing import (
    AUTO_SPLIT,
    Common,
    asked,
    common_options,
    devices_of,
    options_of,
    overrides,
    read_layers,
    read_split,
)
from ggmltool.cli.scenario import refuse_older
from ggmltool.inspect.opened import Opened
from ggmltool.views.place.place import Placed, PlacedTensor, Use, place_json, place_view
from ggmltool.views.place.program import answers_for

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.reasons import TurnedDown
    from ggmltool.scenario.model import Model
    from ggmltool.sources.llama.fit import Fit
    from ggmltool.sources.llama.layers import PlaceOptions
    from ggmltool.sources.llama.place import Placement

SCENARIO_ENDINGS = (".json", ".yaml", ".yml")


@click.command(cls=Command)
@scenario_argument
@click.option(
    "-ngl", "--n-gpu-layers", metavar="N|all", default="all", show_default=True,
    help="Layers on GPUs, counted from the last; the output layer is one of them.",
)  # fmt: skip
@click.option(
    "-ot", "--override-tensor", metavar="REGEX=DEVICE[,…]", multiple=True,
    help="Weights whose name matches REGEX go to DEVICE; the first match wins.",
)  # fmt: skip
@click.option(
    "-ts", "--tensor-split", metavar="SHARES",
    help=(
        "How GPUs share the layers, e.g. 3,1 (default: by their memory). auto: the split that leaves the fullest GPU "
        "the most memory."
    ),
)  # fmt: skip
@click.option(
    "-ncmoe", "--n-cpu-moe", type=click.IntRange(0, 10_000), metavar="N", default=0,
    help="Keep the experts of the first N layers on the CPU.",
)  # fmt: skip
@common_options
@model_options()
@click.option("--tensors", is_flag=True, help="Show every tensor with its buffer type and the rule that put it there.")
@format_option("text", "json", "scenario", help="Text (default), JSON with exact bytes, or the placed scenario.")
@output_to(*SCENARIO_ENDINGS)
def place(
    scenario: str | None,
    n_gpu_layers: str,
    override_tensor: tuple[str, ...],
    tensor_split: str | None,
    n_cpu_moe: int,
    common: Common,
    wanted: ModelOptions,
    tensors: bool,
    format: str | None,
    output: Output,
) -> int:
    """Show where llama.cpp would put a captured model with these options, and whether that fits.

    The scenario is a capture (`ggmltool capture`), wherever its tensors are; neither llama.cpp nor a GPU is needed. For
    a MODEL.gguf the graph is captured first, with the options from -c to --outputs (needs the extra llama). Weights,
    caches, user assignments and the scheduler's options follow llama.cpp's rules.

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. Exit status 1: it does not
    fit. With -o FILE.json or FILE.json.gz the placed scenario is written, for all other commands.

    \b
    Example:
      ggmltool place -ngl 9 --device CUDA0:2GiB gemma-3-270m
      ggmltool place -ts 3,1 -ot 'ffn_.*=CPU' --tensors gemma-3-270m
      ggmltool place -ngl 9 -f scenario gemma-3-270m | ggmltool splits -
      ggmltool place -ngl 20 -c 8192 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """
    (graph,) = open_captures([scenario], wanted)
    opened = graph.opened
    refuse_older(opened, "the llama.cpp rules here belong to ggml")
    split = read_split(tensor_split) if tensor_split not in (None, "", AUTO_SPLIT) else ()
    chosen = overrides(override_tensor, n_cpu_moe, common.cpu_moe)
    options = options_of(opened.model, common, read_layers(n_gpu_layers), split, chosen)
    placement, fit, found = _place(opened, common, options, tensor_split == AUTO_SPLIT)
    options = replace(options, tensor_split=tuple(map(float, found)) or options.tensor_split)
    words = asked(
        common,
        **{"-ngl": n_gpu_layers, "-ts": ",".join(map(str, found)) or tensor_split or ""},
        **{"-ot": ",".join(override_tensor), "--n-cpu-moe": str(n_cpu_moe or "")},
    )
    words = " ".join(filter(None, [words, spelled(graph.words)]))
    log_lines(fit.plan.log)
    placed = _placed(placement, fit, options, words)
    if format is None and ending_of(output.path) in SCENARIO_ENDINGS:
        format = "scenario"
    if format == "scenario":
        output.write(_scenario(placement, words))
    elif format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(place_json(placed)))
    else:
        output.write(place_view(placed, opened.title, words, output.style, tensors))
    if placed.error is not None and format != "json":
        from ggmltool.views.errors import ggml_error

        note(ggml_error(dict(placed.error)))
    if format == "scenario":
        from ggmltool.views.text import size

        for device, n in placed.short.items():
            note(f"{device} does not fit: {size(n)} short")
    return 1 if placed.short or placed.error is not None else 0


def _place(
    opened: Opened, common: Common, options: PlaceOptions, search: bool
) -> tuple[Placement, Fit, tuple[int, ...]]:
    """Place and measure, with the best -ts where it is searched. Raises CliError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.fit import place_and_measure
    from ggmltool.sources.llama.place import Placer
    from ggmltool.sources.llama.split_search import best_split

    opened.scenario.graph_name()
    devices = devices_of(opened.model, common, len(options.tensor_split))
    try:
        placer = Placer(opened.model, devices)
        found: tuple[int, ...] = ()
        if search:
            found, *_ = best_split(placer, options, common.margin)
            options = replace(options, tensor_split=tuple(map(float, found)))
        return *place_and_measure(placer, options, common.margin, probe=True), found
    except PlaceError as error:
        raise CliError(f"{opened.argument}: {error}") from None


def _placed(placement: Placement, fit: Fit, options: PlaceOptions, words: str) -> Placed:
    """The records that the view shows."""
    devices = {use.buft: use.device for use in fit.uses}
    tensors = [
        PlacedTensor(
            t.id, t.name, t.kind, t.layer, t.type, t.nbytes, t.buft, devices.get(t.buft, t.buft), t.rule,
            t.rule.startswith("-"), t.used,
        )
        for t in placement.tensors
    ]  # fmt: skip
    told: dict[str, Any] = {k: v for k, v in asdict(options).items() if k != "overrides"}
    told["overrides"] = [o.option for o in options.overrides]
    told |= {name: placement.model.meta[name] for name in ("program", "n_outputs") if name in placement.model.meta}
    return Placed(
        options={"command_line": words, **told, "n_gpu_layers": placement.n_gpu_layers},
        layers=[*placement.layers.layers, placement.layers.output],
        backends=[b.name for b in placement.model.backends],
        tensors=tensors,
        uses=[Use(u.device, u.buft, u.weights, u.cache, u.compute, u.output) for u in fit.uses],
        memory=fit.memory,
        graphs=fit.graphs,
        decided=fit.decided,
        pipeline=placement.pipeline,
        parallel=placement.model.scheduler.parallel,
        warnings=(*_without_effect(placement, options), *fit.warnings),
        error=dict(fit.plan.error) if fit.plan.error is not None else None,
        margins=fit.margins,
        with_copies=fit.with_copies,
        program=answers_for(placement.model.meta),
        unsupported=_unsupported(placement.model, fit.plan),
    )


def _unsupported(model: Model, plan: Plan) -> list[tuple[TurnedDown, str, int]]:
    """The ops of the planned graph that a GPU does not support, the most frequent first."""
    from ggmltool.inspect.reasons import unsupported
    from ggmltool.scenario.scenario import Scenario

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


def _scenario(placement: Placement, words: str) -> bytes:
    """The placed scenario as JSON, one line per tensor."""
    from ggmltool.scenario.dump import dump
    from ggmltool.sources.llama.text import scenario_text

    model = placement.model
    return scenario_text(dump(replace(model, meta={**model.meta, "placed": words}))).encode()
