"""Which entries of a table of values the options of `types --table` choose."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

import click

_BYTE_TABLES = frozenset(("e8m0", "ue4m3"))
_LARGEST = 65504.0
"""The largest finite f16."""


def chosen(table: str, bounds: Sequence[str] | None, every: str | None, at: Iterable[str]) -> list[int]:
    """The indices of the entries, in the order asked for. Raises UsageError for what is no index and no number.

    An index is written in hexadecimal; of the tables of f16 other numbers are values of x.
    """
    bits = 8 if table in _BYTE_TABLES else 16
    listed = [_index(text, bits) for text in at]
    if bounds is None and every is None and listed:
        return listed
    if bounds is None:
        bounds = ("-4", "4") if bits == 16 else ("0x00", "0xff")
    if _is_index(bounds[0], bits) != _is_index(bounds[1], bits):
        raise click.UsageError("--range takes two values of x or two indices, not one of each.")
    if _is_index(bounds[0], bits):
        low, high = (_index(text, bits) for text in bounds)
        step = _whole(every) if every is not None else 1 if bits == 16 else 8
        return [*range(low, high + 1, step), *listed]
    return [*_by_value(_value(bounds[0]), _value(bounds[1]), 0.5 if every is None else _value(every)), *listed]


def _by_value(low: float, high: float, step: float) -> list[int]:
    """The f16 nearest to low, low + step … up to high, each once."""
    if not all(map(math.isfinite, (low, high, step))) or step <= 0:
        raise click.UsageError("--range takes finite numbers, and --every one above 0.")
    if max(abs(low), abs(high)) > _LARGEST:
        raise click.UsageError(f"the largest f16 is {_LARGEST:g}; --at inf shows the entry of infinity.")
    steps = (high - low) / step
    if steps >= 1 << 16:
        raise click.UsageError(
            "that is more than the 65536 entries of the table; --range 0x0000 0xffff shows all of them."
        )
    values = (low + i * step for i in range(math.floor(steps + 1e-9) + 1)) if steps >= 0 else ()
    return list(dict.fromkeys(_half(min(x, high)) for x in values))


def _is_index(text: str, bits: int) -> bool:
    return bits == 8 or text.lower().startswith("0x")


def _index(text: str, bits: int) -> int:
    """The index in `text`, or the index of its value of x."""
    if not _is_index(text, bits):
        return _half(_value(text))
    try:
        index = int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not an index; write it as 0x{'0' * (bits // 4)}.") from None
    if not 0 <= index < 1 << bits:
        raise click.UsageError(f"{text} is not an index; indices go from 0x0 to 0x{(1 << bits) - 1:x}.")
    return index


def _whole(text: str) -> int:
    """A step of indices."""
    try:
        step = int(text, 0)
    except ValueError:
        step = 0
    if step < 1:
        raise click.UsageError(f"--every of indices takes a whole number above 0, not {text!r}.")
    return step


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a number; write a value of x, or an index as 0x3c00.") from None


def _half(x: float) -> int:
    """The bits of the f16 nearest to `x`; infinity for what is too large."""
    try:
        return int(struct.unpack("<H", struct.pack("<e", x))[0])
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00
