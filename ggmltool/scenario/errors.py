"""Errors in a scenario file: one message with its place and what would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice, permutations
from typing import NamedTuple

from ggmltool.ggml.errors import Error
from ggmltool.ggml.printable import printable


class Place(NamedTuple):
    """Where something stands in its file: line and column count from 1."""

    line: int
    column: int


_SHOWN = 60
"""Characters of a name that messages show."""

_IN_ANY_ORDER = 4
"""Words of a name that are tried in any order, at most."""

_CANDIDATES = 2000
"""Names that are compared with a wrong one, at most; of more, only those that look alike at a glance."""


class ScenarioError(Error):
    """A mistake in a scenario.

    `source` is the file (or "<dict>"), `place` line and column (None if there is no text), `message` what is wrong,
    `expected` what would be right, `line_text` the line itself, for showing with a caret under the column.
    """

    def __init__(
        self, message: str, source: str = "<dict>", place: Place | None = None, expected: str = "", line_text: str = ""
    ) -> None:
        self.message = message
        self.source = source
        self.place = place
        self.expected = expected
        self.line_text = line_text
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.source}:{self.place.line}:{self.place.column}" if self.place else self.source
        text = f"{where}: {self.message}" + (f"; {self.expected}" if self.expected else "")
        return "\n".join(map(printable, text.split("\n")))


class Mistake(Exception):  # noqa: N818 - it becomes a ScenarioError where the file is known
    """What is wrong with one value, before anybody knows where in the file it stands.

    `path` leads from the value that was looked at to the wrong one; `on_key` says that the key at its end is wrong,
    not the value; `offset` points into the wrong value where that is a string.
    """

    def __init__(
        self, message: str, expected: str = "", *path: str | int, on_key: bool = False, offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.path: tuple[str | int, ...] = path
        self.on_key = on_key
        self.offset = offset

    def below(self, *path: str | int) -> Mistake:
        """The same mistake, seen from further up."""
        self.path = (*path, *self.path)
        return self


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that is most like `name`, if one is like it at all: first in its letters, then in its words, in
    any order and with or without gaps (matmul: mul_mat)."""
    name = name[:100]
    candidates = list(valid)
    lower = name.lower()
    for candidate in candidates:
        if candidate.lower() == lower:
            return candidate
    letters_in_order = sorted(lower)
    for candidate in candidates:
        if len(candidate) == len(name) and sorted(candidate.lower()) == letters_in_order:
            return candidate
    run_together = "".join(_words(lower))
    for candidate in candidates:
        words = _words(candidate.lower())
        may_be = sum(map(len, words)) == len(run_together) and len(words) <= _IN_ANY_ORDER
        if may_be and run_together in map("".join, permutations(words)):
            return candidate
    if len(candidates) > _CANDIDATES:
        letters = set(name)
        alike = (c for c in candidates if abs(len(c) - len(name)) <= 2 and len(letters.symmetric_difference(c)) <= 2)
        candidates = list(islice(alike, _CANDIDATES))
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return matches[0] if matches else None


def _words(name: str) -> list[str]:
    return name.replace("-", "_").split("_")


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """`did you mean "x"?` for a wrong name, or "" if nothing is like it."""
    best = nearest(name, valid)
    return f"did you mean {quoted(best)}?" if best is not None else ""


def quoted(name: object) -> str:
    """A name as messages show it: quoted, short, and without what would steer a terminal."""
    text = str(name)
    cut = len(text) > _SHOWN
    parts = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:_SHOWN])
    shown = "".join('\\"' if part == '"' else part for part in parts)
    return f'"{shown}{"…" if cut else ""}"'
