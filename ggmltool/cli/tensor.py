"""`ggmltool tensor`: everything about one tensor."""

from __future__ import annotations

import click

from ggmltool.cli.complete import complete_tensors
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.options import DOCUMENTS
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.tensor import facts_of, find, gdb_facts_of
from ggmltool.views.memory.tensor import strides_view, tensor_gdb, tensor_view


@moment_command("table", "gdb", *DOCUMENTS, help="A table (default), the struct as gdb prints it, JSON or CSV.")
@click.argument("name", shell_complete=complete_tensors)
@click.option("--strides", is_flag=True, help="Draw how the elements lie in memory.")
def tensor(look: Look, name: str, strides: bool) -> int:
    """Show everything about the tensor NAME: shape, strides, sources, backend, memory, uses, copies, hash node.

    NAME is an id of the scenario, or the name of a copy that the scheduler made. Addresses are simulated.

    \b
    Example:
      ggmltool tensor kq graph.yaml
      ggmltool tensor --format gdb kq graph.yaml
      ggmltool tensor --strides kq graph.yaml
    """
    if strides and look.format not in (None, "table"):
        raise click.UsageError(f"--strides is a drawing; leave out --format {look.format}.")
    opened = look.open_for(name, "tensor NAME")
    watched = watch_allocator(opened, look.moment)
    state = watched.at
    found = find(watched, name)
    if strides:
        return look.answer(state, strides_view(found.tensor, state.title, look.style))
    if look.format == "gdb":
        return look.answer(state, tensor_gdb(found.tensor, gdb_facts_of(watched, found), look.style.width))
    about = facts_of(watched, found)
    if look.json:
        from ggmltool.views.memory.documents import TensorDocument

        return look.answer(state, TensorDocument.of(state.plan, about))
    return look.answer(state, tensor_view(about, state.title, state.heading, look.style))
