"""`ggmltool hash`: the hash tables of allocator and scheduler."""

from __future__ import annotations

from collections.abc import Iterator

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
from ggmltool.cli.scenario import open_scenario
from ggmltool.ggml.sched.fields import backend_ids, sched_fields
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.hash_tables import SchedRow, hash_rows, sched_rows
from ggmltool.inspect.opened import Moment
from ggmltool.inspect.watched import Watched, watch
from ggmltool.views.memory.gdb import Printed, gdb_session
from ggmltool.views.memory.gdb_allocs import hash_prints, sched_prints
from ggmltool.views.memory.hash_nodes import hash_json, hash_view, sched_json, sched_view


@click.command(cls=Command)
@scenario_argument
@moment_options
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
@ggml_option
@format_option("text", "gdb", "json", help="Text (default), the structs as gdb prints them, or JSON with exact bytes.")
@output_option
def hash(
    scenario: str | None,
    moment: Moment,
    at: str | None,
    before: str | None,
    sched: bool,
    format: str | None,
    output: Output,
) -> int:
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
    if at is not None and before is not None:
        raise click.UsageError("--at and --before are different moments; choose one.")
    if sched and (at is not None or before is not None):
        raise click.UsageError(
            f"--{'at' if before is None else 'before'} is for the allocator's table, not for --sched."
        )
    opened = open_scenario(scenario)
    if sched:
        return _sched(watch(opened, moment), format, output)
    watched = watch_allocator(opened, moment, before or at, before is not None)
    state = watched.at
    rows = hash_rows(watched)
    size = watched.gallocr.hash_size
    if format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(state.stamped(hash_json(rows, size, state.graph, state.kind, at, before))))
    elif format == "gdb":
        fields = opened.model.release.hash_node_fields
        output.write(gdb_session(hash_prints(rows, fields), output.style.width))
    else:
        then = f" when {at} was allocated" if at is not None else f" before {before}" if before is not None else ""
        when = watched.heading + then
        output.write(hash_view(rows, size, state.title, when, output.style))
    return status_of(state)


def _sched(state: Watched, format: str | None, output: Output) -> int:
    """--sched: the scheduler's table."""
    rows = sched_rows(state)
    size = state.sched.hash_size
    if format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(state.stamped(sched_json(rows, size, state.graph, state.kind))))
    elif format == "gdb":
        output.write(gdb_session(_sched_prints(state.sched, rows), output.style.width))
    else:
        output.write(sched_view(rows, state.sched.names, size, state.title, state.heading, output.style))
    return status_of(state)


def _sched_prints(s: Scheduler, rows: list[SchedRow]) -> Iterator[Printed]:
    """The plain fields of struct ggml_backend_sched, and what it knows of each tensor: nothing more after a reset."""
    yield from sched_prints(sched_fields(s))
    number = "sched_allocr_prio(sched, node_allocr(tensor))"
    if s.release.reserves:
        number = "tensor_backend_id(tensor)"
        for array, ids in zip(("node_backend_ids", "prev_node_backend_ids"), backend_ids(s), strict=True):
            yield from sched_prints({f"{array}[{i}]": id for i, id in enumerate(ids)}, [n.label for n in s.nodes])
    for row in rows:
        id = -1 if row.backend is None or s.is_reset else s.names.index(row.backend)
        yield Printed(number, str(id), row.tensor)
