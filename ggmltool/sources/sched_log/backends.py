"""The backends of a log: node lines cut their names to five bytes, the headers of splits have them whole."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WIDTH = 5
_LAST = {"BLAS": 1, "CPU": 2}
_DIGITS = re.compile(r"(\d+)")

MAX_BACKENDS = 1000
"""Different names that are remembered."""


class Backends:
    """The whole names that headers had so far."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._by_cut: dict[str, list[str]] = {}

    def add(self, name: str) -> None:
        """A name from a header."""
        if name not in self.names and len(self.names) < MAX_BACKENDS:
            self.names[name] = None
            self._by_cut.setdefault(_cut(name), []).append(name)

    def whole(self, cut: str, near: str = "") -> str | None:
        """The backend that a node line calls `cut`: `near`, that of its split, if it can be, else the only one that is
        cut so, else what stands there. None for NULL."""
        if cut == "NULL":
            return None
        if near and _cut(near) == cut:
            return near
        known = self._by_cut.get(cut, ())
        return known[0] if len(known) == 1 else cut


def _cut(name: str) -> str:
    return name.encode("utf-8", "surrogateescape")[:_WIDTH].strip().decode("utf-8", "surrogateescape")


def listed(names: Iterable[str]) -> list[str]:
    """The names as tables list them: by name and number, BLAS and the CPU last, as schedulers have them.

    >>> listed(["CPU", "CUDA10", "CUDA2"])
    ['CUDA2', 'CUDA10', 'CPU']
    """
    return sorted(set(names), key=lambda name: (_LAST.get(name, 0), [_part(part) for part in _DIGITS.split(name)]))


def _part(part: str) -> tuple[int, str]:
    return (int(part[:9]), "") if part.isascii() and part.isdigit() else (0, part)
