"""The types of ggml as a table, and one of them in full."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ggmltool.inspect.types import TypeInfo
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count

_ROW = 4096

_LEGEND = (
    "block: elements in a block, and the bytes it takes; bits: per element",
    (
        "to_float, from_float: whether ggml converts it to f32 and back (CPU: the backend's own conversion, ref: "
        "from_float_ref of ggml_type_traits)"
    ),
    "vec_dot: what the CPU converts the other operand of a product to",
    "here: whether ggmltool reads values of that type, or also writes them, when it computes",
    "ggmltool types NAME shows one type in full, ggmltool types --table gelu a table of values",
)


def types_view(infos: Sequence[TypeInfo], version: str, style: Style) -> str:
    """One row per type, and the numbers that ggml has given up."""
    from rich.text import Text

    table = Table[TypeInfo](
        Column("#", lambda i: i.number, right=True),
        Column("type", lambda i: i.name),
        Column("block", lambda i: i.block_size, right=True),
        Column("bytes", lambda i: i.type_size, right=True),
        Column("bits", lambda i: f"{i.bits:g}", right=True),
        Column("quantized", lambda i: "yes" if i.quantized else "", drop=6),
        Column("to_float", lambda i: "yes" if i.to_float else ""),
        Column("from_float", _from_float),
        Column("vec_dot", lambda i: i.vec_dot),
        Column("here", lambda i: "writes" if i.writes else "reads" if i.reads else ""),
    )
    gone = [n for n in range(max(info.number for info in infos)) if n not in {info.number for info in infos}]
    notes = [f"The numbers {_spans(gone)} belong to types that ggml has removed.", "", *_LEGEND]
    width = min(style.width, 120)
    lines = [Text(part, "dim") for note in notes for part in textwrap.wrap(note, width) or [""]]
    title = heading(f"the types of ggml {version}", [count(len(infos), "type")], style) + render_lines([""], style)
    return title + table.render(infos, style) + render_lines(["", *lines], style)


def _from_float(info: TypeInfo) -> str:
    return ", ".join(["CPU"] * info.from_float + ["ref"] * info.from_float_ref)


def _spans(numbers: Sequence[int]) -> str:
    """`4–5, 31–33`: numbers in order, neighbors together."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)


def type_view(info: TypeInfo, style: Style) -> str:
    """Everything about one type."""
    row = info.type_size * _ROW // info.block_size
    vec_dot = f"with {info.vec_dot}: a product converts its other operand to it" if info.vec_dot else "none"
    from_float = {
        (True, True): "yes, and a reference (from_float_ref)",
        (True, False): "on the CPU only",
        (False, True): "the reference only (from_float_ref); no op of the CPU writes it",
        (False, False): "none",
    }[info.from_float, info.from_float_ref]
    facts = (
        ("block", f"{count(info.block_size, 'element')} in {count(info.type_size, 'byte')}"),
        ("bits", f"{info.bits:g} per element"),
        ("row", f"{_ROW} elements take {row} bytes"),
        ("quantized", "yes" if info.quantized else "no"),
        ("to_float", "yes" if info.to_float else "none"),
        ("from_float", from_float),
        ("vec_dot", vec_dot),
        ("here", "reads and writes values" if info.writes else "reads values" if info.reads else "plans only"),
    )
    width = max(style.width, 40)
    lines = [
        line
        for name, value in facts
        for line in textwrap.wrap(value, width, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)
    ]
    return heading(info.name, [f"ggml_type {info.number}"], style) + render_lines(["", *lines], style)
