"""`ggmltool plan`: devices, splits, copies and buffers on one screen."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.options import (
    ggml_option,
    json_option,
    moment_options,
    output_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.inspect.opened import Moment, WhatIf
from ggmltool.inspect.watched import watch
from ggmltool.scenario.tensor_info import tensor_infos


@click.command(cls=Command)
@scenario_argument
@moment_options
@what_if_options
@ggml_option
@json_option
@output_option
def plan(scenario: str | None, moment: Moment, what_if: WhatIf, json: bool, output: Output) -> int:
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    In place of a scenario a log of GGML_SCHED_DEBUG=2 will do, as far as it can tell; --graph is then a graph's number
    or a part of its title.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
      ggmltool plan --after 2 model.yaml
      ggmltool plan --parallel model.yaml
    """
    opened = open_either(scenario, moment.graph)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.log_views import refuse_moment, refuse_what_if, show_plan

        refuse_moment()
        refuse_what_if()
        return show_plan(opened, json, output)
    opened = opened.what_if(what_if)
    watched = watch(opened, moment)
    result = watched.plan
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(watched.stamped(result.as_dict())))
    else:
        from ggmltool.views.plan.plan import plan_view

        more = f"ggmltool splits --format table {opened.again}"
        output.write(plan_view(result, tensor_infos(opened.model, watched.graph), watched.title, output.style, more))
    return status_of(watched)
