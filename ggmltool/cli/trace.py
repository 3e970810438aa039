"""`ggmltool trace`: the calls that ggml makes, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import ggml_option, json_option, output_option, scenario_argument, work_option
from ggmltool.cli.output import Output, note
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import check_run, memory_option, tell_of_undone, zeros_option
from ggmltool.inspect.ready import check_memory, computed_graphs
from ggmltool.inspect.trace import trace_steps
from ggmltool.views.compute.calls import trace_view
from ggmltool.views.errors import ggml_error

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--compute/--no-compute", default=True, help="Run every step (default), or only reserve, alloc and reset."
)
@click.option(
    "--decisions", is_flag=True, help="Also show every decision of the scheduler's passes and of the allocator."
)
@zeros_option
@memory_option
@work_option
@ggml_option
@json_option
@output_option
def trace(
    scenario: str | None,
    compute: bool,
    decisions: bool,
    zeros: bool,
    memory_check: bool,
    json: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Show the calls of every step as a tree under ggml's function names: copies, waiting and computing in order.

    \b
    Example:
      ggmltool trace graph.yaml
      ggmltool trace --no-compute --decisions model.yaml
    """
    opened = open_scenario(scenario, release)
    if compute:
        check_run(opened.model, zeros)
        if memory_check:
            check_memory(opened)
    graphs = opened.model.graphs
    total = sum(len(graphs[name].nodes) for name in computed_graphs(opened.model))
    with progress("tracing", total if compute else 0, "nodes") as advance:
        found = trace_steps(opened.scenario, compute, advance, tell_of_undone)
    steps = found.steps
    if found.error is not None:
        note(ggml_error(found.error))
    if json:
        from ggmltool.views.compute.documents import TraceDocument

        output.write_document(TraceDocument.of(opened.model.ggml, found))
    else:
        output.write(trace_view(steps, found.families, opened.title, output.style, decisions))
    return 1 if steps and steps[-1].error else 0
