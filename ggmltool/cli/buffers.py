"""`ggmltool buffers`: how large the compute buffers are, and what lies in them at their peak."""

from __future__ import annotations

from dataclasses import replace

import click

from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.moment import Look, choose, moment_command, option_of
from ggmltool.cli.options import DOCUMENTS
from ggmltool.cli.output import note, status_of
from ggmltool.cli.pictures import PICTURES, check_picture, picture_of
from ggmltool.inspect.opened import Opened, WhatIf
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watched, watch
from ggmltool.views.memory.buffers import MAX_TENSORS


@moment_command(
    "text", *DOCUMENTS, *PICTURES, "pickle",
    help="Text (default), JSON or CSV with exact bytes, a drawing, or a pickle for PyTorch's memory viewer.",
    what_if=True,
)  # fmt: skip
@click.option("--peak", is_flag=True, help="Show the tensors that are alive at the peak, largest first (default).")
@click.option("--all", is_flag=True, help=f"Show all tensors at the peak, not only the {MAX_TENSORS} largest.")
@click.option(
    "--chart",
    is_flag=True,
    help="Draw what is where: program order to the right, offsets upwards. With -o map.svg, .png or .html a picture.",
)
@click.option("--ascii", is_flag=True, help="Draw the chart with ASCII characters only.")
@click.option("--chunks", is_flag=True, help="Show the chunks: sizes, limits, and the tensor that opened each.")
@click.option("--copies", is_flag=True, help="Show what pipeline copies cost: the same plan with and without them.")
def buffers(look: Look, peak: bool, all: bool, chart: bool, ascii: bool, chunks: bool, copies: bool) -> int:
    """Show the size of every compute buffer and what is in it at its peak, largest first.

    The peak is the node at which the most bytes are alive. A buffer is larger than its peak if free memory between
    living tensors is fragmented.

    With -o map.svg (.png, .html) the chart is a drawing: every tensor where it lies and as long as it lives, in the
    color of its backend, with layers, the highest byte in use, and the peak. `help pictures` has more.

    With -o FILE.pickle what is allocated and freed, in program order, for PyTorch's memory viewer: drop the file on
    pytorch.org/memory_viz, which uploads nothing.

    \b
    Example:
      ggmltool buffers --graph decode model.yaml
      ggmltool buffers --chart model.yaml
      ggmltool buffers -o map.svg model.yaml
      ggmltool buffers -o memory.pickle model.yaml
      ggmltool buffers --after 3 model.yaml
      ggmltool buffers --no-pipeline model.yaml
    """
    view = choose(peak=peak, chart=chart, chunks=chunks, copies=copies)
    picture = look.format if look.format in PICTURES else None
    if picture is not None and view not in ("", "chart"):
        raise click.UsageError(f"only --chart is a drawing; leave out {option_of(view)}, or name a .txt or .json file.")
    if picture is not None and (all or ascii):
        raise click.UsageError(f"{option_of('all' if all else 'ascii')} is for text; leave it out for a drawing.")
    if all and view not in ("", "peak"):
        raise click.UsageError(f"--all is for the tensors at the peak; leave it out with {option_of(view)}.")
    if ascii and not chart:
        raise click.UsageError("--ascii is for --chart.")
    if chart and look.json:
        raise click.UsageError("--chart is a drawing; --json without it has the tensors at the peak.")
    if copies and look.what_if.parallel is not None:
        raise click.UsageError("--copies plans with and without --pipeline; leave it out.")
    if look.format == "pickle" and view:
        raise click.UsageError(f"a pickle has what is allocated and freed; leave out {option_of(view)}.")
    if look.format == "pickle" and look.output.to_terminal:
        raise CliError("a pickle cannot be shown on a terminal; name a file with -o memory.pickle")
    check_picture(picture, look.output, "map")
    opened = look.open()
    if copies:
        return _copies(look, opened)
    watched = watch(opened, look.moment, Record(Keep.MEMORY))
    plan, memory = watched.plan, watched.record.memory
    if picture is not None:
        return _picture(look, opened, watched, picture)
    if look.format == "pickle":
        return _pickle(look, opened, watched)
    if chart:
        from ggmltool.views.memory.chart import chart_view

        return look.answer(watched, chart_view(plan, memory, watched.title, look.style, ascii))
    if chunks:
        return _chunks(look, opened, watched)
    if look.json:
        from ggmltool.views.memory.documents import BuffersDocument

        return look.answer(watched, BuffersDocument.of(plan, memory))
    from ggmltool.views.memory.buffers import buffers_view

    limit, tensors = None if all else MAX_TENSORS, opened.tensors(watched.graph)
    return look.answer(watched, buffers_view(plan, memory, tensors, watched.title, look.style, limit))


def _picture(look: Look, opened: Opened, watched: Watched, format: str) -> int:
    """The chart as a drawing."""
    from ggmltool.inspect.built import graph_numbers
    from ggmltool.views.memory.map_svg import map_svg

    numbers = graph_numbers(opened.scenario, watched.graph)
    svg = map_svg(watched.plan, watched.record.memory, watched.title, numbers)
    look.output.write(picture_of(svg, format, watched.title, look.output))
    return status_of(watched)


def _pickle(look: Look, opened: Opened, watched: Watched) -> int:
    """For PyTorch's memory viewer, in which devices have numbers only."""
    from ggmltool.inspect.built import graph_numbers
    from ggmltool.views.memory.torch_snapshot import devices_of, snapshot_pickle

    numbers = graph_numbers(opened.scenario, watched.graph)
    plan, memory = watched.plan, watched.record.memory
    named = (f"{number} is {name}" for number, name in enumerate(devices_of(plan, memory)))
    note(f"Devices in the viewer: {', '.join(named) or 'none, no memory is planned'}")
    look.output.write(snapshot_pickle(plan, memory, opened.tensors(watched.graph), numbers))
    return status_of(watched)


def _chunks(look: Look, opened: Opened, watched: Watched) -> int:
    """--chunks: the limits are those of the buffer types."""
    from ggmltool.ask.backends.record import chunk_limits

    plan, memory = watched.plan, watched.record.memory
    limits = chunk_limits(opened.model)
    if look.json:
        from ggmltool.views.memory.documents import ChunksDocument

        return look.answer(watched, ChunksDocument.of(plan, memory, limits))
    from ggmltool.views.memory.chunks import chunks_view

    return look.answer(watched, chunks_view(plan, memory, limits, watched.title, look.style))


def _copies(look: Look, opened: Opened) -> int:
    """--copies: two plans on two schedulers."""
    both = (opened.what_if(WhatIf(parallel=on)) for on in (True, False))
    parallel, single = (watch(replace(one, options=opened.options), look.moment) for one in both)
    plans = parallel.plan, single.plan
    if look.json:
        from ggmltool.views.memory.documents import CopiesDocument

        look.answer(parallel, CopiesDocument.of(*plans), say=False)
    else:
        from ggmltool.views.memory.chunks import copies_view

        look.answer(parallel, copies_view(*plans, parallel.title, look.style), say=False)
    return FINE if parallel.plan.ok and single.plan.ok else GGML_FAILED
