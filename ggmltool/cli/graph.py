"""`ggmltool graph`: the graph's nodes and leafs in ggml's order, in ggml's words."""

from __future__ import annotations

import click

from ggmltool.cli.errors import FINE
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.options import raw_option
from ggmltool.inspect.watched import graph_at, watch


@moment_command()
@click.option(
    "--sched",
    is_flag=True,
    help="Print the graph that the scheduler hands to the allocator, with copies and dependencies (default: as built).",
)
@raw_option
def graph(look: Look, sched: bool) -> int:
    """Print the graph as ggml_graph_print does: nodes and leafs in the order ggml_build_forward_expand finds them.

    \b
    Example:
      ggmltool graph graph.yaml
      ggmltool graph --sched graph.yaml    with the scheduler's copies
    """
    from ggmltool.views.plan.documents import BuiltGraph, SchedulerGraph
    from ggmltool.views.plan.graph_print import graph_print

    opened = look.open()
    if not sched:
        name = graph_at(opened, look.moment)
        built = opened.scenario.start().build(name)
        if look.json:
            look.output.write_document(BuiltGraph.of(opened.model.ggml, name, built.nodes, built.leafs))
        else:
            look.output.write_ggml(graph_print(built.nodes, built.leafs))
        return FINE
    watched = watch(opened, look.moment)
    if not watched.sched.nodes and watched.plan.error is not None:
        raise watched.refusal("the scheduler has no graph:\n")
    nodes, leafs = watched.sched.nodes, watched.sched.leafs
    if look.json:
        return look.answer(watched, SchedulerGraph.of(watched.plan, nodes, leafs))
    return look.answer_in_ggmls_words(watched, graph_print(nodes, leafs))
