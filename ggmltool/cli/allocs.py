"""`ggmltool allocs`: the graph allocator's plan and how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.complete import complete_tensors
from ggmltool.cli.moment import Look, choose, moment_command
from ggmltool.cli.options import DOCUMENTS
from ggmltool.ggml.releases.release import Release
from ggmltool.inspect.allocator import WatchedAllocator, watch_allocator
from ggmltool.show.table import Style
from ggmltool.views.memory.allocs import allocs_view, story_view
from ggmltool.views.memory.free_blocks import free_blocks_view
from ggmltool.views.memory.gdb import gdb_session
from ggmltool.views.memory.gdb_allocs import TallocrState, alloc_prints, tallocr_prints

if TYPE_CHECKING:
    from ggmltool.show.document import StepDocument


@moment_command(
    "text", "gdb", *DOCUMENTS, help="Text (default), the structs as gdb prints them, or JSON or CSV with exact bytes."
)
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
def allocs(look: Look, trace: bool, free_blocks: str | None) -> int:
    """Show where the graph allocator puts every node and its sources, and every leaf: node_allocs and leaf_allocs.

    Sources are `name buffer:offset+size_max`. Buffer -1 is ggml's mark for a view or a pre-allocated tensor. The nodes
    are the scheduler's, in its order: copies, and the dependencies before them, are among them, without a number of
    the graph.

    \b
    Example:
      ggmltool allocs graph.yaml
      ggmltool allocs --trace graph.yaml
      ggmltool allocs --free-blocks ffn_out graph.yaml
      ggmltool allocs --format gdb graph.yaml
      ggmltool allocs --after 3 graph.yaml
    """
    choose(trace=trace, free_blocks=free_blocks)
    if trace and look.format == "gdb":
        raise click.UsageError("--trace and --format gdb are different views; choose one.")
    opened = look.open()
    watched = watch_allocator(opened, look.moment, free_blocks)
    if look.format == "gdb":
        return look.answer(watched.at, _gdb(watched, free_blocks, opened.model.release, look.style.width))
    if look.json:
        return look.answer(watched.at, _document(watched, trace, free_blocks))
    return look.answer(watched.at, _text(watched, trace, free_blocks, look.style))


def _gdb(watched: WatchedAllocator, at: str | None, release: Release, width: int) -> str:
    """The plan, or the planners as they stood when the tensor `at` had got its memory."""
    gallocr, chunked, planned = watched.gallocr, release.max_chunks > 1, release.reserves
    then = watched.moment() if at is not None else None
    states = then.chunks if then is not None else watched.chunks
    most_free = then.most_free if then is not None else watched.record.most_free
    array = "galloc->buf_tallocs" if planned else "sched->tallocs"
    tallocrs = []
    for b, tallocr in enumerate(gallocr.buf_tallocs):
        if gallocr.buf_tallocs.index(tallocr) == b:
            name, chunks = gallocr.bufts[b].name, states[b]
            room = [release.max_free_blocks - len(chunk.free_blocks) for chunk in chunks]
            clean = [most_free.get((name, c), 1) <= len(chunk.free_blocks) for c, chunk in enumerate(chunks)]
            unused = tuple(n if is_clean else None for n, is_clean in zip(room, clean, strict=True))
            tallocrs.append(TallocrState(f"{array}[{b}]", name, tallocr.alignment, chunks, unused))
    prints = tallocr_prints(tallocrs, chunked)
    if at is not None or not planned:
        return gdb_session(prints, width)
    plan = alloc_prints(watched.nodes, watched.leafs, len(gallocr.bufts), chunked)
    return gdb_session([*plan, *prints], width)


def _text(watched: WatchedAllocator, trace: bool, free_blocks: str | None, style: Style) -> str:
    bufts = [b.name for b in watched.gallocr.bufts]
    title, when = watched.at.title, watched.heading
    if free_blocks is not None:
        return free_blocks_view(watched.moment(), bufts, title, f"{when} at {free_blocks}", style)
    if trace:
        return story_view(watched.record.steps, watched.planned.nodes, title, when, style)
    return allocs_view(watched.nodes, watched.leafs, bufts, title, when, style)


def _document(watched: WatchedAllocator, trace: bool, free_blocks: str | None) -> StepDocument:
    from ggmltool.views.memory.alloc_documents import AllocsDocument, AllocTrace, FreeBlocksDocument

    plan = watched.at.plan
    bufts = [b.name for b in watched.gallocr.bufts]
    if free_blocks is not None:
        return FreeBlocksDocument.of(plan, watched.moment(), bufts, free_blocks)
    if trace:
        return AllocTrace.of(plan, watched.record.steps)
    return AllocsDocument.of(plan, watched.nodes, watched.leafs, bufts)
