"""`ggmltool record`: every decision of a run in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.options import ggml_option, output_to, scenario_argument
from ggmltool.cli.output import Output, note
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import check_run, memory_option, zeros_option
from ggmltool.inspect.ready import check_memory

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


@click.command(cls=Command)
@scenario_argument
@click.option("--compute/--no-compute", default=False, help="Do every step, or only those that plan (default).")
@zeros_option
@memory_option
@ggml_option
@output_to(".ggtrace", text=False)
def record(
    scenario: str | None,
    compute: bool,
    zeros: bool,
    memory_check: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Write a record of a run: every decision with its reason, and what it changed, in order.

    Every command takes the record in place of a scenario, and has the release and the steps that were recorded; what
    is in it, `ggmltool help record` says. Values are not kept.

    \b
    Example:
      ggmltool record moe -o moe.ggtrace
      ggmltool plan moe.ggtrace
    """
    if output.to_terminal:
        raise CliError("a record cannot be shown on a terminal; name a file with -o graph.ggtrace")
    opened = open_scenario(scenario, release)
    if compute:
        check_run(opened.model, zeros)
        if memory_check:
            check_memory(opened)
    from ggmltool.inspect.history.history import record_history
    from ggmltool.inspect.history.record import record_bytes
    from ggmltool.show.text import ggml_error

    history = record_history(opened.scenario, compute)
    output.write(record_bytes(history))
    if history.error is not None:
        note(ggml_error(history.error))
    return FINE if history.error is None else GGML_FAILED
