"""The hash tables of allocator and scheduler: what each knows of every tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.inspect.hash_tables import HashRow, SchedRow
from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count

_NODES = (
    Head("slot", right=True),
    Head("tensor", cut=True),
    Head("n_children", right=True),
    Head("n_views", right=True),
    Head("buffer", cut=True, drop=1),
    Head("chunk", right=True, drop=3),
    Head("offset", right=True),
    Head("allocated"),
    Head("probes", right=True, drop=6),
)
_SCHED = (Head("tensor", cut=True), Head("backend"), Head("cause"), Head("copies", cut=True))


def hash_view(rows: Sequence[HashRow], size: int, title: str, when: str, style: Style) -> str:
    """The allocator's table in the order of the first look-ups."""
    collisions = sum(row.probes > 1 for row in rows)
    facts = [when, f"{len(rows)} of {size} slots", count(collisions, "collision")]
    cells: list[Row] = [
        [
            str(r.slot),
            r.tensor,
            str(r.node.n_children),
            str(r.node.n_views),
            f"{r.node.buffer_id} {r.buft}",
            str(r.node.chunk),
            str(r.node.offset),
            "true" if r.node.allocated else Cell("false", "dim"),
            str(r.probes),
        ]
        for r in rows
    ]
    return heading(title, facts, style) + render_lines([""], style) + render_table(_NODES, cells, style)


def sched_view(
    rows: Sequence[SchedRow], backends: Sequence[str], size: int, title: str, when: str, style: Style
) -> str:
    """The scheduler's table: the graph's leafs, then its nodes."""
    ink = colors(backends)
    cells: list[Row] = [
        [
            r.tensor,
            Cell(r.backend, ink[r.backend].term) if r.backend is not None else Cell("none", "dim"),
            r.cause,
            ", ".join(r.copies),
        ]
        for r in rows
    ]
    facts = [when, f"{size} slots"]
    return heading(title, facts, style) + render_lines([""], style) + render_table(_SCHED, cells, style)
