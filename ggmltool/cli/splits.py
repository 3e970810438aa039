"""`ggmltool splits`: which backend every node gets and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.main import did_you_mean
from ggmltool.cli.options import (
    format_option,
    ggml_option,
    moment_options,
    output_option,
    raw_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, note, status_of
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watch, Watched, watch
from ggmltool.scenario.tensor_info import tensor_infos

if TYPE_CHECKING:
    from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler
    from ggmltool.inspect.copied import OtherPlan
    from ggmltool.scenario.tensor_info import Tensors

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
@moment_options
@what_if_options
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
@raw_option
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
@ggml_option
@format_option("text", "table", "json", help="ggml's own text (default), a table with a line per split, or JSON.")
@output_option
def splits(
    scenario: str | None,
    moment: Moment,
    what_if: WhatIf,
    debug: int | None,
    causes: bool | None,
    by: tuple[str, ...],
    bytes: bool,
    number: int | None,
    format: str | None,
    output: Output,
) -> int:
    """Show which backend every node gets and why, and what is copied.

    In place of a scenario a log of GGML_SCHED_DEBUG=2 will do, as far as it can tell; --graph is then a graph's number
    or a part of its title.

    \b
    The causes, by the scheduler's passes:
      1.dst  its own memory lies there      1.wgt<i>  its source i is a weight there
      1.inp  it is a graph input            1.off     offloaded, with a weight on the host
      2.sup  a neighbour's backend can too  3.best    most of its sources are there
      3.upg  a faster one with that memory  4.vsrc    where the tensor it views is
      4.cur  where the node that needs it is  usr     the scenario says so

    \b
    Those of ggml 2024-01, whose scheduler has four passes:
      1.dst, 1.wgt<i>  as above                1.vsrc  what it views lies there
      2.1 2.2  a GPU neighbour's, below, above 2.3 2.4  any neighbour's, below, above
      3.vsrc   where the tensor it views is    3.cur   where the node that needs it is

    \b
    Example:
      ggmltool splits --format table model.yaml
      ggmltool splits --by op,backend model.yaml
      ggmltool splits --after 3 model.yaml
      ggmltool splits --pass 2 --format text --ggml 2024-01 model.yaml
      ggmltool splits --bytes --no-op-offload model.yaml
      ggmltool splits --by op,backend --graph "n_tokens = 512" llama.log
    """
    views = [view for view, asked in (("--by", by), ("--bytes", bytes), ("--pass", number)) if asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(views)} are different views; choose one.")
    printed = number is not None and format == "text"
    if views and not printed and (debug is not None or causes is not None or format == "text"):
        raise click.UsageError(f"--debug, --causes and --format text are for ggml's text, not for {views[0]}.")
    if format not in (None, "text") and (debug is not None or causes is not None):
        raise click.UsageError(f"--debug and --causes are for ggml's text, not for --format {format}.")
    opened = open_either(scenario, moment.graph)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.log_views import refuse_moment, refuse_options, refuse_what_if, show_splits

        refuse_moment()
        refuse_what_if()
        refuse_options(number="shows the end of the passes only")
        return show_splits(opened, debug or 2, causes is not False, by, bytes, format, output)
    opened = opened.what_if(what_if)
    if number is not None and printed:
        return _printed_pass(opened, moment, number, debug or 2, causes is not False, output)
    if number is not None:
        return _pass(opened, moment, number, format == "json", output)
    if format in (None, "text") and not (by or bytes):
        return _debug_text(opened, moment, debug or 2, causes is not False, output)
    watched = watch(opened, moment)
    plan = watched.plan
    tensors = tensor_infos(opened.model, watched.graph)
    if by or bytes:
        from ggmltool.inspect.copied import other_offload

        other = other_offload(opened, plan, moment) if bytes else None
        document, text = _counted(watched, tensors, by, other, output)
    else:
        from ggmltool.views.plan.splits import splits_json, splits_report

        document, text = splits_json(plan, tensors), splits_report(plan, tensors, watched.title, output.style)
    if format == "json":
        from ggmltool.views.json_text import json_text

        text = json_text(watched.stamped(document))
    output.write(text)
    return status_of(watched)


def _debug_text(opened: Opened, moment: Moment, level: int, causes: bool, output: Output) -> int:
    """ggml's debug print of one step."""
    from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler
    from ggmltool.views.plan.sched_debug import sched_debug

    watched = Watch(opened, moment, debug=True).watched()
    if isinstance(watched.sched, MeasuredScheduler):
        return _printed(watched, watched.sched, len(watched.sched.passes) - 1, level, causes, False, output)
    there = watched.is_split or watched.plan.ok
    counts = opened.model.release.prints_use_counts
    output.write_ggml(sched_debug(watched.sched.debug_record, level, causes, counts) if there else "")
    if watched.plan.ok and not watched.plan.nodes:
        note(f"The graph {watched.graph} has no nodes.")
    return status_of(watched)


def _printed_pass(opened: Opened, moment: Moment, number: int, level: int, causes: bool, output: Output) -> int:
    """--pass --format text: what a ggml prints of each pass that can do so."""
    from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler

    watched = Watch(opened, moment, debug=True).watched()
    sched = watched.sched
    if not isinstance(sched, MeasuredScheduler):
        message = f"ggml {sched.release.name} prints nothing of single passes"
        raise CliError(f"{message}; that of 2024-01 could: --ggml 2024-01")
    watched.check_pass(number)
    return _printed(watched, sched, number, level, causes, True, output)


def _printed(
    watched: Watched, sched: MeasuredScheduler, number: int, level: int, causes: bool, title: bool, output: Output
) -> int:
    """The print after a pass, where the scheduler came to it."""
    from ggmltool.views.plan.pass_prints import pass_print

    prints = (p for p in sched.printed if p.number == number)
    output.write_ggml("".join(pass_print(p, level, causes, title) for p in prints))
    if watched.plan.ok and not watched.plan.nodes:
        note(f"The graph {watched.graph} has no nodes.")
    return status_of(watched)


def _counted(
    watched: Watched, tensors: Tensors, by: tuple[str, ...], other: OtherPlan | None, output: Output
) -> tuple[dict[str, Any], str]:
    """--by and --bytes: what one plan has, added up, as JSON and as text."""
    from ggmltool.inspect.copied_experts import expert_copies
    from ggmltool.views.plan import copied, tally

    plan, title, style = watched.plan, watched.title, output.style
    if by:
        return tally.tally_json(plan, tensors, by), tally.tally_view(plan, tensors, by, title, style)
    experts = expert_copies(plan, tensors, watched.run.bufts)
    return (
        copied.copied_json(plan, tensors, other, experts),
        copied.copied_view(plan, tensors, title, style, other, experts),
    )


def _pass(opened: Opened, moment: Moment, number: int, json: bool, output: Output) -> int:
    """--pass: the state after one pass."""
    from ggmltool.views.json_text import json_text
    from ggmltool.views.plan.passes import pass_json, pass_view

    watched = watch(opened, moment, Record(Keep.PASSES))
    watched.check_pass(number)
    records = watched.record.passes.records
    if json:
        output.write(json_text(watched.stamped(pass_json(watched.plan, records, number))))
    else:
        passes = watched.sched.passes
        output.write(pass_view(watched.plan, records, number, watched.title, output.style, passes))
    return status_of(watched)
