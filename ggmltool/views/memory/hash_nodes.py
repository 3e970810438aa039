"""The hash tables of allocator and scheduler: what each knows of every tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.inspect.hash_tables import HashRow, SchedRow
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count

_NODES = Table[HashRow](
    Column("slot", lambda r: r.slot, right=True),
    Column("tensor", lambda r: r.tensor, cut=True),
    Column("n_children", lambda r: r.node.n_children, right=True),
    Column("n_views", lambda r: r.node.n_views, right=True),
    Column("buffer", lambda r: f"{r.node.buffer_id} {r.buft}", cut=True, drop=1),
    Column("chunk", lambda r: r.node.chunk, right=True, drop=3),
    Column("offset", lambda r: r.node.offset, right=True),
    Column("allocated", lambda r: "true" if r.node.allocated else Cell("false", "dim")),
    Column("probes", lambda r: r.probes, right=True, drop=6),
)


def hash_view(rows: Sequence[HashRow], size: int, title: str, when: str, style: Style) -> str:
    """The allocator's table in the order of the first look-ups."""
    collisions = sum(row.probes > 1 for row in rows)
    facts = [when, f"{len(rows)} of {size} slots", count(collisions, "collision")]
    return heading(title, facts, style) + render_lines([""], style) + _NODES.render(rows, style)


def sched_view(
    rows: Sequence[SchedRow], backends: Sequence[str], size: int, title: str, when: str, style: Style
) -> str:
    """The scheduler's table: the graph's leafs, then its nodes."""
    ink = colors(backends)
    table = Table[SchedRow](
        Column("tensor", lambda r: r.tensor, cut=True),
        Column("backend", lambda r: Cell("none", "dim") if r.backend is None else Cell(r.backend, ink[r.backend].term)),
        Column("cause", lambda r: r.cause),
        Column("copies", lambda r: ", ".join(r.copies), cut=True),
    )
    facts = [when, f"{size} slots"]
    return heading(title, facts, style) + render_lines([""], style) + table.render(rows, style)
