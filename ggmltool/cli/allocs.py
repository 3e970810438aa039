"""`ggmltool allocs`: the graph allocator's plan and how it came about."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    Moment,
    complete_tensors,
    ggml_option,
    json_option,
    moment_options,
    output_option,
    scenario_argument,
)
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.watched_allocator import watch_allocator
from ggmltool.views.allocs import allocs_json, allocs_view, story_json, story_view
from ggmltool.views.free_blocks import free_blocks_json, free_blocks_view


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option("--trace", is_flag=True, help="How the allocator got there, line by line, with the free blocks then.")
@click.option(
    "--free-blocks",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="Draw what lies where, and what is free, when this node had got its memory.",
)
@ggml_option
@json_option
@output_option
def allocs(
    scenario: str | None,
    moment: Moment,
    trace: bool,
    free_blocks: str | None,
    json: bool,
    output: Output,
) -> int:
    """Show where the graph allocator puts every node with its sources, and every leaf: node_allocs and leaf_allocs.

    Sources stand as `name buffer:offset+size_max`. Buffer -1 is ggml's mark for a view or a tensor with memory of its
    own. The nodes are the scheduler's, so copies and the dependencies before them are among them.

    \b
    Example:
      ggmltool allocs graph.yaml
      ggmltool allocs --trace graph.yaml
      ggmltool allocs --free-blocks ffn_out graph.yaml
      ggmltool allocs --after 3 graph.yaml
    """
    if trace and free_blocks is not None:
        raise click.UsageError("--trace and --free-blocks are two views; ask for one.")
    opened = open_scenario(scenario)
    watched = watch_allocator(opened, moment, free_blocks)
    state = watched.at
    bufts = [b.name for b in watched.gallocr.bufts]
    name, step, when, style = state.graph, state.kind, watched.heading, output.style
    if free_blocks is not None:
        then = watched.moment()
        document = free_blocks_json(then, bufts, name, step, free_blocks)
        text = "" if json else free_blocks_view(then, bufts, state.title, f"{when} at {free_blocks}", style)
    elif trace:
        steps = watched.record.steps
        document = story_json(steps, name, step)
        text = "" if json else story_view(steps, watched.planned.nodes, state.title, when, style)
    else:
        nodes, leafs = watched.nodes, watched.leafs
        document = allocs_json(nodes, leafs, bufts, name, step)
        text = "" if json else allocs_view(nodes, leafs, bufts, state.title, when, style)
    if json:
        from ggmltool.views.json_text import json_text

        text = json_text(state.stamped(document))
    output.write(text)
    return state.status()
