"""`ggmltool graph`: the graph's nodes and leafs in ggml's order, in ggml's words."""

from __future__ import annotations

from typing import Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE
from ggmltool.cli.options import ggml_option, json_option, moment_options, output_option, raw_option, scenario_argument
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_scenario
from ggmltool.ggml.tensor import Tensor
from ggmltool.inspect.opened import Moment
from ggmltool.inspect.watched import graph_at, watch
from ggmltool.views.plan.graph_print import graph_json, graph_print


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option(
    "--sched",
    is_flag=True,
    help="The graph that the scheduler hands to the allocator, with copies and dependencies (default: as built).",
)
@raw_option
@ggml_option
@json_option
@output_option
def graph(scenario: str | None, moment: Moment, sched: bool, json: bool, output: Output) -> int:
    """Print the graph as ggml_graph_print does: nodes and leafs in the order ggml_build_forward_expand finds them.

    \b
    Example:
      ggmltool graph graph.yaml
      ggmltool graph --sched graph.yaml    with the scheduler's copies
    """
    opened = open_scenario(scenario)
    if not sched:
        name = graph_at(opened, moment)
        built = opened.scenario.start().build(name)
        _write(output, json, graph_json(name, "scenario", built.nodes, built.leafs), built.nodes, built.leafs)
        return FINE
    watched = watch(opened, moment)
    if not watched.sched.nodes and watched.plan.error is not None:
        raise watched.refusal("the scheduler has no graph:\n")
    nodes, leafs = watched.sched.nodes, watched.sched.leafs
    _write(output, json, watched.stamped(graph_json(watched.graph, "scheduler", nodes, leafs)), nodes, leafs)
    return status_of(watched)


def _write(output: Output, json: bool, document: dict[str, Any], nodes: list[Tensor], leafs: list[Tensor]) -> None:
    from ggmltool.views.json_text import json_text

    if json:
        output.write(json_text(document))
    else:
        output.write_ggml(graph_print(nodes, leafs))
