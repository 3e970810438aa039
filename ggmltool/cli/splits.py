"""`ggmltool splits`: which backend every node gets and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import format_option, graph_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.scenario import open_scenario, tensor_infos
from ggmltool.views.errors import ggml_error
from ggmltool.views.text import printable

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.scenario.scenario import Scenario


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="ggml's text for this GGML_SCHED_DEBUG: 1 the splits, 2 also their nodes (default: 2).",
)
@click.option(
    "--causes/--no-causes",
    default=None,
    help="Print why each tensor has its backend (default), or leave it out as ggml's release builds do.",
)
@format_option("text", "table", "json", help="ggml's own text (default), a table with a line per split, or JSON.")
@output_option
def splits(
    scenario: str | None,
    graph: str | None,
    step: str,
    debug: int | None,
    causes: bool | None,
    format: str | None,
    output: Output,
) -> int:
    """Show which backend every node gets and why, and what is copied.

    \b
    The causes, by the scheduler's passes:
      1.dst  its own memory lies there      1.wgt<i>  its source i is a weight there
      1.inp  it is a graph input            1.off     offloaded, with a weight on the host
      2.sup  a neighbour's backend can too  3.best    most of its sources are there
      3.upg  a faster one with that memory  4.vsrc    where the tensor it views is
      4.cur  where the node that needs it is  usr     the scenario says so

    \b
    Example:
      ggmltool splits --format table model.yaml
    """
    if format not in (None, "text") and (debug is not None or causes is not None):
        raise click.UsageError(f"--debug and --causes are for ggml's text, not for --format {format}.")
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    if format in (None, "text"):
        plan, text = _debug_text(opened.scenario, name, step, debug or 2, causes is not False, output)
        log_lines(plan.log)
        output.write(text)
        if plan.ok and not plan.nodes:
            note(f"The graph {name} has no nodes.")
        if plan.error is not None:
            note(ggml_error(dict(plan.error)))
        return 0 if plan.ok else 1
    plan = opened.scenario.plan(name, step)
    log_lines(plan.log)
    tensors = tensor_infos(opened.model, name)
    if format == "json":
        from ggmltool.views.json_text import json_text
        from ggmltool.views.splits import splits_json

        output.write(json_text(splits_json(plan, tensors)))
    else:
        from ggmltool.views.splits import splits_report

        output.write(splits_report(plan, tensors, opened.title, output.style))
        if plan.error is not None:
            note(ggml_error(dict(plan.error)))
    return 0 if plan.ok else 1


def _debug_text(
    scenario: Scenario, graph: str, step: str, level: int, causes: bool, output: Output
) -> tuple[Plan, str]:
    """ggml's debug print of one step; on a terminal without control characters in names."""
    from ggmltool.views.sched_debug import sched_debug

    run = scenario.start(debug=True)
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    name = printable if output.to_terminal else None
    return plan, "".join(sched_debug(record, level, causes, name) for record in run.debug_records)
