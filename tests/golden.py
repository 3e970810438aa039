"""Golden files: what a view or a command printed once and should print again.

Most are compared byte for byte. One with values that were computed is compared as numbers, `check_golden(…, rel=1e-4)`:
the last digit of a product or of a sum is the processor's.
"""

from __future__ import annotations

import os
import re
from itertools import zip_longest
from pathlib import Path

UPDATE = "GGMLTOOL_UPDATE_GOLDEN"
"""Set to 1 to write what comes out now instead of comparing; then look at the diff before you accept it."""

FLOAT32 = 1e-4
"""A tolerance for values that some products of matrices in float32 lead to."""

_NUMBER = r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)"
_TOKEN = re.compile(rf"({_NUMBER})|\s*[─━═-]{{2,}}\s*|\s+")


def check_golden(path: Path, actual: str | bytes, rel: float | None = None) -> None:
    """Compare with the golden file, byte for byte or (`rel`) as numbers, or write it when asked to."""
    data = actual.encode("utf-8", "surrogateescape") if isinstance(actual, str) else actual
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return
    assert path.exists(), f"{path} is missing; {UPDATE}=1 writes it"
    text, accepted = data.decode("utf-8", "replace"), path.read_bytes().decode("utf-8", "replace")
    if rel is not None and same_but_for_rounding(text, accepted, rel):
        return
    assert text == accepted
    assert data == path.read_bytes()


def same_but_for_rounding(a: str, b: str, rel: float) -> bool:
    """Whether two texts are the same but for floats that agree to `rel`, or to one in the last digit printed.

    Whole numbers have to be equal. How many spaces and dashes stand between words follows from how many digits a number
    has, so any number of them is as good as another.
    """
    return all(_agree(x, y, rel) for x, y in zip_longest(_words(a), _words(b)))


def _words(text: str) -> list[str]:
    """The numbers, and the text between them; spaces and lines apart."""
    return [word for word in _TOKEN.split(text) if word and not word.isspace()]


def _agree(a: str | None, b: str | None, rel: float) -> bool:
    if a == b:
        return True
    if a is None or b is None or not re.fullmatch(_NUMBER, a) or not re.fullmatch(_NUMBER, b):
        return False
    x, y = float(a), float(b)
    if a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit():
        return x == y
    return abs(x - y) <= max(rel * max(abs(x), abs(y)), 1.001 * max(_last_digit(a), _last_digit(b)))


def _last_digit(number: str) -> float:
    """What one in the last digit is worth; nothing for a float with all of its digits, as in JSON."""
    mantissa, _, exponent = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.0 if len(mantissa.strip("+-0.").replace(".", "")) > 7 else 10.0 ** (int(exponent or 0) - decimals)
