"""`ggmltool tensor`: everything about one tensor."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
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
from ggmltool.ggml.context import Context
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor
from ggmltool.inspect.allocations import hash_node
from ggmltool.inspect.allocator import WatchedAllocator, watch_allocator
from ggmltool.inspect.opened import Moment
from ggmltool.inspect.watched import Watched
from ggmltool.scenario.arenas import BUFFERS, BUFFERS_STEP, EXTRAS, EXTRAS_STEP, addresses, arenas
from ggmltool.scenario.errors import nearest
from ggmltool.views.memory.tensor import GdbFacts, TensorFacts, strides_view, tensor_gdb, tensor_json, tensor_view


@click.command(cls=Command)
@click.argument("name", shell_complete=complete_tensors)
@scenario_argument
@moment_options
@click.option("--strides", is_flag=True, help="Draw how its elements lie in memory.")
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
        raise click.UsageError(f"--strides is a drawing; it has no --format {format}.")
    opened = open_for(name, scenario, "tensor NAME")
    watched = watch_allocator(opened, moment)
    state = watched.at
    built = state.built()
    contexts = arenas(state.run, built.name, built.table)
    found, context = _find(name, contexts, built.name)
    style = output.style
    where = addresses(contexts, state.run)
    release = opened.model.release
    flags = found.flags if release.compute_flag else found.flags & ~FLAG_COMPUTE
    if strides:
        output.write(strides_view(found, state.title, style))
    elif format == "gdb":
        gpu = found.buffer is not None and found.buffer.buft.family in release.gpu_families
        extra = EXTRAS + found.index * EXTRAS_STEP if gpu else 0
        buffer = _buffer_address(found, contexts, state)
        facts = GdbFacts(release.tensor_fields, lambda t: where[t.index], buffer, flags, gpu, extra)
        output.write(tensor_gdb(found, facts, style.width))
    else:
        about = _facts(found, flags, context, where[found.index], watched)
        if format == "json":
            from ggmltool.views.json_text import json_text

            output.write(json_text(state.stamped(tensor_json(about, built.name, state.kind))))
        else:
            output.write(tensor_view(about, state.title, state.heading, style))
    return status_of(state)


def _find(name: str, contexts: list[Context], graph: str) -> tuple[Tensor, Context]:
    """The tensor with this id, else the first with this name. Raises CliError where there is none."""
    everything = [(t, ctx) for ctx in contexts for t in ctx.tensors]
    for t, ctx in everything:
        if t.id == name:
            return t, ctx
    for t, ctx in everything:
        if t.name == name:
            return t, ctx
    near = nearest(name, [t.label for t, _ in everything])
    raise CliError(f"graph {graph} has no tensor {name!r}" + (f"; did you mean {near}?" if near else ""))


def _buffer_address(t: Tensor, contexts: list[Context], state: Watched) -> int:
    """Where the struct of the tensor's buffer lies, 0 without one: buffers are numbered as they were made.

    Those that nobody lists (an older scheduler keeps them in its allocators) follow in the order of their tensors.
    """
    made = list(state.run.buffers)
    for buffer in state.sched.gallocr.buffers:
        made += [chunk for chunk in (buffer.chunks if buffer is not None else ()) if chunk not in made]
    for owner in (x.buffer for ctx in contexts for x in ctx.tensors):
        if owner is not None and owner not in made:
            made.append(owner)
    return next((BUFFERS + i * BUFFERS_STEP for i, b in enumerate(made) if b is t.buffer), 0)


def _facts(t: Tensor, flags: int, context: Context, address: int, watched: WatchedAllocator) -> TensorFacts:
    state = watched.at
    s = state.sched
    b, cause, copies = state.assignment(t)
    # The same graph built again lies where it lay, so that its tensors are found in a table made for it before.
    key = next((key for key in watched.planned.keys if key.address == address), None)
    return TensorFacts(
        t,
        flags,
        address,
        context.name,
        s.names[b] if b >= 0 else None,
        cause if b >= 0 else "",
        state.built().graph.use_count(t),
        tuple(n.label for n in s.nodes if any(x is t for x in n.src)),
        tuple(copy.name for copy in copies),
        hash_node(watched.gallocr, key.node) if key is not None else None,
    )
