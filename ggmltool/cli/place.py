"""`ggmltool place` and `sweep`: where llama.cpp would put a captured model, one way or many, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.chosen import AUTO_LAYERS, Chosen, FitAsked, choose, printed, replace_auto
from ggmltool.ask.place.options import Common, PlaceRequest, read_layers, shares_of, spelled
from ggmltool.ask.place.record import PlacementShown
from ggmltool.ask.place.record import place as find_place
from ggmltool.ask.place.text import chosen_view, failure
from ggmltool.ask.sweep.record import SweptGraph, most_layers, varied
from ggmltool.ask.sweep.record import sweep as run_sweep
from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError, value_of
from ggmltool.cli.models import ModelOptions, model_options, open_captures, opener
from ggmltool.cli.options import (
    DOCUMENTS,
    format_option,
    output_option,
    output_to,
    scenario_argument,
    scenarios_argument,
)
from ggmltool.cli.output import Output, ending_of, log_lines, note
from ggmltool.cli.placing import FitWanted, common_options, fit_options
from ggmltool.cli.progress import progress
from ggmltool.show.text import ggml_error, size

if TYPE_CHECKING:
    from ggmltool.sources.llama.place.place import Placer
    from ggmltool.sources.llama.search.sweep import Job, JobOutcome

SCENARIO_ENDINGS = (".json", ".yaml", ".yml")


@click.command(cls=Command)
@scenario_argument
@click.option(
    "-ngl", "--n-gpu-layers", metavar="N|all|auto", default="all", show_default=True,
    help="Layers on GPUs, counted from the last; the output layer is one of them. auto: --fit.",
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
@fit_options
@model_options()
@click.option("--tensors", is_flag=True, help="Show every tensor with its buffer type and the rule that put it there.")
@format_option(
    "text", *DOCUMENTS, "scenario", help="Text (default), JSON or CSV with exact bytes, or the placed scenario."
)
@output_to(*SCENARIO_ENDINGS)
def place(
    scenario: str | None,
    n_gpu_layers: str,
    override_tensor: tuple[str, ...],
    tensor_split: str | None,
    n_cpu_moe: int,
    common: Common,
    fit: FitWanted,
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

    With --fit (or -ngl auto) llama.cpp's own choice comes first: what it would set for these devices, what it measures
    on the way, and its words. Exit status 1: it gives up.

    \b
    Example:
      ggmltool place -ngl 9 --device CUDA0:2GiB gemma-3-270m
      ggmltool place -ts 3,1 -ot 'ffn_.*=CPU' --tensors gemma-3-270m
      ggmltool place -ngl 9 -f scenario gemma-3-270m | ggmltool splits -
      ggmltool place -ngl 20 -c 8192 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
      ggmltool place --fit --fit-target 1024,512 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """
    n_gpu_layers = fit.layers(n_gpu_layers)
    fits = fit.on or n_gpu_layers == AUTO_LAYERS
    fit.check(fits)
    asked = PlaceRequest(n_gpu_layers, tensor_split or "", override_tensor, n_cpu_moe)
    with value_of("-ts"):
        shares_of(asked.tensor_split)
    with value_of("-ngl"):
        read_layers(replace_auto(asked).n_gpu_layers)
    open_for = opener(scenario, wanted)
    graph = open_for(fit.n_ctx(wanted))
    graph.opened.refuse_older("the llama.cpp rules here belong to ggml")
    if fit.prints:
        output.write(printed(graph.opened, common, asked, fit.flash_auto(wanted)))
        return 0
    chosen = None
    if fits:
        common = fit.common(common)
        chosen = _choose(open_for, common, asked, fit.asked(wanted, graph.opened.model, scenario), output, format)
        asked, graph = chosen.asked, open_for(chosen.fitted.params.n_ctx)
        common = common._replace(margin=common.margin[: max(len(chosen.devices), 1)])
    told = note if chosen is None else lambda text: None
    answer = find_place(graph.opened, common, asked, spelled(graph.words), told, chosen, tensors)
    return _show(answer, output, format)


def _choose(
    open_for: Callable[[int], SweptGraph],
    common: Common,
    asked: PlaceRequest,
    fit: FitAsked,
    output: Output,
    format: str | None,
) -> Chosen:
    """llama.cpp's own choice. Where it ends in the middle of that, CliError is raised with what it said until then."""
    chosen = choose(lambda n_ctx: open_for(n_ctx).opened, common, asked, fit, note)
    if chosen.fitted.status == "crash":
        if format is None:
            output.write(chosen_view(chosen, output.style))
        raise CliError(failure(chosen), GGML_FAILED)
    if not chosen.ok:
        note(failure(chosen))
    return chosen


def _show(answer: Answer[PlacementShown], output: Output, format: str | None) -> int:
    """Write the placement; the exit status."""
    placed = answer.facts
    log_lines(placed.needs.plan.log)
    if format == "scenario" or (format is None and ending_of(output.path) in SCENARIO_ENDINGS):
        output.write(scenario_bytes(placed))
        for device, n in placed.short.items():
            note(f"{device} does not fit: {size(n)} short")
    else:
        output.answer(answer, format or "text")
    if placed.needs.error is not None and format not in DOCUMENTS:
        note(ggml_error(dict(placed.needs.error)))
    return FINE if answer.fine else GGML_FAILED


def scenario_bytes(placed: PlacementShown) -> bytes:
    """The placed scenario as JSON, one line per tensor."""
    from ggmltool.scenario.dump import dump
    from ggmltool.sources.llama.capture.capture import scenario_text

    meta = {**placed.model.meta, "placed": placed.options["command_line"]}
    return scenario_text(dump(replace(placed.model, meta=meta))).encode()


@click.command(cls=Command)
@scenarios_argument
@click.option(
    "-ngl", "--n-gpu-layers", metavar="RANGE",
    help="Layers on GPUs: 0..33, 0..32:4, 8,16,all. Default: from 0 to all.",
)  # fmt: skip
@click.option(
    "-ts", "--tensor-split", metavar="SHARES", multiple=True,
    help="How GPUs share the layers; may be repeated. auto: for each placement, the split that leaves the fullest GPU "
         "the most memory.",
)  # fmt: skip
@click.option(
    "-ot", "--override-tensor", metavar="REGEX=DEVICE[,…]", multiple=True,
    help="Overrides of one placement, or `none`; each further -ot makes another placement.",
)  # fmt: skip
@click.option(
    "-ncmoe", "--n-cpu-moe", metavar="RANGE", default="0",
    help="Keep the experts of the first N layers on the CPU; a range as for -ngl.",
)  # fmt: skip
@common_options
@model_options(lists=True)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of processes (default: one for each core).",
)
@format_option("text", *DOCUMENTS, help="Text (default), or JSON or CSV with exact bytes.")
@output_option
def sweep(
    scenario: tuple[str, ...],
    n_gpu_layers: str | None,
    tensor_split: tuple[str, ...],
    override_tensor: tuple[str, ...],
    n_cpu_moe: str,
    common: Common,
    wanted: ModelOptions,
    jobs: int | None,
    format: str | None,
    output: Output,
) -> int:
    """Place a captured model in many ways: splits, copied bytes, memory per device, and the best that fits.

    Every value of -ngl is combined with every -ts, -ot, --n-cpu-moe and scenario; several scenarios are captures of one
    model with different options. For a MODEL.gguf the graph is captured first, once for every combination of the
    options from -c to --outputs, which may have several values (needs the extra llama).

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. The best one has the most
    layers on GPUs; then the most weights there, the longest context, the most sequences, the largest ubatch, the
    largest cache, and the most memory left on the fullest device. Exit status 1: nothing fits.

    \b
    Example:
      ggmltool sweep -ngl 0..19 --device CUDA0:1764MiB gemma-3-270m
      ggmltool sweep -ngl all -ts 1,1 -ts 3,1 -ot none -ot ffn_down=CPU gemma-3-270m
      ggmltool sweep -ngl 0..18:6 -f csv gemma-3-270m
      ggmltool sweep -ngl 0..33 -ub 256,512,1024 -c 8192 --device CUDA0:24GiB model.gguf
      ggmltool sweep -ngl all --as q4_K_M,q5_K_M,q8_0 -c 8192 --device CUDA0:24GiB model.gguf
      ggmltool sweep -ts auto -c 8192,32768 -ctk f16,q8_0 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """
    graphs = open_captures(scenario, wanted)
    for graph in graphs:
        graph.opened.refuse_older("the llama.cpp rules here belong to ggml")
    most = most_layers(graphs)
    with value_of("-ts"):
        varied(most, None, tensor_split, (), "0")
    with value_of("-ngl"):
        varied(most, n_gpu_layers, (), (), "0")
    with value_of("--n-cpu-moe"):
        values = varied(most, n_gpu_layers, tensor_split, override_tensor, n_cpu_moe)
    return output.answer(run_sweep(graphs, common, values, jobs, note, _with_progress), format or "text")


def _with_progress(placers: list[Placer], work: list[Job], processes: int) -> list[JobOutcome]:
    from ggmltool.sources.llama.search.sweep import sweep as run_all

    with progress("placing", len(work), "placements") as done:
        return run_all(placers, work, processes, done)
