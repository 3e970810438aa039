"""`ggmltool hash`: the hash tables of allocator and scheduler."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_tensors,
    graph_option,
    json_option,
    output_option,
    scenario_argument,
    step_option,
)
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.watched import Watched, watch
from ggmltool.ggml.alloc_record import hash_keys, hash_node
from ggmltool.ggml.hash_set import HashSet
from ggmltool.scenario.arenas import addresses, arenas
from ggmltool.views.hash_nodes import HashRow, SchedRow, hash_json, hash_view, sched_json, sched_view


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--at",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="The table as it stood when this node had got its memory (default: at the end).",
)
@click.option("--sched", is_flag=True, help="The scheduler's own table: backend, cause and copies of every tensor.")
@json_option
@output_option
def hash(
    scenario: str | None, graph: str | None, step: str, at: str | None, sched: bool, json: bool, output: Output
) -> int:
    """Show the allocator's hash-node table: slot, uses left, views left, and the planned place of every tensor.

    Slots follow from simulated addresses of the tensors. A tensor that has memory of its own, and a view, stay at
    offset 0 of buffer 0 and are never `allocated`; nor is what was freed, or taken over in place.

    \b
    Example:
      ggmltool hash graph.yaml
      ggmltool hash --at ffn_out graph.yaml
    """
    if sched and at is not None:
        raise click.UsageError("--at is for the allocator's table, not for --sched.")
    opened = open_scenario(scenario)
    watched = watch(opened, graph, step, at)
    if sched:
        of_sched = _sched_rows(watched)
        size = watched.sched.hash_size
        if json:
            from ggmltool.views.json_text import json_text

            output.write(json_text(sched_json(of_sched, size, watched.graph, step)))
        else:
            names = watched.sched.names
            output.write(sched_view(of_sched, names, size, opened.title, watched.heading, output.style))
        return 0
    rows = _rows(watched)
    size = watched.sched.gallocr.hash_size
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(hash_json(rows, size, watched.graph, step, at)))
    else:
        when = watched.heading + (f" when {at} was allocated" if at is not None else "")
        output.write(hash_view(rows, size, opened.title, when, output.style))
    return 0


def _rows(watched: Watched) -> list[HashRow]:
    gallocr = watched.sched.gallocr
    moment = watched.moment() if watched.record.at is not None else None
    where = addresses(arenas(watched.run, watched.graph))
    keys = hash_keys(gallocr.planned_nodes, gallocr.planned_leafs)
    slots = HashSet(gallocr.hash_size)
    rows = []
    for t in keys:
        slot = slots.find_or_insert(where[t.index])
        node = moment.nodes[t.index] if moment is not None else hash_node(gallocr, t.index)
        buft = gallocr.bufts[node.buffer_id].name
        rows.append(HashRow(slot, slots.probes(where[t.index]), t.label, node, buft))
    return rows


def _sched_rows(watched: Watched) -> list[SchedRow]:
    s = watched.sched
    built = watched.run.newest[watched.graph][0]
    rows = []
    for t in (*built.leafs, *built.nodes):
        b = s.assigned[t.index]
        copies = s.made_copies[t.index] or []
        names = tuple(copy.name for made in copies for copy in made or ())
        rows.append(SchedRow(t.id, s.names[b] if b >= 0 else None, s.assigned_causes[t.index] or "", names))
    return rows
