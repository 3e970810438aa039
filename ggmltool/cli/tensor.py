"""`ggmltool tensor`: everything about one tensor."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_tensors,
    format_option,
    ggml_option,
    moment_options,
    output_option,
    scenario_argument,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_for
from ggmltool.ggml.tensor import FLAG_COMPUTE
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.opened import Moment
from ggmltool.inspect.tensor import GdbFacts, buffer_address, find_tensor, tensor_facts
from ggmltool.scenario.arenas import EXTRAS, EXTRAS_STEP, addresses, arenas
from ggmltool.views.memory.tensor import strides_view, tensor_gdb, tensor_json, tensor_view


@click.command(cls=Command)
@click.argument("name", shell_complete=complete_tensors)
@scenario_argument
@moment_options
@click.option("--strides", is_flag=True, help="Draw how the elements lie in memory.")
@ggml_option
@format_option("table", "gdb", "json", help="A table (default), the struct as gdb prints it, or JSON.")
@output_option
def tensor(
    name: str,
    scenario: str | None,
    moment: Moment,
    strides: bool,
    format: str | None,
    output: Output,
) -> int:
    """Show everything about the tensor NAME: shape, strides, sources, backend, memory, uses, copies, hash node.

    NAME is an id of the scenario, or the name of a copy that the scheduler made. Addresses are simulated.

    \b
    Example:
      ggmltool tensor kq graph.yaml
      ggmltool tensor --format gdb kq graph.yaml
      ggmltool tensor --strides kq graph.yaml
    """
    if strides and format not in (None, "table"):
        raise click.UsageError(f"--strides is a drawing; leave out --format {format}.")
    opened = open_for(name, scenario, "tensor NAME")
    watched = watch_allocator(opened, moment)
    state = watched.at
    built = state.built()
    contexts = arenas(state.run, built.name, built.table)
    found, context = find_tensor(name, contexts, built.name)
    style = output.style
    where = addresses(contexts, state.run)
    release = opened.model.release
    flags = found.flags if release.compute_flag else found.flags & ~FLAG_COMPUTE
    if strides:
        output.write(strides_view(found, state.title, style))
    elif format == "gdb":
        gpu = found.buffer is not None and found.buffer.buft.family in release.gpu_families
        extra = EXTRAS + found.index * EXTRAS_STEP if gpu else 0
        buffer = buffer_address(found, contexts, state)
        facts = GdbFacts(release.tensor_fields, lambda t: where[t.index], buffer, flags, gpu, extra)
        output.write(tensor_gdb(found, facts, style.width))
    else:
        about = tensor_facts(found, flags, context, where[found.index], watched)
        if format == "json":
            from ggmltool.views.json_text import json_text

            output.write(json_text(state.stamped(tensor_json(about, built.name, state.kind))))
        else:
            output.write(tensor_view(about, state.title, state.heading, style))
    return status_of(state)
