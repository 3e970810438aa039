"""`ggmltool plan`: devices, splits, copies and buffers on one screen."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ask.moment import answer
from ggmltool.ask.plan.record import PlanShown
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.moment import Look, moment_command
from ggmltool.inspect.watched import watch


@moment_command(what_if=True)
def plan(look: Look) -> int:
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario, as far as it tells; --graph is then a graph's number or
    a part of its title.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
      ggmltool plan --after 2 model.yaml
      ggmltool plan --pipeline model.yaml
    """
    opened = open_either(look.scenario, look.moment.graph, look.release)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.logs import refuse_moment, refuse_what_if, show_plan

        refuse_moment()
        refuse_what_if()
        return show_plan(opened, look.json, look.output)
    opened = opened.what_if(look.what_if)
    watched = watch(opened, look.moment)
    watched = replace(watched, plan=watched.run.as_computed(watched.plan))
    more = f"ggmltool splits --format table {opened.again}"
    return look.print(answer(watched, PlanShown.of(watched.plan, opened.tensors(watched.graph), more)))
