"""`ggmltool plan`: devices, splits, copies and buffers on one screen."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.options import Moment, json_option, moment_options, output_option, scenario_argument
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import tensor_infos
from ggmltool.cli.watched import watch


@click.command(cls=Command)
@scenario_argument
@moment_options
@json_option
@output_option
def plan(scenario: str | None, moment: Moment, json: bool, output: Output) -> int:
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    In place of a scenario a log of GGML_SCHED_DEBUG=2 will do, as far as it can tell; --graph is then a graph's number
    or a part of its title.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
      ggmltool plan --after 2 model.yaml
    """
    opened = open_either(scenario, moment.graph)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.log_views import refuse_moment, show_plan

        refuse_moment()
        return show_plan(opened, json, output)
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
