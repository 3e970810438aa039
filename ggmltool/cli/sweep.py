"""`ggmltool sweep`: many placements of a captured model: splits, copies, memory, and the largest that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.ask.place.options import Common
from ggmltool.ask.sweep.record import most_layers, sweep_of, varied
from ggmltool.ask.sweep.record import sweep as run_sweep
from ggmltool.cli.captures import open_captures
from ggmltool.cli.command import Command
from ggmltool.cli.model_options import ModelOptions, model_options
from ggmltool.cli.options import DOCUMENTS, format_option, output_option, scenarios_argument
from ggmltool.cli.output import Output, note
from ggmltool.cli.placing import common_options, value_of
from ggmltool.cli.progress import progress

if TYPE_CHECKING:
    from ggmltool.sources.llama.place.place import Placer
    from ggmltool.sources.llama.search.sweep import Job, Outcome


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
    found = run_sweep(graphs, common, values, jobs, note, _with_progress)
    return output.answer(sweep_of(found), format or "text")


def _with_progress(placers: list[Placer], work: list[Job], processes: int) -> list[Outcome]:
    from ggmltool.sources.llama.search.sweep import sweep as run_all

    with progress("placing", len(work), "placements") as done:
        return run_all(placers, work, processes, done)
