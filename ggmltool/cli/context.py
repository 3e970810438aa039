"""`ggmltool context`: what lies where in the arenas of the contexts."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_contexts,
    format_option,
    ggml_option,
    moment_options,
    output_option,
    scenario_argument,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.contexts import contexts_at
from ggmltool.inspect.opened import Moment
from ggmltool.inspect.watched import watch
from ggmltool.views.memory.objects import contexts_json, contexts_view, print_objects


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option(
    "--only",
    metavar="CONTEXT",
    shell_complete=complete_contexts,
    help="Show only this context (default: all).",
)
@ggml_option
@format_option("table", "ggml", "json", help="A table (default), the text of ggml_print_objects, or JSON.")
@output_option
def context(scenario: str | None, moment: Moment, only: str | None, format: str | None, output: Output) -> int:
    """Show the object map of each context: offset, size, type and tensor, and the layout of the cgraph.

    After the contexts of the file come `graph NAME`, with the nodes and the cgraph, and `scheduler`, with its copies
    and dependencies. Addresses are simulated; offsets and sizes are ggml's.

    \b
    Example:
      ggmltool context graph.yaml
      ggmltool context --only inputs --format ggml graph.yaml
    """
    opened = open_scenario(scenario)
    watched = watch(opened, moment)
    contexts, facts = contexts_at(watched, only)
    if format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(watched.stamped(contexts_json(contexts, facts, watched.graph, watched.kind))))
    elif format == "ggml":
        output.write("".join(map(print_objects, contexts)))
    else:
        output.write(contexts_view(contexts, facts, watched.title, watched.heading, output.style))
    return status_of(watched)
