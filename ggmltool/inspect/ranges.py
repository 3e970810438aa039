"""Numbers as text: one, several by commas, and ranges of them."""

from __future__ import annotations

import re

from ggmltool.state.errors import InspectError

_RANGE = re.compile(r"(\d{1,10})(?:\.\.(\d{1,10})(?::(\d{1,10}))?)?")
_VALUES = 20_000
"""Values of one range, at most."""


def read_range(text: str, most: int, all: bool = True, doubled: bool = False) -> list[int]:
    """`0..33`, `0..32:4`, `1,2,8`, `all` (which is `most`), or several of them by commas; beyond `most` all is one.

    With `doubled` a range without a step has doublings, whatever `most` is.

    Raises InspectError.
    """
    out: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if part.strip() == "all" and all:
            out.append(most)
        elif part.strip().isdecimal() and not found:
            raise InspectError(f"{part.strip()} is too large")
        elif not found or int(found[3] or 1) == 0:
            raise InspectError(f"{part!r} is not a number or a range, e.g. 0..32:4")
        else:
            first = int(found[1])
            last = int(found[2]) if found[2] else first
            if doubled and found[2] and not found[3] and 0 < first <= last:
                out += doublings(first, last)
                continue
            numbers = range(first, min(last, max(first, most)) + 1, int(found[3] or 1))
            if len(numbers) > _VALUES:
                raise InspectError(f"{part!r} has {len(numbers)} numbers; the limit is {_VALUES}")
            out += [min(n, most) for n in numbers]
    if not out:
        raise InspectError(f"{text!r} is an empty range; its first number is larger than its last")
    return list(dict.fromkeys(out))


def doublings(least: int, most: int) -> tuple[int, ...]:
    """Numbers of a range: each twice as large as the last, and both ends.

    >>> doublings(4096, 20000), doublings(4096, 512)
    ((4096, 8192, 16384, 20000), (512,))
    """
    out = [least]
    while out[-1] * 2 < most:
        out.append(out[-1] * 2)
    return (*out, most) if out[-1] < most else (most,)
