"""`ggmltool check`: every limit of ggml with its gauge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED
from ggmltool.cli.options import ggml_option, json_option, moment_options, output_option, scenario_argument
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Moment

if TYPE_CHECKING:
    pass


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option(
    "--all",
    is_flag=True,
    help="Check every graph, each on a fresh scheduler, and show the highest value of each gauge.",
)
@ggml_option
@json_option
@output_option
def check(scenario: str | None, moment: Moment, all: bool, json: bool, output: Output) -> int:
    """Show every limit of ggml with its gauge: used, limit, where, and what ggml does beyond it.

    The exit status is 1 if a limit is breached, or if ggml would fail for another reason. An array that grows with a
    warning (a split's 30 inputs) or a name that is cut is not a breach.

    \b
    Example:
      ggmltool check model.yaml
      ggmltool check --all --step reserve model.yaml
      ggmltool check --after 3 model.yaml
    """
    if all and (moment.graph is not None or moment.after is not None):
        other = "--graph" if moment.after is None else "--after"
        raise click.UsageError(f"--all checks every graph, {other} only one; choose one.")
    from ggmltool.inspect.limits import check_all
    from ggmltool.views.explain.check import all_is_fine

    opened = open_scenario(scenario)
    found, title, what = check_all(opened, moment, all)
    for one in found:
        log_lines(one.plan.log)
    if json:
        from ggmltool.views.explain.check import checked_json
        from ggmltool.views.json_text import json_text

        output.write(json_text(checked_json(found, moment.after)))
    else:
        from ggmltool.views.explain.check import checked_view

        output.write(checked_view(found, title, what, output.style))
    return FINE if all_is_fine(found) else GGML_FAILED
