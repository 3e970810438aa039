"""Buffers, the allocator's plan, hash tables, lifetimes, arenas and single tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ggmltool.api.look import Look, answer
from ggmltool.api.result import Result
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.opened import WhatIf
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import watch

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.allocations import AllocMoment, AllocStep
    from ggmltool.inspect.allocator import AllocRow
    from ggmltool.inspect.memory import MemoryPlan
    from ggmltool.show.svg import Svg


def buffers(look: Look) -> Result[MemoryPlan]:
    from ggmltool.views.memory.buffers import buffers_view
    from ggmltool.views.memory.documents import BuffersDocument

    at = look.watch(Record(Keep.MEMORY))
    plan, memory, title, tensors = at.plan, at.record.memory, at.title, look.tensors(at)
    return answer(
        at,
        "buffers",
        memory,
        partial(BuffersDocument.of, plan, memory),
        partial(buffers_view, plan, memory, tensors, title),
        memory.lifetimes,
    )


def memory_map(look: Look) -> Svg:
    from ggmltool.inspect.built import graph_numbers
    from ggmltool.views.memory.map_svg import map_svg

    at = look.watch(Record(Keep.MEMORY))
    return map_svg(at.plan, at.record.memory, at.title, graph_numbers(look.opened.scenario, at.graph))


def chunks(look: Look) -> Result[MemoryPlan]:
    from ggmltool.ask.backends.record import chunk_limits
    from ggmltool.views.memory.chunks import chunks_view
    from ggmltool.views.memory.documents import ChunksDocument

    at = look.watch(Record(Keep.MEMORY))
    args = at.plan, at.record.memory, chunk_limits(look.opened.model)
    return answer(
        at,
        "chunks of the buffers",
        at.record.memory,
        partial(ChunksDocument.of, *args),
        partial(chunks_view, *args, at.title),
    )


def copies(look: Look) -> Result[tuple[Plan, Plan]]:
    from ggmltool.views.memory.chunks import copies_view
    from ggmltool.views.memory.documents import CopiesDocument

    opened = look.opened
    both = (replace(opened.what_if(WhatIf(parallel=on)), options=opened.options) for on in (True, False))
    parallel, single = (watch(one, look.moment) for one in both)
    plans = parallel.plan, single.plan
    return answer(
        parallel,
        "buffers with and without pipeline copies",
        plans,
        partial(CopiesDocument.of, *plans),
        partial(copies_view, *plans, parallel.title),
    )


def allocs(look: Look) -> Result[tuple[AllocRow, ...]]:
    from ggmltool.views.memory.alloc_documents import AllocsDocument
    from ggmltool.views.memory.allocs import allocs_view

    found = watch_allocator(look.opened, look.moment)
    at, bufts, nodes, leafs = found.at, [b.name for b in found.gallocr.bufts], found.nodes, found.leafs
    return answer(
        at,
        "allocs",
        (*nodes, *leafs),
        partial(AllocsDocument.of, at.plan, nodes, leafs, bufts),
        partial(allocs_view, nodes, leafs, bufts, at.title, found.heading),
        (*nodes, *leafs),
    )


def story(look: Look) -> Result[tuple[AllocStep, ...]]:
    from ggmltool.views.memory.alloc_documents import AllocTrace
    from ggmltool.views.memory.allocs import story_view

    found = watch_allocator(look.opened, look.moment)
    at, steps = found.at, tuple(found.record.steps)
    return answer(
        at,
        "trace of the allocator",
        steps,
        partial(AllocTrace.of, at.plan, steps),
        partial(story_view, steps, found.planned.nodes, at.title, found.heading),
        steps,
    )


def free_blocks(look: Look, node: str) -> Result[AllocMoment]:
    from ggmltool.views.memory.alloc_documents import FreeBlocksDocument
    from ggmltool.views.memory.free_blocks import free_blocks_view

    found = watch_allocator(look.opened, look.moment, node)
    at, then, bufts = found.at, found.moment(), [b.name for b in found.gallocr.bufts]
    return answer(
        at,
        f"free blocks at {node}",
        then,
        partial(FreeBlocksDocument.of, at.plan, then, bufts, node),
        partial(free_blocks_view, then, bufts, at.title, f"{found.heading} at {node}"),
    )
