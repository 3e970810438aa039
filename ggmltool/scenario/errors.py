"""Errors in a scenario file: one message with its place and what would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ggmltool.scenario.model import Place


class ScenarioError(Exception):
    """A mistake in a scenario.

    `source` is the file (or "<dict>"), `place` line and column (None where there is no text), `message` what is
    wrong, `expected` what would be right, `line_text` the line itself, for showing with a caret.
    """

    def __init__(
        self,
        message: str,
        source: str = "<dict>",
        place: Place | None = None,
        expected: str = "",
        line_text: str = "",
    ) -> None:
        self.message = message
        self.source = source
        self.place = place
        self.expected = expected
        self.line_text = line_text
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.source}:{self.place.line}:{self.place.column}" if self.place else self.source
        return f"{where}: {self.message}" + (f"; {self.expected}" if self.expected else "")


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that is most like `name`, if one is like it at all."""
    matches = difflib.get_close_matches(name[:100], list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None
