"""printf, done by us: a format and its variable arguments in a program that stands still, as the text they come to.

The program's texts are not trusted: lengths are bounded, and what cannot be read is told as a question mark.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.pages import c_string

MOST = 2048
"""Bytes of a message: what ggml_abort has room for."""
_WIDEST = 256
_PLACE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|z|j|t|q|L)?([a-zA-Z%])")
_BYTES = {"hh": 1, "h": 2, None: 4, "l": 8, "ll": 8, "z": 8, "j": 8, "t": 8, "q": 8, "L": 8}
_REGISTERS = {"x86-64": 6, "aarch64": 8}
_VECTORS = {"x86-64": "(long)$xmm{}.v2_int64[0]", "aarch64": "(long)$v{}.d.u[0]"}
_STACK = {"x86-64": ("$rsp", 8), "aarch64": ("$sp", 0)}


class FormattedValue(NamedTuple):
    """An argument that was filled in: its conversion (`s`), the number that was passed, and its text."""

    conversion: str
    raw: int
    text: str


class PrintedMessage(NamedTuple):
    """A message, and what was filled in."""

    text: str
    values: tuple[FormattedValue, ...]


class VarArguments:
    """The arguments of a function with variable ones, at its entry: of which the first `named` have names.

    x86-64 (System V) and arm64 (AAPCS64): whole numbers in registers first, numbers with a point in others, then all
    of them on the stack.
    """

    def __init__(self, link: GdbLink, architecture: str, named: int) -> None:
        self._link = link
        self._architecture = architecture
        self._whole = self._registers(named)
        self._points = iter(range(8))
        start, past = _STACK[architecture]
        self._stack = (link.ask("evaluate", f"(long){start}") & (1 << 64) - 1) + past

    def whole(self) -> int:
        """The next whole number or pointer: 8 bytes. Raises LinkError."""
        found = next(self._whole, None)
        return self._from_stack() if found is None else found

    def point(self) -> float:
        """The next double. Raises LinkError."""
        i = next(self._points, None)
        raw = (
            self._from_stack()
            if i is None
            else self._link.ask("evaluate", _VECTORS[self._architecture].format(i)) & (1 << 64) - 1
        )
        return float(struct.unpack("<d", struct.pack("<Q", raw))[0])

    def _from_stack(self) -> int:
        (value,) = struct.unpack("<Q", self._link.read(self._stack, 8))
        self._stack += 8
        return int(value)

    def _registers(self, named: int) -> Iterator[int]:
        values = list(self._link.arguments())
        more = range(len(values), _REGISTERS[self._architecture])
        values += [self._link.ask("evaluate", f"(long)$x{i}") & (1 << 64) - 1 for i in more]
        return iter(values[named:])


def printed(link: GdbLink, format: str, arguments: VarArguments) -> PrintedMessage:
    """What printf would write."""
    values: list[FormattedValue] = []
    out, end = [], 0
    for found in _PLACE.finditer(format):
        out.append(format[end : found.start()])
        end = found.end()
        if found[5] == "%":
            out.append("%")
            continue
        try:
            value = _filled(link, found, arguments)
        except LinkError:
            value = FormattedValue(found[5], 0, "?")
        values.append(value)
        out.append(value.text)
    return PrintedMessage("".join([*out, format[end:]])[:MOST], tuple(values))


def _filled(link: GdbLink, found: re.Match[str], arguments: VarArguments) -> FormattedValue:
    """One place. Python's own % knows C's flags, width and precision."""
    flags, width, precision, size, conversion = found.groups()
    across = _number(width, arguments)
    digits = None if precision is None else _number(precision, arguments)
    form = f"%{flags}{across or ''}{'' if digits is None else f'.{digits}'}"
    if conversion in "fFeEgGaA":
        return FormattedValue(
            conversion, 0, f"{form}{conversion.replace('a', 'g').replace('A', 'G')}" % arguments.point()
        )
    raw = arguments.whole()
    if conversion in "di":
        text = f"{form}d" % _signed(raw, _BYTES[size])
    elif conversion in "uxXo":
        text = f"{form}{conversion.replace('u', 'd')}" % (raw & ((1 << 8 * _BYTES[size]) - 1))
    elif conversion == "s":
        text = f"{form}s" % (c_string(link, raw, MOST) if raw else "(null)")
    elif conversion == "p":
        text = f"{form}s" % (f"{raw:#x}" if raw else "(nil)")
    elif conversion == "c":
        text = f"{form}s" % chr(raw & 0xFF)
    else:
        text = "?"
    return FormattedValue(conversion, raw, text)


def _number(text: str | None, arguments: VarArguments) -> int:
    if text == "*":
        return min(max(_signed(arguments.whole(), 4), 0), _WIDEST)
    return min(int(text or 0), _WIDEST)


def _signed(raw: int, size: int) -> int:
    value = raw & ((1 << 8 * size) - 1)
    return value - (1 << 8 * size) if value >> (8 * size - 1) else value
