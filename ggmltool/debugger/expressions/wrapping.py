"""Lines as gdb breaks them: at the last place that allows it, when a line would fill the width."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Piece(NamedTuple):
    """A text in front of which a line may be broken, with so many spaces on the new line (None: it may not)."""

    text: str
    indent: int | None = None


def wrapped(pieces: Iterable[Piece], width: int | None = None, taken: int = 0) -> str:
    """The pieces in lines of less than `width` columns (None: one line), the first of which begins at `taken`.

    A piece that no line has room for is not broken.
    """
    if width is None:
        return "".join(piece.text for piece in pieces)
    out: list[str] = []
    pending, indent, column = "", None, taken
    for piece in pieces:
        if piece.indent is not None:
            out.append(pending)
            pending, indent = "", piece.indent
        pending += piece.text
        column += len(piece.text)
        if column >= width and indent is not None:
            out.append("\n" + " " * indent)
            column, indent = indent + len(pending), None
        column %= width
    out.append(pending)
    return "".join(out)
