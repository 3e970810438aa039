"""`ggmltool splits`: which backend every node gets and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.main import did_you_mean
from ggmltool.cli.options import format_option, graph_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.scenario import Opened, open_scenario, tensor_infos
from ggmltool.views.errors import ggml_error
from ggmltool.views.text import printable

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.ggml.sched.passes import PassRecord
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.views.copied import OtherPlan

KEYS = ("op", "backend", "cause", "type", "split")


def _keys(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """`op,backend` as names of keys."""
    if value is None:
        return ()
    keys = tuple(part.strip() for part in value.split(","))
    for key in keys:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f" The keys are {', '.join(KEYS)}."
            raise click.BadParameter(f"{key!r} is nothing to count by.{hint}", ctx, param)
    if len(set(keys)) < len(keys):
        raise click.BadParameter("a key is named twice.", ctx, param)
    return keys


def _complete_keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    return [",".join([*before, key]) for key in KEYS if key.startswith(last) and key not in before]


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="ggml's text for this GGML_SCHED_DEBUG: 1 the splits, 2 also their nodes (default: 2).",
)
@click.option(
    "--causes/--no-causes",
    default=None,
    help="Print why each tensor has its backend (default), or leave it out as ggml's release builds do.",
)
@click.option(
    "--by",
    metavar="KEYS",
    callback=_keys,
    shell_complete=_complete_keys,
    help=f"Count the nodes instead, by one or more of {', '.join(KEYS)}: `--by op,backend` is a matrix.",
)
@click.option("--bytes", is_flag=True, help="Show what each split copies instead, input by input, with sums.")
@click.option(
    "--pass",
    "number",
    type=click.IntRange(1, 5),
    envvar="GGMLTOOL_SPLITS_PASS",
    help="Show the assignments after this pass of the scheduler instead, and what it changed.",
)
@format_option("text", "table", "json", help="ggml's own text (default), a table with a line per split, or JSON.")
@output_option
def splits(
    scenario: str | None,
    graph: str | None,
    step: str,
    debug: int | None,
    causes: bool | None,
    by: tuple[str, ...],
    bytes: bool,
    number: int | None,
    format: str | None,
    output: Output,
) -> int:
    """Show which backend every node gets and why, and what is copied.

    \b
    The causes, by the scheduler's passes:
      1.dst  its own memory lies there      1.wgt<i>  its source i is a weight there
      1.inp  it is a graph input            1.off     offloaded, with a weight on the host
      2.sup  a neighbour's backend can too  3.best    most of its sources are there
      3.upg  a faster one with that memory  4.vsrc    where the tensor it views is
      4.cur  where the node that needs it is  usr     the scenario says so

    \b
    Example:
      ggmltool splits --format table model.yaml
      ggmltool splits --by op,backend model.yaml
    """
    views = [view for view, asked in (("--by", by), ("--bytes", bytes), ("--pass", number)) if asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(views)} are different views; choose one.")
    if views and (debug is not None or causes is not None or format == "text"):
        raise click.UsageError(f"--debug, --causes and --format text are for ggml's text, not for {views[0]}.")
    if format not in (None, "text") and (debug is not None or causes is not None):
        raise click.UsageError(f"--debug and --causes are for ggml's text, not for --format {format}.")
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    if number is not None:
        return _pass(opened, name, step, number, format == "json", output)
    if by or bytes:
        return _counted(opened, name, step, by, format == "json", output)
    if format in (None, "text"):
        plan, text = _debug_text(opened.scenario, name, step, debug or 2, causes is not False, output)
        log_lines(plan.log)
        output.write(text)
        if plan.ok and not plan.nodes:
            note(f"The graph {name} has no nodes.")
        if plan.error is not None:
            note(ggml_error(dict(plan.error)))
        return 0 if plan.ok else 1
    plan = opened.scenario.plan(name, step)
    log_lines(plan.log)
    tensors = tensor_infos(opened.model, name)
    if format == "json":
        from ggmltool.views.json_text import json_text
        from ggmltool.views.splits import splits_json

        output.write(json_text(splits_json(plan, tensors)))
    else:
        from ggmltool.views.splits import splits_report

        output.write(splits_report(plan, tensors, opened.title, output.style))
        if plan.error is not None:
            note(ggml_error(dict(plan.error)))
    return 0 if plan.ok else 1


def _debug_text(
    scenario: Scenario, graph: str, step: str, level: int, causes: bool, output: Output
) -> tuple[Plan, str]:
    """ggml's debug print of one step; on a terminal without control characters in names."""
    from ggmltool.views.sched_debug import sched_debug

    run = scenario.start(debug=True)
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    name = printable if output.to_terminal else None
    return plan, "".join(sched_debug(record, level, causes, name) for record in run.debug_records)


def _counted(opened: Opened, graph: str, step: str, by: tuple[str, ...], json: bool, output: Output) -> int:
    """--by and --bytes: what one plan has, added up."""
    from ggmltool.views import copied, tally
    from ggmltool.views.json_text import json_text

    plan = opened.scenario.plan(graph, step)
    log_lines(plan.log)
    tensors = tensor_infos(opened.model, graph)
    if by:
        json_object: dict[str, Any] = tally.tally_json(plan, tensors, by)
        output.write(
            json_text(json_object) if json else tally.tally_view(plan, tensors, by, opened.title, output.style)
        )
    else:
        other = _other_offload(opened.scenario, plan, graph, step)
        text = (
            json_text(copied.copied_json(plan, tensors, other))
            if json
            else copied.copied_view(plan, tensors, opened.title, output.style, other)
        )
        output.write(text)
    if plan.error is not None and not json:
        note(ggml_error(dict(plan.error)))
    return 0 if plan.ok else 1


def _other_offload(scenario: Scenario, plan: Plan, graph: str, step: str) -> OtherPlan | None:
    """What would be copied with op offload the other way round, where that makes a difference."""
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.views.copied import OtherPlan, copied_inputs

    model = scenario.model
    offload = not model.scheduler.op_offload
    other = Scenario(replace(model, scheduler=replace(model.scheduler, op_offload=offload))).plan(graph, step)
    if not (plan.ok and other.ok) or other.splits == plan.splits:
        return None
    inputs = copied_inputs(other, tensor_infos(model, graph))
    return OtherPlan(offload, len(inputs), sum(i.nbytes for i in inputs))


def _pass(opened: Opened, graph: str, step: str, number: int, json: bool, output: Output) -> int:
    """--pass: the state after one pass."""
    from ggmltool.views.json_text import json_text
    from ggmltool.views.passes import pass_json, pass_view

    plan, records = pass_records(opened.scenario, graph, step)
    log_lines(plan.log)
    if json:
        output.write(json_text(pass_json(plan, records, number)))
    else:
        output.write(pass_view(plan, records, number, opened.title, output.style))
    return 0 if plan.ok else 1


def pass_records(scenario: Scenario, graph: str, step: str) -> tuple[Plan, list[PassRecord]]:
    """One step with what every pass of the scheduler did."""
    from ggmltool.ggml.sched.passes import PassRecorder

    recorder = PassRecorder(lambda: run.newest[graph][0])
    run = scenario.start(recorder.heard)
    run.start().on_pass = recorder.after
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    return plan, recorder.records
