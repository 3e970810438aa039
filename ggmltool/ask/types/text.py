"""The types of ggml as a table, one of them in full, and entries of its tables of values."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import Any

from ggmltool.ask.answer import Answer
from ggmltool.ask.types.record import TableEntry, TypeInfo, TypeList, ValueTable
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


def types(answer: Answer[TypeList], style: Style) -> str:
    """One row per type, and the numbers that ggml has given up."""
    infos = answer.facts.types
    from rich.text import Text

    table = Table[TypeInfo](
        Column("#", lambda i: i.number, right=True),
        Column("type", lambda i: i.name),
        Column("block", lambda i: i.block_size, right=True),
        Column("bytes", lambda i: i.type_size, right=True),
        Column("bits", lambda i: f"{i.bits_per_element:g}", right=True),
        Column("quantized", lambda i: "yes" if i.quantized else "", drop=6),
        Column("to_float", lambda i: "yes" if i.to_float else ""),
        Column("from_float", lambda i: ", ".join(["CPU"] * i.from_float + ["ref"] * i.from_float_ref)),
        Column("vec_dot", lambda i: i.vec_dot),
        Column("here", lambda i: "writes" if i.writes else "reads" if i.reads else ""),
    )
    spans = []  # `4–5, 31–33`: the numbers between those that there are
    for before, after in pairwise(sorted(info.number for info in infos)):
        if after > before + 1:
            spans.append(f"{before + 1}" if after == before + 2 else f"{before + 1}–{after - 1}")
    notes = [f"The numbers {', '.join(spans)} belong to types that ggml has removed.", "", *_LEGEND]
    width = min(style.width, 120)
    lines = [Text(part, "dim") for note in notes for part in textwrap.wrap(note, width) or [""]]
    title = heading(f"the types of ggml {answer.facts.ggml}", [count(len(infos), "type")], style)
    return title + render_lines([""], style) + table.render(infos, style) + render_lines(["", *lines], style)


def type_in_full(answer: Answer[Any], style: Style) -> str:
    """Everything about one type."""
    info: TypeInfo = answer.facts
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
        ("bits", f"{info.bits_per_element:g} per element"),
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


_BITS = {"f16": (5, 10), "f32": (8, 23)}
"""The bits of exponent and mantissa of each type."""

_HEADERS = {"f16": "s exp   mantissa", "f32": "s exponent mantissa"}


def _number(x: float) -> str:
    """A number as gdb prints a float."""
    return f"{x:.9g}"


def _parts(bits: int, type: str) -> str:
    """Sign, exponent and mantissa in binary."""
    exponent, mantissa = _BITS[type]
    text = f"{bits:0{1 + exponent + mantissa}b}"
    return f"{text[0]} {text[1 : 1 + exponent]} {text[1 + exponent :]}"


def _hex(bits: int, width: int) -> str:
    return f"0x{bits:0{width // 4}x}"


def value_table(answer: Answer[ValueTable], style: Style) -> str:
    """One row per entry, numbers as gdb prints them."""
    table = answer.facts
    halves = table.index_bits == 16
    width = 16 if table.type == "f16" else 32
    columns: list[Column[TableEntry]] = [Column("index", lambda e: _hex(e.index, table.index_bits), right=True)]
    if halves:
        columns += [
            Column("s exp   mantissa", lambda e: _parts(e.index, "f16"), drop=6),
            Column("x", lambda e: "" if e.x is None else _number(e.x), right=True),
        ]
    columns += [
        Column("value", lambda e: _number(e.value), right=True),
        Column("bits", lambda e: _hex(e.bits, width), right=True),
        Column(_HEADERS[table.type], lambda e: _parts(e.bits, table.type), drop=7),
    ]
    of = f"{1 << table.index_bits} entries of {table.type}"
    title = heading(
        f"table {table.name} of ggml {table.ggml}", [table.symbol or "no longer kept", of, table.text], style
    )
    notes = textwrap.wrap(table.note, min(style.width, 120))
    return title + render_lines([*notes, ""], style) + Table(*columns).render(table.entries, style)
