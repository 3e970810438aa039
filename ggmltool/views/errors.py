"""Errors as text: a mistake in a file with its line and a caret, a refusal of ggml's with what it means here."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.views.text import printable

_MARGIN = 60


def scenario_error(source: str, place: tuple[int, int] | None, message: str, expected: str, line_text: str) -> str:
    """`file:line:column: message`, what would have been right, and the line with a caret under the column."""
    where = f"{source}:{place[0]}:{place[1]}" if place else source
    text = f"{printable(where)}: {printable(message)}"
    if expected:
        text += f"; {printable(expected)}"
    if place is None or not line_text.strip():
        return text
    return f"{text}\n{_excerpt(place[0], place[1], line_text)}"


def _excerpt(line: int, column: int, line_text: str) -> str:
    """The line, cut around the column where it is long, and a caret below the column (both count from 1)."""
    line_text = line_text.rstrip("\r\n")
    at = min(max(column - 1, 0), len(line_text))
    start = max(at - _MARGIN, 0) if len(line_text) > 2 * _MARGIN else 0
    end = start + 2 * _MARGIN
    before = ("…" if start else "") + printable(line_text[start:at].replace("\t", "    "))
    after = printable(line_text[at:end].replace("\t", "    ")) + ("…" if end < len(line_text) else "")
    number = f"{line:>5} | "
    return f"{number}{before}{after}\n{' ' * (len(number) - 2)}| {' ' * _cells(before)}^"


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def ggml_error(error: Mapping[str, str | None], where: str = "") -> str:
    """ggml's own text first, then the function that refused, the place, and what it means here.

    `error` as in the plan; `where` is file, line and column of the node, "" if no node of a file is the matter.
    """
    # Some of ggml's messages end their line themselves.
    lines = [printable((error.get("message") or "ggml failed").rstrip("\n"))]
    function = error.get("function")
    explanation = error.get("explanation")
    if function:
        lines.append(f"  in {function}" + (f", for {printable(where)}" if where else ""))
    if explanation:
        lines.extend(f"  {printable(part)}" for part in explanation.splitlines())
    return "\n".join(lines)
