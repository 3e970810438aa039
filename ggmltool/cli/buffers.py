"""`ggmltool buffers`: how large the compute buffers are, and what lies in them at their peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import graph_option, json_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario, tensor_infos
from ggmltool.views.buffers import MAX_TENSORS, buffers_json, buffers_view
from ggmltool.views.memory import memory_plan

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option("--all", is_flag=True, help=f"Show all tensors at the peak, not only the {MAX_TENSORS} largest.")
@json_option
@output_option
def buffers(scenario: str | None, graph: str | None, step: str, all: bool, json: bool, output: Output) -> int:
    """Show the size of every compute buffer and what lies in it at its peak, largest first.

    The peak is the node during which most bytes are alive; a buffer is larger than that where the memory between
    living tensors is in pieces.

    \b
    Example:
      ggmltool buffers --graph decode model.yaml
    """
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    events: list[Event] = []
    plan = opened.scenario.plan(name, step, events.append)
    memory = memory_plan(events)
    log_lines(plan.log)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(buffers_json(plan, memory)))
    else:
        limit = None if all else MAX_TENSORS
        tensors = tensor_infos(opened.model, name)
        output.write(buffers_view(plan, memory, tensors, opened.title, output.style, limit))
    return 0 if plan.ok else 1
