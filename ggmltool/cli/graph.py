"""`ggmltool graph`: the graph's nodes and leafs in ggml's order, in ggml's words."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.options import graph_option, json_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario
from ggmltool.views.errors import ggml_error
from ggmltool.views.graph_print import graph_json, graph_print
from ggmltool.views.text import printable


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--sched",
    is_flag=True,
    help="The graph that the scheduler hands to the allocator, with copies and dependencies (default: as built).",
)
@json_option
@output_option
def graph(scenario: str | None, graph: str | None, step: str, sched: bool, json: bool, output: Output) -> int:
    """Print the graph as ggml_graph_print does: nodes and leafs in the order ggml_build_forward_expand finds them.

    \b
    Example:
      ggmltool graph graph.yaml
      ggmltool graph --sched graph.yaml    with the scheduler's copies
    """
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    run = opened.scenario.start()
    if sched:
        plan = run.reserve(name) if step == "reserve" else run.alloc(name)
        log_lines(plan.log)
        if plan.error is not None:
            raise CliError(f"the scheduler has no graph:\n{ggml_error(dict(plan.error))}", GGML_FAILED)
        scheduler = run.start()
        nodes, leafs = scheduler.nodes, scheduler.leafs
    else:
        built = run.build(name)
        nodes, leafs = built.nodes, built.leafs
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(graph_json(name, "scheduler" if sched else "scenario", nodes, leafs)))
    else:
        output.write(graph_print(nodes, leafs, printable if output.to_terminal else None))
    return 0
