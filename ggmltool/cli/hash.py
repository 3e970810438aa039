"""`ggmltool hash`: the hash tables of allocator and scheduler."""

from __future__ import annotations

import click

from ggmltool.cli.complete import complete_tensors
from ggmltool.cli.moment import Look, choose, moment_command, option_of
from ggmltool.cli.options import DOCUMENTS
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.hash_tables import hash_rows, sched_rows
from ggmltool.views.memory.gdb import gdb_session
from ggmltool.views.memory.gdb_allocs import hash_prints, sched_table_prints
from ggmltool.views.memory.hash_nodes import hash_view, sched_view


@moment_command(
    "text", "gdb", *DOCUMENTS, help="Text (default), the structs as gdb prints them, or JSON or CSV with exact bytes."
)
@click.option(
    "--at",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="Show the table right after this node was allocated (default: at the end).",
)
@click.option(
    "--before",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="Show the table right before this node was allocated.",
)
@click.option("--sched", is_flag=True, help="Show the scheduler's table: backend, cause and copies of every tensor.")
def hash(look: Look, at: str | None, before: str | None, sched: bool) -> int:
    """Show the allocator's hash-node table: slot, uses left, views left, and the planned place of every tensor.

    Slots follow from simulated addresses of the tensors. A pre-allocated tensor or a view stays at offset 0 of buffer 0
    and is never `allocated`; neither is a tensor that was freed or taken over in place.

    \b
    Example:
      ggmltool hash graph.yaml
      ggmltool hash --at ffn_out graph.yaml
      ggmltool hash --before ffn_out --format gdb graph.yaml
      ggmltool hash --after 3 graph.yaml
    """
    view = choose(at=at, before=before)
    if sched and view:
        raise click.UsageError(f"{option_of(view)} is for the allocator's table, not for --sched.")
    if sched:
        return _sched(look)
    watched = watch_allocator(look.open(), look.moment, before or at, before is not None)
    state, size = watched.at, watched.gallocr.hash_size
    rows = hash_rows(watched)
    if look.json:
        from ggmltool.views.memory.alloc_documents import HashDocument

        return look.answer(state, HashDocument.of(state.plan, rows, size, at, before))
    if look.format == "gdb":
        fields = state.run.model.release.hash_node_fields
        return look.answer(state, gdb_session(hash_prints(rows, fields), look.style.width))
    then = f" when {at} was allocated" if at is not None else f" before {before}" if before is not None else ""
    return look.answer(state, hash_view(rows, size, state.title, watched.heading + then, look.style))


def _sched(look: Look) -> int:
    """--sched: the scheduler's table."""
    state = look.watch()
    rows, size = sched_rows(state), state.sched.hash_size
    if look.json:
        from ggmltool.views.memory.alloc_documents import SchedHash

        return look.answer(state, SchedHash.of(state.plan, rows, size))
    if look.format == "gdb":
        return look.answer(state, gdb_session(sched_table_prints(state.sched, rows), look.style.width))
    return look.answer(state, sched_view(rows, state.sched.names, size, state.title, state.heading, look.style))
