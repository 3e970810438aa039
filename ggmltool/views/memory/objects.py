"""What lies in a context's arena: as a table, and as ggml_print_objects writes it."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.context import Context, Object
from ggmltool.ggml.op import Op
from ggmltool.ggml.version import OBJECT_SIZE
from ggmltool.inspect.contexts import GraphFacts
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, dims, printable, size

TYPE_NUMBERS = {"tensor": 0, "graph": 1, "work_buffer": 2}
"""ggml_object_type."""
_CONTEXT_STRUCT = 64
"""How far before its pool the context's struct lies here; ggml has it wherever malloc put it."""

_OBJECTS = (
    Head("#", right=True),
    Head("type"),
    Head("offset", right=True),
    Head("size", right=True),
    Head("address", drop=5),
    Head("tensor", cut=True),
    Head("op", drop=2),
    Head("shape", drop=3),
    Head("data", drop=6),
)
_LAYOUT = (Head("field"), Head("offset", right=True), Head("bytes", right=True), Head("address", drop=1))


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
            parts.append(render_table(_OBJECTS, [_row(i, o, ctx.base) for i, o in enumerate(objects)], style))
        parts += [_layout(ctx.base + o.offset, graph, style) for o in objects if o.type == "graph"]
    return "".join(parts)


def _row(index: int, o: Object, base: int) -> Row:
    t = o.tensor
    head = [str(index), o.type, str(o.offset), str(o.size), f"{base + o.offset:#x}"]
    if t is None:
        return [*head, "", "", "", ""]
    data = f"{t.data:#x}" if t.data else Cell("NULL", "dim")
    return [*head, t.label, Op(t.op).name, f"{t.type.name}{dims(t.ne)}", data]


def _layout(address: int, graph: GraphFacts, style: Style) -> str:
    facts = f"ggml_cgraph: size = {graph.size}, n_nodes = {graph.n_nodes}, n_leafs = {graph.n_leafs}"
    rows: list[Row] = [
        [name, str(offset), str(nbytes), f"{address + offset:#x}"] for name, offset, nbytes in graph.layout
    ]
    return render_lines(["", facts], style) + render_table(_LAYOUT, rows, style)
