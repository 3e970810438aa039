"""The hash tables as text."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.hash.record import HashSlot, HashTable, SchedSlot, SchedTable
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count

_NODES = Table[HashSlot](
    Column("slot", lambda r: r.slot, right=True),
    Column("tensor", lambda r: r.tensor, cut=True),
    Column("n_children", lambda r: r.n_children, right=True),
    Column("n_views", lambda r: r.n_views, right=True),
    Column("buffer", lambda r: f"{r.buffer_id} {r.buft}", cut=True, drop=1),
    Column("chunk", lambda r: r.chunk, right=True, drop=3),
    Column("offset", lambda r: r.offset, right=True),
    Column("allocated", lambda r: "true" if r.allocated else Cell("false", "dim")),
    Column("probes", lambda r: r.probes, right=True, drop=6),
)


def hash_table(answer: Answer[HashTable], style: Style) -> str:
    """The allocator's table in the order of the first look-ups."""
    nodes = answer.facts.nodes
    collisions = sum(node.probes > 1 for node in nodes)
    facts = [answer.heading, f"{len(nodes)} of {answer.facts.size} slots", count(collisions, "collision")]
    return heading(answer.title, facts, style) + render_lines([""], style) + _NODES.render(nodes, style)


def sched_table(answer: Answer[SchedTable], style: Style) -> str:
    """The scheduler's table: the graph's leafs, then its nodes."""
    ink = colors(answer.facts.backends)
    table = Table[SchedSlot](
        Column("tensor", lambda r: r.tensor, cut=True),
        Column("backend", lambda r: Cell("none", "dim") if r.backend is None else Cell(r.backend, ink[r.backend].term)),
        Column("cause", lambda r: r.cause),
        Column("copies", lambda r: ", ".join(r.copies), cut=True),
    )
    facts = [answer.heading, f"{answer.facts.size} slots"]
    lead = heading(answer.title, facts, style) + render_lines([""], style)
    return lead + table.render(answer.facts.tensors, style)
