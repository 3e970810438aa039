"""`ggmltool context`: what lies where in the arenas of the contexts."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import (
    complete_contexts,
    format_option,
    graph_option,
    output_option,
    scenario_argument,
    step_option,
)
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.watched import watch
from ggmltool.scenario.arenas import arenas
from ggmltool.scenario.errors import nearest
from ggmltool.views.objects import GraphFacts, contexts_json, contexts_view, print_objects


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--only",
    metavar="CONTEXT",
    shell_complete=complete_contexts,
    help="Only this context (default: all of them).",
)
@format_option("table", "ggml", "json", help="A table (default), the text of ggml_print_objects, or JSON.")
@output_option
def context(
    scenario: str | None, graph: str | None, step: str, only: str | None, format: str | None, output: Output
) -> int:
    """Show the object map of each context: offset, size, type and tensor, and how the cgraph is laid out.

    After the contexts of the file come `graph NAME`, with the nodes and the cgraph, and `scheduler`, with its copies
    and dependencies. Addresses are simulated; offsets and sizes are ggml's.

    \b
    Example:
      ggmltool context graph.yaml
      ggmltool context --only inputs --format ggml graph.yaml
    """
    opened = open_scenario(scenario)
    watched = watch(opened, graph, step)
    contexts = arenas(watched.run, watched.graph)
    if only is not None:
        names = [ctx.name for ctx in contexts]
        if only not in names:
            near = nearest(only, names)
            hint = f"did you mean {near!r}?" if near else "the contexts are " + ", ".join(map(repr, names))
            raise CliError(f"no context is called {only!r}; {hint}")
        contexts = [ctx for ctx in contexts if ctx.name == only]
    built = watched.run.newest[watched.graph][0]
    facts = GraphFacts(built.size, built.n_nodes, built.n_leafs)
    if format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(contexts_json(contexts, facts, watched.graph, step)))
    elif format == "ggml":
        output.write("".join(map(print_objects, contexts)))
    else:
        output.write(contexts_view(contexts, facts, opened.title, watched.heading, output.style))
    return 0
