"""`ggmltool plan`: devices, splits, copies and buffers on one screen."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import Moment, json_option, moment_options, output_option, scenario_argument
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import open_scenario, tensor_infos
from ggmltool.cli.watched import watch


@click.command(cls=Command)
@scenario_argument
@moment_options
@json_option
@output_option
def plan(scenario: str | None, moment: Moment, json: bool, output: Output) -> int:
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
      ggmltool plan --after 2 model.yaml
    """
    opened = open_scenario(scenario)
    watched = watch(opened, moment)
    result = watched.plan
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(watched.stamped(result.as_dict())))
    else:
        from ggmltool.views.plan import plan_view

        more = f"ggmltool splits --format table {opened.argument}"
        output.write(plan_view(result, tensor_infos(opened.model, watched.graph), watched.title, output.style, more))
    return watched.status()
