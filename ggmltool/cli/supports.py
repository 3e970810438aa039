"""`ggmltool supports`: which device could run which node, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.ask.supports import supports as ask_supports
from ggmltool.ask.supports.record import STATES, State
from ggmltool.cli.command import Command
from ggmltool.cli.options import ggml_option, graph_option, json_option, output_option, scenario_argument
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


@click.command(cls=Command)
@scenario_argument
@graph_option
@click.option(
    "--by",
    type=click.Choice(["op", "node"]),
    default="op",
    show_default=True,
    help="Show a row for all nodes with the same op, types and answers, or a row for every node.",
)
@click.option(
    "--only", "wanted", type=click.Choice(STATES), envvar="GGMLTOOL_SUPPORTS_ONLY",
    help="Show only nodes to which some backend gives this answer.",
)  # fmt: skip
@ggml_option
@json_option
@output_option
def supports(
    scenario: str | None,
    graph: str | None,
    by: str,
    wanted: State | None,
    json: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Show which backend supports which node of a graph, and the reason for every no.

    \b
    The answers, as the scheduler gets them before it begins:
      yes      it supports the op, and can use all memory that is already allocated
      copy     it supports the op after sources are copied, such as weights elsewhere
      offload  the same, and it offloads the op: the batch makes the copy worth it
      no       it does not support the op (supports_op), or cannot use the memory
               that the node has (supports_buft); the reasons are below the table

    \b
    Example:
      ggmltool supports model.yaml
      ggmltool supports --by node --only no model.yaml
    """
    answer = ask_supports(open_scenario(scenario, release), graph, by == "node", wanted)
    log_lines(answer.facts.plan.log)
    if not json:
        return output.answer(answer, "text")
    output.write_document(answer.document())
    return 0 if answer.ok else 1
