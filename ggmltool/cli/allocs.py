"""`ggmltool allocs`: the graph allocator's plan and how it came about."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_tensors,
    format_option,
    ggml_option,
    moment_options,
    output_option,
    scenario_argument,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_scenario
from ggmltool.ggml.releases.release import Release
from ggmltool.inspect.allocations import chunk_states
from ggmltool.inspect.allocator import WatchedAllocator, watch_allocator
from ggmltool.inspect.opened import Moment
from ggmltool.views.memory.allocs import allocs_json, allocs_view, story_json, story_view
from ggmltool.views.memory.free_blocks import free_blocks_json, free_blocks_view
from ggmltool.views.memory.gdb import gdb_session
from ggmltool.views.memory.gdb_allocs import TallocrState, alloc_prints, tallocr_prints
from ggmltool.views.table import Style


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option(
    "--trace",
    is_flag=True,
    help="Show how the allocator got there, line by line, with the free blocks at each point.",
)
@click.option(
    "--free-blocks",
    metavar="NODE",
    shell_complete=complete_tensors,
    help="Draw what is where, and what is free, right after this node was allocated.",
)
@ggml_option
@format_option("text", "gdb", "json", help="Text (default), the structs as gdb prints them, or JSON with exact bytes.")
@output_option
def allocs(
    scenario: str | None,
    moment: Moment,
    trace: bool,
    free_blocks: str | None,
    format: str | None,
    output: Output,
) -> int:
    """Show where the graph allocator puts every node and its sources, and every leaf: node_allocs and leaf_allocs.

    Sources are `name buffer:offset+size_max`. Buffer -1 is ggml's mark for a view or a pre-allocated tensor. The nodes
    are the scheduler's: copies, and the dependencies before them, are among them.

    \b
    Example:
      ggmltool allocs graph.yaml
      ggmltool allocs --trace graph.yaml
      ggmltool allocs --free-blocks ffn_out graph.yaml
      ggmltool allocs --format gdb graph.yaml
      ggmltool allocs --after 3 graph.yaml
    """
    if trace and free_blocks is not None:
        raise click.UsageError("--trace and --free-blocks are different views; choose one.")
    if trace and format == "gdb":
        raise click.UsageError("--trace and --format gdb are different views; choose one.")
    opened = open_scenario(scenario)
    watched = watch_allocator(opened, moment, free_blocks)
    if format == "gdb":
        text = _gdb(watched, free_blocks, opened.model.release, output.style.width)
    else:
        text = _text(watched, trace, free_blocks, format == "json", output.style)
    output.write(text)
    return status_of(watched.at)


def _gdb(watched: WatchedAllocator, at: str | None, release: Release, width: int) -> str:
    """The plan, or the planners as they stood when the tensor `at` had got its memory."""
    gallocr, chunked, planned = watched.gallocr, release.max_chunks > 1, release.reserves
    then = watched.moment() if at is not None else None
    states = then.chunks if then is not None else [chunk_states(gallocr, b) for b in range(len(gallocr.bufts))]
    most_free = then.most_free if then is not None else watched.record.most_free
    array = "galloc->buf_tallocs" if planned else "sched->tallocs"
    tallocrs = []
    for b, tallocr in enumerate(gallocr.buf_tallocs):
        if gallocr.buf_tallocs.index(tallocr) == b:
            name, chunks = gallocr.bufts[b].name, states[b]
            room = [release.max_free_blocks - len(chunk.free) for chunk in chunks]
            clean = [most_free.get((name, c), 1) <= len(chunk.free) for c, chunk in enumerate(chunks)]
            unused = tuple(n if is_clean else None for n, is_clean in zip(room, clean, strict=True))
            tallocrs.append(TallocrState(f"{array}[{b}]", name, tallocr.alignment, chunks, unused))
    prints = tallocr_prints(tallocrs, chunked)
    if at is not None or not planned:
        return gdb_session(prints, width)
    plan = alloc_prints(watched.nodes, watched.leafs, len(gallocr.bufts), chunked)
    return gdb_session([*plan, *prints], width)


def _text(watched: WatchedAllocator, trace: bool, free_blocks: str | None, json: bool, style: Style) -> str:
    state = watched.at
    bufts = [b.name for b in watched.gallocr.bufts]
    name, step, when = state.graph, state.kind, watched.heading
    if free_blocks is not None:
        then = watched.moment()
        document = free_blocks_json(then, bufts, name, step, free_blocks)
        text = "" if json else free_blocks_view(then, bufts, state.title, f"{when} at {free_blocks}", style)
    elif trace:
        steps = watched.record.steps
        document = story_json(steps, name, step)
        text = "" if json else story_view(steps, watched.planned.nodes, state.title, when, style)
    else:
        nodes, leafs = watched.nodes, watched.leafs
        document = allocs_json(nodes, leafs, bufts, name, step)
        text = "" if json else allocs_view(nodes, leafs, bufts, state.title, when, style)
    if json:
        from ggmltool.views.json_text import json_text

        text = json_text(state.stamped(document))
    return text
