"""`ggmltool trace`: the calls that ggml makes, in order."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import ggml_option, json_option, output_option, scenario_argument, work_option
from ggmltool.cli.output import Output, note
from ggmltool.cli.progress import Advance, progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import check_memory, check_run, memory_option, tell_of_undone, zeros_option
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Computed, Event
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Opened
from ggmltool.views.compute.calls import TracedStep, trace_json, trace_view
from ggmltool.views.errors import ggml_error


@click.command(cls=Command)
@scenario_argument
@click.option("--compute/--no-compute", default=True, help="Do every step (default), or only reserve, alloc and reset.")
@click.option("--decisions", is_flag=True, help="Also every decision of the scheduler's passes and of the allocator.")
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
    output: Output,
) -> int:
    """Show the calls of every step as a tree under ggml's function names: copies, waiting and computing in order.

    \b
    Example:
      ggmltool trace graph.yaml
      ggmltool trace --no-compute --decisions model.yaml
    """
    opened = open_scenario(scenario)
    if compute:
        check_run(opened.model, zeros)
        if memory_check:
            check_memory(opened)
    steps, families = _traced(opened, compute)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(trace_json(steps)))
    else:
        output.write(trace_view(steps, families, opened.title, output.style, decisions))
    return 1 if steps and steps[-1].error else 0


def _traced(opened: Opened, compute: bool) -> tuple[list[TracedStep], dict[str, str]]:
    """The steps up to one that fails, and the family of each buffer type."""
    graphs = opened.model.graphs
    total = sum(len(graphs[s.graph].nodes) for s in opened.model.steps if s.kind == "compute" and s.graph is not None)
    with progress("tracing", total if compute else 0, "nodes") as advance:
        return _steps(opened, compute, advance)


def _steps(opened: Opened, compute: bool, advance: Advance) -> tuple[list[TracedStep], dict[str, str]]:
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, Computed):
            advance(len(event.nodes))

    run = opened.scenario.start(hear, values=compute)
    out: list[TracedStep] = []
    try:
        run.start()
    except GgmlError as refused:
        note(ggml_error(refused.as_dict()))
        return [TracedStep("start", events, refused.as_dict()["message"] or "ggml failed")], {}
    if events:
        out.append(TracedStep("start", list(events)))
    for step in opened.model.steps:
        if not compute and step.kind not in ("reserve", "alloc", "reset"):
            continue
        events.clear()
        done = run.step(step)
        tell_of_undone(run, step)
        if isinstance(done, Plan) and done.error is not None:
            error = dict(done.error)
            out.append(TracedStep(str(step), list(events), error.get("message") or "ggml failed"))
            note(ggml_error(error))
            break
        out.append(TracedStep(str(step), list(events)))
    return out, {name: buft.family for name, buft in run.bufts.items()}
