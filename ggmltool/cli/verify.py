"""`ggmltool verify`: the same scenario on the real library, and what differs."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import json_option, output_option, scenario_argument, work_option
from ggmltool.cli.output import Output
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.views.diff.verify import debug_text, verify_view


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--values/--no-values",
    default=None,
    help="Compute on both and compare the outputs (default: where every tensor of the contexts has data).",
)
@work_option
@json_option
@output_option
def verify(scenario: str | None, values: bool | None, json: bool, output: Output) -> int:
    """Run the scenario on the real ggml, too, and show what differs.

    It compares all fields of the plans after every reserve and alloc step, ggml's own debug print of them, and the
    values of the outputs. Exit status 1 if anything differs.

    \b
    Example:
      ggmltool verify --no-values model.yaml
    """
    from ggmltool.inspect.verified import verify as run_verify

    opened = open_scenario(scenario)
    found = run_verify(opened.scenario, values, debug_text, progress)
    if json:
        from ggmltool.views.diff.documents import VerifyDocument

        output.write_document(VerifyDocument.of(found))
    else:
        output.write(verify_view(found, opened.title, output.style))
    return 1 if found.differences else 0
