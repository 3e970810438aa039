"""`ggmltool buffers`: how large the compute buffers are, and what lies in them at their peak."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import graph_option, json_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.scenario import Opened, open_scenario, tensor_infos
from ggmltool.views.buffers import MAX_TENSORS, buffers_json, buffers_view
from ggmltool.views.errors import ggml_error
from ggmltool.views.memory import MemoryPlan, memory_plan

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.ggml.plan import Plan


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option("--all", is_flag=True, help=f"Show all tensors at the peak, not only the {MAX_TENSORS} largest.")
@click.option("--chart", is_flag=True, help="Draw what lies where: program order to the right, offsets upwards.")
@click.option("--ascii", is_flag=True, help="Draw the chart with ASCII characters only.")
@click.option("--chunks", is_flag=True, help="Show the chunks: sizes, limits, and the tensor that opened each.")
@click.option("--copies", is_flag=True, help="Show what pipeline copies cost: the same plan with and without them.")
@json_option
@output_option
def buffers(
    scenario: str | None,
    graph: str | None,
    step: str,
    all: bool,
    chart: bool,
    ascii: bool,
    chunks: bool,
    copies: bool,
    json: bool,
    output: Output,
) -> int:
    """Show the size of every compute buffer and what lies in it at its peak, largest first.

    The peak is the node during which most bytes are alive; a buffer is larger than that where the memory between
    living tensors is in pieces.

    \b
    Example:
      ggmltool buffers --graph decode model.yaml
      ggmltool buffers --chart model.yaml
    """
    views = [view for view, asked in (("--chart", chart), ("--chunks", chunks), ("--copies", copies)) if asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(views)} are different views; choose one.")
    if views and all:
        raise click.UsageError(f"--all is for the tensors at the peak, not for {views[0]}.")
    if ascii and not chart:
        raise click.UsageError("--ascii is for --chart.")
    if chart and json:
        raise click.UsageError("--chart is a drawing; --json without it has the tensors at the peak.")
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    if copies:
        return _copies(opened, name, step, json, output)
    events: list[Event] = []
    plan = opened.scenario.plan(name, step, events.append)
    memory = memory_plan(events)
    log_lines(plan.log)
    if chart:
        from ggmltool.views.memory_chart import chart_view

        output.write(chart_view(plan, memory, opened.title, output.style, ascii))
        if plan.error is not None:
            note(ggml_error(dict(plan.error)))
    elif chunks:
        _chunks(opened, plan, memory, json, output)
    elif json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(buffers_json(plan, memory)))
    else:
        limit = None if all else MAX_TENSORS
        tensors = tensor_infos(opened.model, name)
        output.write(buffers_view(plan, memory, tensors, opened.title, output.style, limit))
    return 0 if plan.ok else 1


def _chunks(opened: Opened, plan: Plan, memory: MemoryPlan, json: bool, output: Output) -> None:
    """--chunks: the limits are those of the buffer types."""
    from ggmltool.ggml.version import SIZE_MAX
    from ggmltool.scenario.engine import make_bufts
    from ggmltool.views.chunks import chunks_json, chunks_view
    from ggmltool.views.json_text import json_text

    bufts = make_bufts(opened.model)
    limits = {name: None if buft.max_size >= SIZE_MAX // 2 else buft.max_size for name, buft in bufts.items()}
    if json:
        output.write(json_text(chunks_json(plan, memory, limits)))
    else:
        output.write(chunks_view(plan, memory, limits, opened.title, output.style))


def _copies(opened: Opened, graph: str, step: str, json: bool, output: Output) -> int:
    """--copies: two plans on two schedulers."""
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.views.chunks import copies_json, copies_view
    from ggmltool.views.json_text import json_text

    model = opened.model
    parallel, single = (
        Scenario(replace(model, scheduler=replace(model.scheduler, parallel=on))).plan(graph, step)
        for on in (True, False)
    )
    if json:
        output.write(json_text(copies_json(parallel, single)))
    else:
        output.write(copies_view(parallel, single, opened.title, output.style))
    return 0 if parallel.ok and single.ok else 1
