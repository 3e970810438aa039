"""What lies in the contexts' arenas, as tables."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.context.record import CGraphRow, ContextDocument, FieldRow, ObjectRow
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, size


def contexts(answer: Answer[ContextDocument], style: Style) -> str:
    """A table of objects for each context; below the one with the graph, the layout of the cgraph."""
    shown = answer.facts.contexts
    total = sum(ctx.used_mem for ctx in shown)
    facts = [answer.heading, count(len(shown), "context"), f"{size(total)} for structs"]
    parts = [heading(answer.title, facts, style)]
    for ctx in shown:
        about = f"{printable(ctx.name)} · {count(len(ctx.objects), 'object')} · {ctx.used_mem} bytes from {ctx.base:#x}"
        parts.append(render_lines(["", about], style))
        if ctx.objects:
            parts.append(_objects(ctx.base).render(enumerate(ctx.objects), style))
        graphs = (o for o in ctx.objects if o.type == "graph")
        parts += [_layout(ctx.base + o.offset, answer.facts.cgraph, style) for o in graphs]
    return "".join(parts)


def _objects(base: int) -> Table[tuple[int, ObjectRow]]:
    """Objects and their numbers, in an arena at this address; what is no tensor has only a place."""
    return Table(
        Column("#", lambda r: r[0], right=True),
        Column("type", lambda r: r[1].type),
        Column("offset", lambda r: r[1].offset, right=True),
        Column("size", lambda r: r[1].size, right=True),
        Column("address", lambda r: f"{base + r[1].offset:#x}", drop=5),
        Column("tensor", lambda r: r[1].tensor, cut=True),
        Column("op", lambda r: r[1].op, drop=2),
        Column("shape", lambda r: None if r[1].ne is None else f"{r[1].tensor_type}{dims(r[1].ne)}", drop=3),
        Column(
            "data",
            lambda r: None if r[1].data is None else f"{r[1].data:#x}" if r[1].data else Cell("NULL", "dim"),
            drop=6,
        ),
    )


def _layout(address: int, graph: CGraphRow, style: Style) -> str:
    facts = f"ggml_cgraph: size = {graph.size}, n_nodes = {graph.n_nodes}, n_leafs = {graph.n_leafs}"
    table = Table[FieldRow](
        Column("field", lambda f: f.field),
        Column("offset", lambda f: f.offset, right=True),
        Column("bytes", lambda f: f.nbytes, right=True),
        Column("address", lambda f: f"{address + f.offset:#x}", drop=1),
    )
    return render_lines(["", facts], style) + table.render(graph.layout, style)
