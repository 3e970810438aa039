"""`ggmltool buffers`: how large the compute buffers are, and what lies in them at their peak."""

from __future__ import annotations

from dataclasses import replace

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    ggml_option,
    json_option,
    moment_options,
    output_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watched, watch
from ggmltool.scenario.tensor_info import tensor_infos
from ggmltool.views.memory.buffers import MAX_TENSORS, buffers_json, buffers_view


@click.command(cls=Command)
@scenario_argument
@moment_options
@what_if_options
@click.option("--peak", is_flag=True, help="Show the tensors that are alive at the peak, largest first (default).")
@click.option("--all", is_flag=True, help=f"Show all tensors at the peak, not only the {MAX_TENSORS} largest.")
@click.option("--chart", is_flag=True, help="Draw what is where: program order to the right, offsets upwards.")
@click.option("--ascii", is_flag=True, help="Draw the chart with ASCII characters only.")
@click.option("--chunks", is_flag=True, help="Show the chunks: sizes, limits, and the tensor that opened each.")
@click.option("--copies", is_flag=True, help="Show what pipeline copies cost: the same plan with and without them.")
@ggml_option
@json_option
@output_option
def buffers(
    scenario: str | None,
    moment: Moment,
    what_if: WhatIf,
    peak: bool,
    all: bool,
    chart: bool,
    ascii: bool,
    chunks: bool,
    copies: bool,
    json: bool,
    output: Output,
) -> int:
    """Show the size of every compute buffer and what is in it at its peak, largest first.

    The peak is the node at which the most bytes are alive. A buffer is larger than its peak if free memory between
    living tensors is fragmented.

    \b
    Example:
      ggmltool buffers --graph decode model.yaml
      ggmltool buffers --chart model.yaml
      ggmltool buffers --after 3 model.yaml
      ggmltool buffers --no-parallel model.yaml
    """
    every = (("--peak", peak), ("--chart", chart), ("--chunks", chunks), ("--copies", copies))
    views = [view for view, asked in every if asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(views)} are different views; choose one.")
    if all and views not in ([], ["--peak"]):
        raise click.UsageError(f"--all is for the tensors at the peak; leave it out with {views[0]}.")
    if ascii and not chart:
        raise click.UsageError("--ascii is for --chart.")
    if chart and json:
        raise click.UsageError("--chart is a drawing; --json without it has the tensors at the peak.")
    if copies and what_if.parallel is not None:
        raise click.UsageError("--copies plans with and without --parallel; leave it out.")
    opened = open_scenario(scenario).what_if(what_if)
    if copies:
        return _copies(opened, moment, json, output)
    watched = watch(opened, moment, Record(Keep.MEMORY))
    plan, memory = watched.plan, watched.record.memory
    if chart:
        from ggmltool.views.memory.chart import chart_view

        output.write(chart_view(plan, memory, watched.title, output.style, ascii))
    elif chunks:
        _chunks(opened, watched, memory, json, output)
    elif json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(watched.stamped(buffers_json(plan, memory))))
    else:
        limit = None if all else MAX_TENSORS
        tensors = tensor_infos(opened.model, watched.graph)
        output.write(buffers_view(plan, memory, tensors, watched.title, output.style, limit))
    return status_of(watched)


def _chunks(opened: Opened, watched: Watched, memory: MemoryPlan, json: bool, output: Output) -> None:
    """--chunks: the limits are those of the buffer types."""
    from ggmltool.inspect.devices import chunk_limits
    from ggmltool.views.json_text import json_text
    from ggmltool.views.memory.chunks import chunks_json, chunks_view

    limits = chunk_limits(opened.model)
    if json:
        output.write(json_text(watched.stamped(chunks_json(watched.plan, memory, limits))))
    else:
        output.write(chunks_view(watched.plan, memory, limits, watched.title, output.style))


def _copies(opened: Opened, moment: Moment, json: bool, output: Output) -> int:
    """--copies: two plans on two schedulers."""
    from ggmltool.views.json_text import json_text
    from ggmltool.views.memory.chunks import copies_json, copies_view

    both = (opened.what_if(WhatIf(parallel=on)) for on in (True, False))
    parallel, single = (watch(replace(one, options=opened.options), moment) for one in both)
    plans = parallel.plan, single.plan
    if json:
        output.write(json_text(parallel.stamped(copies_json(*plans))))
    else:
        output.write(copies_view(*plans, parallel.title, output.style))
    return 0 if parallel.plan.ok and single.plan.ok else 1
