"""What the sections of a difference share: A and B beside each other, and how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import TypeVar

from ggmltool.inspect.diff.plans import PlanDiff
from ggmltool.inspect.diff.splits import Amount
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, render_lines
from ggmltool.show.text import printable, size, size_between

T = TypeVar("T")

MAX_ROWS = 10
"""Rows of a list before the others are counted."""

A, B = "red", "green"
"""What is only in A or only in B."""


def inks_of(diff: PlanDiff) -> dict[str, str]:
    """The color of every backend of both plans: that which it has where there are more of them."""
    plans = sorted((diff.a.plan, diff.b.plan), key=lambda plan: -len(plan.backends))
    return term_colors(name for p in plans for name, _ in p.backends)


def mark(a: object, b: object) -> Cell:
    """`-` for what only A has, `+` for what only B has, `~` for what both have."""
    return Cell("-", A) if b is None else Cell("+", B) if a is None else Cell("~")


def bytes_of(a: int, b: int) -> list[str]:
    """Cells for the bytes of both and the difference."""
    return [size(a), size(b), growth(b - a)]


def bytes_columns(get: Callable[[T], tuple[int, int]]) -> tuple[Column[T], Column[T], Column[T]]:
    """The bytes of both and the difference."""

    def difference(record: T) -> str:
        a, b = get(record)
        return growth(b - a)

    return (
        Column("A", lambda r: size(get(r)[0]), right=True),
        Column("B", lambda r: size(get(r)[1]), right=True),
        Column("difference", difference, right=True),
    )


def growth(nbytes: int) -> str:
    """A difference in bytes, with its sign; "" for none."""
    return "" if nbytes == 0 else f"{'+' if nbytes > 0 else '-'}{size(abs(nbytes))}"


def amounts(a: Amount, b: Amount) -> list[str]:
    """Cells for the bytes of both and their difference as far as it is known."""
    least, most = b.low - a.high, b.high - a.low
    difference = ""
    if least > 0 or most < 0:
        difference = f"+{size_between(least, most)}" if least > 0 else f"-{size_between(-most, -least)}"
    return [size_between(a.low, a.high), size_between(b.low, b.high), difference]


def change(a: str, b: str) -> str:
    """What is the same in both, or what it was and what it is."""
    return a if a == b else f"{a} → {b}"


def wrapped_lines(lines: Iterable[tuple[str, str, str]], style: Style) -> str:
    """Lines that are wrapped: each a label in a color, and what stands beside it."""
    from rich.text import Text

    out: list[Text] = []
    for label, ink, text in lines:
        indent = len(label) + 4 if label else 2
        parts = wrap(printable(text), max(style.width - indent, 20), break_long_words=False, break_on_hyphens=False)
        lead = Text.assemble("  ", (label, ink), "  ") if label else Text("  ")
        out.append(lead + Text(parts[0]))
        out += (Text(" " * indent + part) for part in parts[1:])
    return render_lines(out, style)
