"""Entries of ggml's tables of values: the bits of the argument, the argument, the value, and its bits."""

from __future__ import annotations

import struct
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from ggmltool.show.table import Column, Style, Table, heading, render_lines

_FLOATS = {"f16": ("<H", "<e", 5, 10), "f32": ("<I", "<f", 8, 23)}
"""For each type how to pack its bits, how to unpack the value, and the bits of exponent and mantissa."""

_HEADERS = {"f16": "s exp   mantissa", "f32": "s exponent mantissa"}


class TableInfo(NamedTuple):
    """A table: its names, the bits of its index, the type and the meaning of its values, and a note."""

    name: str
    symbol: str
    index_bits: int
    type: str
    text: str
    note: str


class Entry(NamedTuple):
    """An entry: the bits of its argument, which are its index, and the bits of its value."""

    argument: int
    bits: int


def value_of(bits: int, type: str) -> float:
    """The number with these bits, as f16 or f32."""
    integer, floating, _, _ = _FLOATS[type]
    return float(struct.unpack(floating, struct.pack(integer, bits))[0])


def number(x: float) -> str:
    """A number as gdb prints a float."""
    return f"{x:.9g}"


def _parts(bits: int, type: str) -> str:
    """Sign, exponent and mantissa in binary."""
    _, _, exponent, mantissa = _FLOATS[type]
    text = f"{bits:0{1 + exponent + mantissa}b}"
    return f"{text[0]} {text[1 : 1 + exponent]} {text[1 + exponent :]}"


def _hex(bits: int, width: int) -> str:
    return f"0x{bits:0{width // 4}x}"


def table_view(table: TableInfo, entries: Sequence[Entry], version: str, style: Style) -> str:
    """One row per entry, numbers as gdb prints them."""
    halves = table.index_bits == 16
    width = 16 if table.type == "f16" else 32
    columns: list[Column[Entry]] = [Column("index", lambda e: _hex(e.argument, table.index_bits), right=True)]
    if halves:
        columns += [
            Column("s exp   mantissa", lambda e: _parts(e.argument, "f16"), drop=6),
            Column("x", lambda e: number(value_of(e.argument, "f16")), right=True),
        ]
    columns += [
        Column("value", lambda e: number(value_of(e.bits, table.type)), right=True),
        Column("bits", lambda e: _hex(e.bits, width), right=True),
        Column(_HEADERS[table.type], lambda e: _parts(e.bits, table.type), drop=7),
    ]
    of = f"{1 << table.index_bits} entries of {table.type}"
    title = heading(f"table {table.name} of ggml {version}", [table.symbol or "no longer kept", of, table.text], style)
    notes = textwrap.wrap(table.note, min(style.width, 120))
    return title + render_lines([*notes, ""], style) + Table(*columns).render(entries, style)
