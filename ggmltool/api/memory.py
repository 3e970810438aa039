"""Buffers, the allocator's plan, hash tables, lifetimes, arenas and single tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ggmltool.api.look import Look, answer
from ggmltool.api.result import Result
from ggmltool.inspect.allocator import watch_allocator

if TYPE_CHECKING:
    from ggmltool.inspect.allocations import AllocMoment, AllocStep
    from ggmltool.inspect.allocator import AllocRow


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
