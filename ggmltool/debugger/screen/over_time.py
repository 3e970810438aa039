"""A chunk over program order: nodes to the right, offsets upwards, a rectangle for each tensor while it lies there."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from ggmltool.debugger.screen.bar import Window, fitted
from ggmltool.debugger.screen.timeline import Place, Planning, Span
from ggmltool.show.text import printable, size

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look

MARGIN = 10
"""Columns in front of the drawing, for offsets."""


class Drawing(NamedTuple):
    """What lies in each cell, the highest offset first; `nodes` are the numbers of the nodes that are shown, the first
    cell begins before the first node at -1."""

    cells: list[list[Span | None]]
    nodes: Window
    extent: int


def drawing(plan: Planning, place: Place, nodes: Window, width: int, height: int) -> Drawing:
    """The rectangles of a chunk. Where several share a cell, the larger one is drawn."""
    extent = max(plan.extent.get(place, 0), 1)
    cells: list[list[Span | None]] = [[None] * width for _ in range(height)]
    last = len(plan.nodes)
    there = [s for s in plan.spans if s.place == place]
    for span in sorted(there, key=lambda s: s.size):
        first, end = max(span.start, nodes.low), min(last if span.end is None else span.end + 1, nodes.high)
        if first >= end:
            continue
        left = nodes.cell(first, width)
        columns = range(left, min(max(nodes.cell(end, width), left + 1), width))
        bottom = span.offset * height // extent
        top = max((span.offset + span.size) * height // extent, bottom + 1)
        for row in range(height - top, height - bottom):
            for column in columns:
                cells[row][column] = span
    return Drawing(cells, nodes, extent)


def draw(made: Drawing, backend: str, node: int, selected: str, hovered: Span | None, look: Look) -> list[Text]:
    """The rows, with offsets in front; the column of `node` is marked below."""
    height, width = len(made.cells), len(made.cells[0])
    out = []
    named: set[int] = set()
    for row, cells in enumerate(made.cells):
        top = made.extent * (height - row) // height
        label = size(top) if row % 4 == 0 else ""
        line = Text(f"{label:>{MARGIN - 2}} │", look.face.soft)
        for owner, run in groupby(cells, lambda cell: cell):
            n = len(list(run))
            if owner is None:
                line.append(" " * n, look.face.hatch)
                continue
            style = look.range(backend, owner.shade, owner.tensor == selected or owner is hovered)
            name = printable(owner.tensor)
            shown = id(owner) not in named and n > min(cell_len(name), 3)
            line.append("▏" + fitted(name if shown else "", n - 1), style)
            if shown:
                named.add(id(owner))
        out.append(line)
    line = Text(f"{'0 B':>{MARGIN - 2}} └", look.face.soft)
    marked = made.nodes.cell(node, width)
    inside = 0 <= marked < width
    line.append("─" * (marked if inside else width), look.face.soft)
    if inside:
        line.append("▲", look.face.here)
        line.append("─" * (width - marked - 1), look.face.soft)
    return [*out, line]
