"""Numbers and names in words: sizes in short binary units, the plural where it is due."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.printable import printable

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(nbytes: int) -> str:
    """Bytes in short binary units: exact below 10 KiB where they are whole, else three digits.

    >>> size(96), size(10240), size(1536), size(270 * 2**20 + 12345)
    ('96 B', '10 KiB', '1.5 KiB', '270 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    power = 1
    while power < len(_UNITS) and nbytes / 1024**power >= 999.5:
        power += 1
    value, unit = nbytes / 1024**power, _UNITS[power - 1]
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    number = f"{value:.{digits}f}"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}"


def size_between(low: int, high: int) -> str:
    """A number of bytes that is known to lie between two, both included.

    >>> size_between(96, 96), size_between(1024, 2047), size_between(0, 1023), size_between(512 << 10, (2 << 20) - 1)
    ('96 B', '1–2 KiB', '0–1 KiB', '512 KiB–2 MiB')
    """
    if low == high:
        return size(low)
    least, most = size(low), size(high + 1)
    if least == most:
        return least
    number, unit = least.split(" ")
    return f"{number}–{most}" if low == 0 or most.endswith(f" {unit}") else f"{least}–{most}"


def count(n: int, noun: str) -> str:
    """`n` of something, in the plural where it is due.

    >>> count(1, "copy"), count(2, "copy"), count(0, "split")
    ('1 copy', '2 copies', '0 splits')
    """
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}s"


def shortened(names: Sequence[str], limit: int) -> str:
    """Names separated by commas, the ones beyond `limit` counted: `a, b, +3 more`."""
    shown = [printable(n) or '""' for n in names[:limit]]
    if len(names) > limit:
        shown.append(f"+{len(names) - limit} more")
    return ", ".join(shown)
