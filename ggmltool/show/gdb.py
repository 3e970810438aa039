"""Structs as gdb prints them: `$1 = {n_children = 0, n_views = 0, …}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ggmltool.show.text import printable

_WIDTH = 100
_REPEATS = 10
"""gdb writes up to so many equal elements out."""

Value = str | Mapping[str, "Value"] | Sequence["Value"]
"""A struct by its fields, an array, or a scalar as text."""


class Printed(NamedTuple):
    """A value to print, and the expression that stands for it."""

    expression: str
    value: Value
    note: str = ""


def gdb_session(prints: Iterable[Printed], width: int) -> str:
    """`(gdb) p EXPRESSION` and its value, one after the other, numbered."""
    parts = []
    for number, (expression, value, note) in enumerate(prints, 1):
        said = f"    # {printable(note)}" if note else ""
        parts.append(f"(gdb) p {expression}{said}\n{gdb_value(value, width, number)}")
    return "\n".join(parts)


def gdb_value(value: Value, width: int, number: int = 1) -> str:
    """`$1 = …` in lines of at most `width` and 100 columns, broken after commas."""
    first, *rest = _pieces(value)
    lines = [f"${number} = {first}"]
    for piece in rest:
        lines[-1] += ","
        if len(lines[-1]) + len(piece) + 2 > min(width, _WIDTH):
            lines.append(f"  {piece}")
        else:
            lines[-1] += f" {piece}"
    return "\n".join(lines) + "\n"


def _pieces(value: Value) -> list[str]:
    """What a value is printed in: a line may end after each piece. More than ten equal elements are counted."""
    out: list[str] = []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        for name, field in value.items():
            first, *rest = _pieces(field)
            out += [f"{name} = {first}", *rest]
    else:
        for element, equal in groupby(value):
            n = len(list(equal))
            pieces = _pieces(element)
            out += [*pieces[:-1], f"{pieces[-1]} <repeats {n} times>"] if n > _REPEATS else pieces * n
    if not out:
        return ["{}"]
    out[0] = "{" + out[0]
    out[-1] += "}"
    return out


def char_array(text: bytes, length: int) -> str:
    """A char array that is zero behind `text`, the last zero left out."""
    shown = "".join(_char(b) for b in text)
    zeros = length - len(text) - 1
    if zeros <= _REPEATS:
        return f'"{shown}' + r"\000" * zeros + '"'
    repeated = rf"'\000' <repeats {zeros} times>"
    return f'"{shown}", {repeated}' if text else repeated


def _char(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
