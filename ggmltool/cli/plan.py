"""`ggmltool plan`: devices, splits, copies and buffers on one screen."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import graph_option, json_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario, tensor_infos


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@json_option
@output_option
def plan(scenario: str | None, graph: str | None, step: str, json: bool, output: Output) -> int:
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
    """
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    result = opened.scenario.plan(name, step)
    log_lines(result.log)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(result.as_dict()))
    else:
        from ggmltool.views.plan import plan_view

        more = f"ggmltool splits --format table {opened.argument}"
        output.write(plan_view(result, tensor_infos(opened.model, name), opened.title, output.style, more))
    return 0 if result.ok else 1
