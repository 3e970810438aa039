"""A drawing of the allocator's chunks: what lies where, and what is free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.state import ChunkState
from ggmltool.inspect.allocations import AllocMoment, Block
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, printable
from ggmltool.views.memory.allocs import end_of

_WIDEST = 100
_NARROWEST = 12
"""Columns of the whole drawing at most, and of one block at least."""


def free_blocks_view(moment: AllocMoment, bufts: Sequence[str], title: str, when: str, style: Style) -> str:
    """Every chunk of every buffer type as a bar of blocks, each with its tensor, and the offsets under its edges."""
    parts = [heading(title, [when], style)]
    seen: set[str] = set()
    for buft, states, taken in zip(bufts, moment.chunks, moment.taken, strict=True):
        if buft in seen:
            continue
        seen.add(buft)
        for number, (state, blocks) in enumerate(zip(states, taken, strict=True)):
            facts = [f"chunk {number}", count(len(state.free_blocks), "free block"), f"max_size {state.max_size}"]
            parts += [
                render_lines([""], style),
                render_lines([" · ".join([printable(buft), *facts]), ""], style),
                render_lines(list(_drawing(_in_order(state, blocks), min(style.width, _WIDEST))), style),
            ]
    return "".join(parts)


def _in_order(state: ChunkState, taken: Sequence[Block]) -> list[Block]:
    return sorted([*(Block(*b) for b in state.free_blocks), *taken])


def _drawing(blocks: Sequence[Block], width: int) -> Iterator[str]:
    """Rows of blocks, as many in each as there is room for."""
    from rich.cells import cell_len, set_cell_size

    def label(b: Block) -> str:
        text = printable(b.tensor) or "free"
        return text if cell_len(text) <= 2 * _NARROWEST else set_cell_size(text, 2 * _NARROWEST - 1).rstrip() + "…"

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
        yield "  |" + "|".join(_centred(label(b), n - 1) for b, n in row) + "|"
        yield line
        last = row[-1][0]
        offsets = "".join(str(b.offset).ljust(n) for b, n in row)
        yield f"  {offsets}{end_of(last.offset + last.size)}"


def _centred(text: str, width: int) -> str:
    from rich.cells import cell_len

    left = (width - cell_len(text)) // 2
    return " " * left + text + " " * (width - cell_len(text) - left)
