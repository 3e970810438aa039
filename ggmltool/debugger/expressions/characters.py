"""Characters and strings as gdb prints them: `97 'a'`, `"a", '\\000' <repeats 62 times>`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

MOST_ELEMENTS = 200
"""How many elements of an array or a string are printed: `set print elements`."""
MOST_REPEATS = 10
"""How many equal elements are printed one by one: `set print repeats`."""

_ESCAPED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}


def char(code: int) -> str:
    """A character in single quotes."""
    return f"'{_text([code], chr(39))}'"


def string(codes: Sequence[int], longer: bool = False) -> list[str]:
    """The parts of a string, to be joined by commas; `longer`: it goes on behind these codes.

    What is repeated stands apart.
    """
    if not codes:
        return ['""' + ("..." if longer else "")]
    parts: list[str] = []
    plain: list[int] = []
    left = MOST_ELEMENTS
    for code, n in _runs(codes):
        if left <= 0:
            break
        if n > MOST_REPEATS:
            if plain:
                parts.append(f'"{_text(plain, chr(34))}"')
                plain = []
            parts.append(f"{char(code)} <repeats {n} times>")
            left -= MOST_REPEATS
        else:
            taken = min(n, left)
            plain += [code] * taken
            left -= taken
            longer = longer or taken < n
    else:
        left = max(left, 1)
    if plain:
        parts.append(f'"{_text(plain, chr(34))}"')
    if longer or left <= 0:
        parts[-1] += "..."
    return parts


def _runs(codes: Sequence[int]) -> Iterator[tuple[int, int]]:
    for code, same in groupby(codes):
        yield code, sum(1 for _ in same)


def _text(codes: Sequence[int], quote: str) -> str:
    out = []
    for code in codes:
        code &= 0xFF
        letter = chr(code)
        if code in _ESCAPED:
            out.append(_ESCAPED[code])
        elif 32 <= code < 127:
            out.append(f"\\{letter}" if letter in (quote, "\\") else letter)
        else:
            out.append(f"\\{code:03o}")
    return "".join(out)
