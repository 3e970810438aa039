"""`ggmltool allocs`: the graph allocator's plan and how it came about."""

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
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.views.allocs import AllocRow, NodeLabel, allocs_json, allocs_view, story_json, story_view
from ggmltool.views.free_blocks import free_blocks_json, free_blocks_view


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option("--trace", is_flag=True, help="How the allocator got there, line by line, with the free blocks then.")
@click.option(
    "--free-blocks",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="Draw what lies where, and what is free, when this node had got its memory.",
)
@json_option
@output_option
def allocs(
    scenario: str | None,
    graph: str | None,
    step: str,
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
    """
    if trace and free_blocks is not None:
        raise click.UsageError("--trace and --free-blocks are two views; ask for one.")
    opened = open_scenario(scenario)
    watched = watch(opened, graph, step, free_blocks)
    gallocr = watched.sched.gallocr
    bufts = [b.name for b in gallocr.bufts]
    name, when, style = watched.graph, watched.heading, output.style
    if free_blocks is not None:
        moment = watched.moment()
        document = free_blocks_json(moment, bufts, name, step, free_blocks)
        text = "" if json else free_blocks_view(moment, bufts, opened.title, f"{when} at {free_blocks}", style)
    elif trace:
        steps = watched.record.steps
        document = story_json(steps, name, step)
        text = (
            "" if json else story_view(steps, [_describe(n) for n in gallocr.planned_nodes], opened.title, when, style)
        )
    else:
        nodes, leafs = _rows(watched)
        document = allocs_json(nodes, leafs, bufts, name, step)
        text = "" if json else allocs_view(nodes, leafs, bufts, opened.title, when, style)
    if json:
        from ggmltool.views.json_text import json_text

        text = json_text(document)
    output.write(text)
    return 0


def _rows(watched: Watched) -> tuple[list[AllocRow], list[AllocRow]]:
    gallocr = watched.sched.gallocr
    nodes = []
    for n, (dst, srcs) in zip(gallocr.planned_nodes, gallocr.node_allocs, strict=True):
        sources = tuple((s.label, alloc) for s, alloc in zip(n.src, srcs, strict=True) if s is not None)
        nodes.append(AllocRow(n.label, dst, sources))
    leafs = [AllocRow(t.label, a) for t, a in zip(gallocr.planned_leafs, gallocr.leaf_allocs, strict=True)]
    return nodes, leafs


def _describe(t: Tensor) -> NodeLabel:
    return NodeLabel(op_desc(t), tuple(s.label for s in t.src if s is not None))
