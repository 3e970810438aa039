"""`ggmltool place`: where llama.cpp would put a captured model with these options, and whether it fits."""

from __future__ import annotations

from dataclasses import replace

import click

from ggmltool.cli.captures import open_captures
from ggmltool.cli.command import Command
from ggmltool.cli.endings import ending_of
from ggmltool.cli.model_options import ModelOptions, model_options
from ggmltool.cli.options import format_option, output_to, scenario_argument
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.placing import common_options, value_of
from ggmltool.inspect.placed import Found
from ggmltool.inspect.placed import place as find_place
from ggmltool.inspect.placing import Asked, Common, read_layers, shares_of, spelled
from ggmltool.views.place.place import place_view

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
    opened.refuse_older("the llama.cpp rules here belong to ggml")
    wanted_here = Asked(n_gpu_layers, tensor_split or "", override_tensor, n_cpu_moe)
    with value_of("-ts"):
        shares_of(wanted_here.tensor_split)
    with value_of("-ngl"):
        read_layers(n_gpu_layers)
    found = find_place(opened, common, wanted_here, spelled(graph.words), note)
    placed = found.placed
    log_lines(found.plan.log)
    if format is None and ending_of(output.path) in SCENARIO_ENDINGS:
        format = "scenario"
    if format == "scenario":
        output.write(scenario_bytes(found))
    elif format == "json":
        from ggmltool.views.place.documents import PlacementDocument

        output.write_document(PlacementDocument.of(placed))
    else:
        output.write(place_view(placed, opened.title, found.words, output.style, tensors))
    if placed.error is not None and format != "json":
        from ggmltool.views.errors import ggml_error

        note(ggml_error(dict(placed.error)))
    if format == "scenario":
        from ggmltool.views.text import size

        for device, n in placed.short.items():
            note(f"{device} does not fit: {size(n)} short")
    return 1 if placed.short or placed.error is not None else 0


def scenario_bytes(found: Found) -> bytes:
    """The placed scenario as JSON, one line per tensor."""
    from ggmltool.scenario.dump import dump
    from ggmltool.sources.llama.text import scenario_text

    return scenario_text(dump(replace(found.model, meta={**found.model.meta, "placed": found.words}))).encode()
