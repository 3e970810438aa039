"""The allocator's plan, node_allocs and leaf_allocs, and the story of how it came about."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.events import Allocated, AllocationStarted, Freed, Kept, NotReused, Reused
from ggmltool.ggml.vbuffer import TensorAlloc
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.inspect.allocations import AllocStep, ChunkState
from ggmltool.inspect.allocator import AllocRow, NodeLabel
from ggmltool.views.explain.words import words
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count

_MAX_BLOCKS = 6
_NODES = (
    Head("#", right=True),
    Head("node", cut=True),
    Head("buffer", cut=True, drop=1),
    Head("chunk", right=True, drop=4),
    Head("offset", right=True),
    Head("size_max", right=True),
    Head("sources", cut=True, drop=2, numbers=True),
)
_LEAFS = (Head("#", right=True), Head("leaf", cut=True), *_NODES[2:6])
_STORY = (
    Head("#", right=True),
    Head("what"),
    Head("tensor", cut=True),
    Head("bytes", right=True),
    Head("place"),
    Head("why, free blocks", cut=True, drop=1, numbers=True),
)


def allocs_view(
    nodes: Sequence[AllocRow], leafs: Sequence[AllocRow], bufts: Sequence[str], title: str, when: str, style: Style
) -> str:
    """Two tables: where the plan puts each node with its sources, and each leaf."""
    parts = [heading(title, [when, count(len(nodes), "node_alloc"), count(len(leafs), "leaf_alloc")], style)]
    if nodes:
        parts += [
            render_lines([""], style),
            render_table(_NODES, [_row(i, r, bufts) for i, r in enumerate(nodes)], style),
        ]
    if leafs:
        rows = [_row(i, r, bufts)[:6] for i, r in enumerate(leafs)]
        parts += [render_lines([""], style), render_table(_LEAFS, rows, style)]
    return "".join(parts)


def _row(index: int, row: AllocRow, bufts: Sequence[str]) -> Row:
    place = row.place
    sources = ", ".join(f"{name} {_short(alloc)}" for name, alloc in row.sources)
    if place.buffer_id < 0:
        return [str(index), row.tensor, Cell("-1", "dim"), "", "", "0", sources]
    return [
        str(index),
        row.tensor,
        f"{place.buffer_id} {bufts[place.buffer_id]}",
        str(place.chunk),
        str(place.offset),
        str(place.size_max),
        sources,
    ]


def _short(place: TensorAlloc) -> str:
    if place.buffer_id < 0:
        return "-1"
    chunk = f"{place.chunk}:" if place.chunk else ""
    return f"{place.buffer_id}:{chunk}{place.offset}+{place.size_max}"


def story_view(steps: Sequence[AllocStep], nodes: Sequence[NodeLabel], title: str, when: str, style: Style) -> str:
    """Line by line what the allocator did, and the free blocks of the chunk after each step."""
    rows = [_step(step, nodes) for step in steps]
    return heading(title, [when], style) + render_lines([""], style) + render_table(_STORY, rows, style)


def _step(step: AllocStep, nodes: Sequence[NodeLabel]) -> Row:
    free = free_blocks(step.chunk) if step.chunk is not None else ""
    match step.event:
        case AllocationStarted(at=-1):
            return ["", Cell("leafs", "bold"), "", "", "", Cell("leafs and inputs come before the first node", "dim")]
        case AllocationStarted(at, node):
            label = nodes[at]
            sources = f"from {', '.join(label.sources)}" if label.sources else ""
            return [str(at), Cell(label.op, "bold"), Cell(node, "bold"), "", "", sources]
        case Allocated(tensor, buft, chunk, offset, size):
            return ["", "allocate", tensor, str(size), _at(buft, chunk, offset), free]
        case Reused(tensor, parent, buft, chunk, offset):
            return ["", Cell("reuse", "green"), tensor, "", _at(buft, chunk, offset), f"in place of {parent}"]
        case NotReused(tensor, parent) as kept:
            return ["", Cell("no reuse", "yellow"), tensor, "", "", f"not {parent}: {words(kept)}"]
        case Freed(tensor, buft, chunk, offset, size, extra):
            return ["", "free tail" if extra else "free", tensor, str(size), _at(buft, chunk, offset), free]
        case Kept(tensor):
            return ["", "keep", tensor, "", "", "it is an output"]


def _at(buft: str, chunk: int, offset: int) -> str:
    return f"{buft} {chunk}:{offset}" if chunk else f"{buft} {offset}"


def free_blocks(chunk: ChunkState) -> str:
    """`32–64, 96–…`: each free block from its first byte to the one after its last, … where nothing limits it."""
    shown = [f"{b.offset}–{end_of(b.offset + b.size)}" for b in chunk.free[:_MAX_BLOCKS]]
    if len(chunk.free) > _MAX_BLOCKS:
        shown.append(f"+{len(chunk.free) - _MAX_BLOCKS} more")
    return ", ".join(shown) or "none"


def end_of(end: int) -> str:
    """The end of a block, … for the one that reaches to the end of all memory."""
    return "…" if end >= SIZE_MAX // 2 else str(end)
