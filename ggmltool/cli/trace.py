"""`ggmltool trace`: the calls that ggml makes, in order, and what happens when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.ask.trace import trace as ask_trace
from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    DOCUMENTS,
    depth_option,
    format_option,
    ggml_option,
    output_option,
    scenario_argument,
    work_option,
)
from ggmltool.cli.output import Output, note
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import check_run, memory_option, tell_of_undone, zeros_option
from ggmltool.inspect.ready import check_memory, computed_graphs
from ggmltool.show.text import ggml_error

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.opened import Opened


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--compute/--no-compute", default=True, help="Run every step (default), or only reserve, alloc and reset."
)
@click.option(
    "--decisions", is_flag=True, help="Also show every decision of the scheduler's passes and of the allocator."
)
@click.option(
    "--measured", is_flag=True, help="For Perfetto, compute the steps here and show how long each node takes."
)
@depth_option
@zeros_option
@memory_option
@work_option
@ggml_option
@format_option(
    "text",
    *DOCUMENTS,
    "perfetto",
    help="Text (default), JSON or CSV with exact bytes, or lanes of time for ui.perfetto.dev.",
)
@output_option
def trace(
    scenario: str | None,
    compute: bool,
    decisions: bool,
    measured: bool,
    n_depth: int,
    zeros: bool,
    memory_check: bool,
    format: str | None,
    release: Release | None,
    output: Output,
) -> int:
    """Show the calls of every step as a tree under ggml's function names: copies, waiting and computing in order.

    With --perfetto (or -o FILE.perfetto.json) what happens when, for ui.perfetto.dev, where nothing is uploaded: for
    each device a lane of its computing and one of the copies to it, with arrows from the split that makes a tensor to
    the one that reads it, the host's calls and waits, and the bytes alive in each buffer. Durations are estimates where
    the scenario names the hardware, those of this machine with --measured, else the program order with a unit for each
    node and copy. If no step computes, each graph is shown as if it were computed after `alloc`.

    \b
    Example:
      ggmltool trace graph.yaml
      ggmltool trace --no-compute --decisions model.yaml
      ggmltool trace -o model.perfetto.json placed.json.gz
      ggmltool trace --measured -o graph.perfetto.json graph.yaml
    """
    if measured and (format != "perfetto" or not compute):
        raise click.UsageError("--measured computes, and is shown with --perfetto or -o FILE.perfetto.json.")
    if decisions and format == "perfetto":
        raise click.UsageError("--decisions are lines of text; leave them out with --perfetto.")
    opened = open_scenario(scenario, release)
    computes = measured or (compute and format != "perfetto")
    if computes:
        check_run(opened.model, zeros)
        if memory_check:
            check_memory(opened)
    if format == "perfetto":
        return _perfetto(opened, measured, n_depth, output)
    graphs = opened.model.graphs
    total = sum(len(graphs[name].nodes) for name in computed_graphs(opened.model))
    with progress("tracing", total if compute else 0, "nodes") as advance:
        answer = ask_trace(opened, compute, decisions, advance, tell_of_undone)
    if answer.facts.error is not None:
        note(ggml_error(answer.facts.error))
    return output.answer(answer, format or "text")


def _perfetto(opened: Opened, measured: bool, n_depth: int, output: Output) -> int:
    """--perfetto: what happens when."""
    from ggmltool.ask.trace.perfetto import measured_trace, planned_trace
    from ggmltool.show.perfetto import perfetto_text

    if measured:
        total = sum(len(opened.model.graphs[name].nodes) for name in computed_graphs(opened.model))
        with progress("computing", total, "nodes") as advance:
            found = measured_trace(opened, n_depth, advance, tell_of_undone)
    else:
        found = planned_trace(opened, n_depth)
    note(f"Durations: {found.about}")
    if found.error is not None:
        note(ggml_error(found.error))
    output.write(perfetto_text(found).encode())
    return 0 if found.error is None else 1
