"""What lies in a context's arena: as a table, and as ggml_print_objects writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggmltool.ggml.context import Context, Object
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import OBJECT_SIZE
from ggmltool.inspect.contexts import GraphFacts
from ggmltool.show.table import Cell, Column, Shown, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, size

TYPE_NUMBERS = {"tensor": 0, "graph": 1, "work_buffer": 2}
"""ggml_object_type."""
_CONTEXT_STRUCT = 64
"""How far before its pool the context's struct lies here; ggml has it wherever malloc put it."""


def print_objects(ctx: Context) -> str:
    """ggml_print_objects, byte for byte but for the addresses."""
    objects = ctx.objects()
    lines = [f"ggml_print_objects: objects in context {ctx.base - _CONTEXT_STRUCT:#x}:"]
    for i, o in enumerate(objects):
        following = f"{ctx.base + objects[i + 1].offset - OBJECT_SIZE:#x}" if i + 1 < len(objects) else "(nil)"
        kind = TYPE_NUMBERS[o.type]
        lines.append(f" - ggml_object: type = {kind}, offset = {o.offset}, size = {o.size}, next = {following}")
    return "\n".join([*lines, "ggml_print_objects: --- end ---"]) + "\n"


def contexts_view(contexts: Sequence[Context], graph: GraphFacts, title: str, when: str, style: Style) -> str:
    """A table of objects for each context; below the one with the graph, the layout of the cgraph."""
    total = sum(ctx.used_mem for ctx in contexts)
    parts = [heading(title, [when, count(len(contexts), "context"), f"{size(total)} for structs"], style)]
    for ctx in contexts:
        objects = ctx.objects()
        facts = f"{printable(ctx.name)} · {count(len(objects), 'object')} · {ctx.used_mem} bytes from {ctx.base:#x}"
        parts.append(render_lines(["", facts], style))
        if objects:
            parts.append(_objects(ctx.base).render(enumerate(objects), style))
        parts += [_layout(ctx.base + o.offset, graph, style) for o in objects if o.type == "graph"]
    return "".join(parts)


def _objects(base: int) -> Table[tuple[int, Object]]:
    """Objects and their numbers, in an arena at this address; what is no tensor has only a place."""

    def of_tensor(get: Callable[[Tensor], Shown]) -> Callable[[tuple[int, Object]], Shown]:
        return lambda r: None if r[1].tensor is None else get(r[1].tensor)

    return Table(
        Column("#", lambda r: r[0], right=True),
        Column("type", lambda r: r[1].type),
        Column("offset", lambda r: r[1].offset, right=True),
        Column("size", lambda r: r[1].size, right=True),
        Column("address", lambda r: f"{base + r[1].offset:#x}", drop=5),
        Column("tensor", of_tensor(lambda t: t.label), cut=True),
        Column("op", of_tensor(lambda t: Op(t.op).name), drop=2),
        Column("shape", of_tensor(lambda t: f"{t.type.name}{dims(t.ne)}"), drop=3),
        Column("data", of_tensor(lambda t: f"{t.data:#x}" if t.data else Cell("NULL", "dim")), drop=6),
    )


def _layout(address: int, graph: GraphFacts, style: Style) -> str:
    facts = f"ggml_cgraph: size = {graph.size}, n_nodes = {graph.n_nodes}, n_leafs = {graph.n_leafs}"
    table = Table[tuple[str, int, int]](
        Column("field", lambda f: f[0]),
        Column("offset", lambda f: f[1], right=True),
        Column("bytes", lambda f: f[2], right=True),
        Column("address", lambda f: f"{address + f[1]:#x}", drop=1),
    )
    return render_lines(["", facts], style) + table.render(graph.layout, style)
