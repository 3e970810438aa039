"""The allocator's plan as text: node_allocs and leaf_allocs, the story of how it came about, and what is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ggmltool.ask.allocs.record import AllocStory, AllocTable, ChunkBlocks, FreeBlocks
from ggmltool.ask.answer import Answer
from ggmltool.ask.words import words
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.events import Allocated, AllocationStarted, Freed, Kept, NotReused, Reused
from ggmltool.ggml.state import ChunkState
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.inspect.allocator import AllocRow, NodeLabel
from ggmltool.inspect.memory import AllocStep, Block
from ggmltool.show.table import Cell, Column, Head, Row, Shown, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, printable

_MAX_BLOCKS = 6
_STORY = (
    Head("#", right=True),
    Head("what"),
    Head("tensor", cut=True),
    Head("bytes", right=True),
    Head("place"),
    Head("why, free blocks", cut=True, drop=1, numbers=True),
)


def allocs(answer: Answer[AllocTable], style: Style) -> str:
    """Two tables: where the plan puts each node with its sources, and each leaf."""
    nodes, leafs, bufts = answer.facts.nodes, answer.facts.leafs, answer.facts.bufts
    parts = [
        heading(answer.title, [answer.heading, count(len(nodes), "node_alloc"), count(len(leafs), "leaf_alloc")], style)
    ]
    if nodes:
        parts += [render_lines([""], style), _table("node", bufts).render(nodes, style)]
    if leafs:
        parts += [render_lines([""], style), _table("leaf", bufts).render(leafs, style)]
    return "".join(parts)


def _table(what: str, bufts: Sequence[str]) -> Table[AllocRow]:
    """Rows with their numbers in the graph; nodes have sources. What the allocator does not place has no buffer."""

    def short(place: TensorAlloc) -> str:
        chunk = f"{place.chunk}:" if place.chunk else ""
        return f"{place.buffer_id}:{chunk}{place.offset}+{place.size_max}" if place.buffer_id >= 0 else "-1"

    def sources(r: AllocRow) -> str:
        return ", ".join(f"{name} {short(alloc)}" for name, alloc in r.sources)

    def placed(get: Callable[[TensorAlloc], Shown], otherwise: Shown = None) -> Callable[[AllocRow], Shown]:
        return lambda r: otherwise if r.place.buffer_id < 0 else get(r.place)

    buffer = placed(lambda place: f"{place.buffer_id} {bufts[place.buffer_id]}", Cell("-1", "dim"))
    columns: list[Column[AllocRow]] = [
        Column("#", lambda r: r.number, right=True),
        Column(what, lambda r: r.tensor, cut=True),
        Column("buffer", buffer, cut=True, drop=1),
        Column("chunk", placed(lambda place: place.chunk), right=True, drop=4),
        Column("offset", placed(lambda place: place.offset), right=True),
        Column("size_max", placed(lambda place: place.size_max, 0), right=True),
    ]
    if what == "node":
        columns.append(Column("sources", sources, cut=True, drop=2, numbers=True))
    return Table(*columns)


def story(answer: Answer[AllocStory], style: Style) -> str:
    """Line by line what the allocator did, and the free blocks of the chunk after each step."""
    rows = [_step(step, answer.facts.nodes) for step in answer.facts.told]
    top = heading(answer.title, [answer.heading], style)
    return top + render_lines([""], style) + render_table(_STORY, rows, style)


def _step(step: AllocStep, nodes: Sequence[NodeLabel]) -> Row:
    free = blocks_text(step.chunk) if step.chunk is not None else ""
    match step.event:
        case AllocationStarted(at=-1):
            return ["", Cell("leafs", "bold"), "", "", "", Cell("leafs and inputs come before the first node", "dim")]
        case AllocationStarted(at, node):
            label = nodes[at]
            sources = f"from {', '.join(label.sources)}" if label.sources else ""
            number = "" if label.number is None else str(label.number)
            return [number, Cell(label.op, "bold"), Cell(node, "bold"), "", "", sources]
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


def blocks_text(chunk: ChunkState) -> str:
    """`32–64, 96–…`: each free block from its first byte to the one after its last, … where nothing limits it."""
    shown = [f"{b.offset}–{end_of(b.offset + b.size)}" for b in chunk.free_blocks[:_MAX_BLOCKS]]
    if len(chunk.free_blocks) > _MAX_BLOCKS:
        shown.append(f"+{len(chunk.free_blocks) - _MAX_BLOCKS} more")
    return ", ".join(shown) or "none"


def end_of(end: int) -> str:
    """The end of a block, … for the one that reaches to the end of all memory."""
    return "…" if end >= SIZE_MAX // 2 else str(end)


_WIDEST = 100
_NARROWEST = 12
"""Columns of the whole drawing at most, and of one block at least."""


def free_blocks(answer: Answer[FreeBlocks], style: Style) -> str:
    """Every chunk of every buffer type as a bar of blocks, each with its tensor, and the offsets under its edges."""
    parts = [heading(answer.title, [answer.heading], style)]
    shown: dict[tuple[str, int], ChunkBlocks] = {}
    for chunk in answer.facts.chunks:
        shown.setdefault((chunk.buft, chunk.chunk), chunk)
    for chunk in shown.values():
        facts = [f"chunk {chunk.chunk}", count(len(chunk.free), "free block"), f"max_size {chunk.max_size}"]
        blocks = sorted([*(Block(*b) for b in chunk.free), *(Block(t.offset, t.size, t.tensor) for t in chunk.taken)])
        parts += [
            render_lines(["", " · ".join([printable(chunk.buft), *facts]), ""], style),
            render_lines(list(_drawing(blocks, min(style.width, _WIDEST))), style),
        ]
    return "".join(parts)


def _drawing(blocks: Sequence[Block], width: int) -> Iterator[str]:
    """Rows of blocks, as many in each as there is room for."""
    from rich.cells import cell_len, set_cell_size

    def label(b: Block) -> str:
        text = printable(b.tensor) or "free"
        return text if cell_len(text) <= 2 * _NARROWEST else set_cell_size(text, 2 * _NARROWEST - 1).rstrip() + "…"

    def centred(text: str, width: int) -> str:
        left = (width - cell_len(text)) // 2
        return " " * left + text + " " * (width - cell_len(text) - left)

    rows: list[list[tuple[Block, int]]] = [[]]
    room = width - 4
    for b in blocks:
        need = max(cell_len(label(b)) + 2, len(str(b.offset)) + 1, len(end_of(b.offset + b.size)) + 1, _NARROWEST) + 1
        if rows[-1] and sum(n for _, n in rows[-1]) + need > room:
            rows.append([])
        rows[-1].append((b, need))
    for row in rows:
        line = "  +" + "+".join("-" * (n - 1) for _, n in row) + "+"
        yield line
        yield "  |" + "|".join(centred(label(b), n - 1) for b, n in row) + "|"
        yield line
        last = row[-1][0]
        offsets = "".join(str(b.offset).ljust(n) for b, n in row)
        yield f"  {offsets}{end_of(last.offset + last.size)}"
