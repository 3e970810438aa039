"""The splits and copies of two plans side by side."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.inspect.diff.plans import PlanDiff
from ggmltool.inspect.diff.splits import CopiedPair, SplitPair, SplitSide
from ggmltool.views.diff.cells import MAX_ROWS, amounts, change, inks_of, mark
from ggmltool.views.explain.words import words
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, size_between

_SPLITS = (
    Head(""),
    Head("A", right=True),
    Head("B", right=True),
    Head("backend"),
    Head("nodes", right=True),
    Head("copied", right=True, drop=1),
    Head("from node", cut=True),
    Head("why it begins", cut=True),
)
_COPIES = (
    Head("from"),
    Head("to"),
    Head("tensors", right=True),
    Head("A", right=True),
    Head("B", right=True),
    Head("difference", right=True),
)
_COPIED = (
    Head(""),
    Head("A", right=True),
    Head("B", right=True),
    Head("tensor", cut=True),
    Head("what", drop=1),
    Head("from"),
    Head("to"),
)


def splits_section(diff: PlanDiff, style: Style) -> str:
    """A row per split that differs; those that are alike are counted."""
    inks = inks_of(diff)
    rows: list[Row] = []
    alike = 0
    for pair in (*diff.splits, None):
        if pair is not None and not pair.changes:
            alike += 1
            continue
        if alike:
            rows.append(["", Cell("⋮", "dim"), Cell("⋮", "dim"), Cell(f"{alike} alike", "dim"), "", "", "", ""])
        alike = 0
        if pair is not None:
            rows.append(_split_row(pair, inks))
    return heading("splits", [], style) + render_table(_SPLITS, _some(rows, len(_SPLITS)), style)


def _split_row(pair: SplitPair, inks: dict[str, str]) -> Row:
    a, b = pair.a, pair.b
    there = b or a
    if there is None:
        return []

    def both(tell: Callable[[SplitSide], str]) -> str:
        return tell(there) if a is None or b is None else change(tell(a), tell(b))

    return [
        mark(a, b),
        f"#{a.id}" if a is not None else "",
        f"#{b.id}" if b is not None else "",
        Cell(both(lambda s: s.backend), inks.get(there.backend, "")),
        both(lambda s: str(s.n_nodes)),
        both(lambda s: size_between(s.copied.low, s.copied.high) if s.copied.n else "–"),
        f"{there.index} {there.first}",
        "" if there.start is None else words(there.start),
    ]


def _some(rows: list[Row], n_columns: int) -> list[Row]:
    """The rows, without the middle ones of very many."""
    if len(rows) <= MAX_ROWS + 1:
        return rows
    first = MAX_ROWS - MAX_ROWS // 3
    left_out = len(rows) - MAX_ROWS
    gap: Row = ["", Cell("⋮", "dim"), Cell("⋮", "dim"), Cell(f"{left_out} rows", "dim"), *[""] * (n_columns - 4)]
    return [*rows[:first], gap, *rows[first + left_out :]]


def copies_section(diff: PlanDiff, style: Style) -> str:
    """What is copied between which backends, then the tensors that are not copied alike."""
    inks = inks_of(diff)
    rows: list[Row] = [
        [
            Cell(c.src, inks.get(c.src, "")),
            Cell(c.dst, inks.get(c.dst, "")),
            change(str(c.a.n), str(c.b.n)),
            *amounts(c.a, c.b),
        ]
        for c in diff.copies
    ]
    out = heading("copies", [], style) + render_table(_COPIES, rows, style)
    shown, rest = diff.inputs[:MAX_ROWS], diff.inputs[MAX_ROWS:]
    if shown:
        out += "\n" + render_table(_COPIED, [_copied_row(pair, inks) for pair in shown], style)
    return out + (render_lines([f"  and {count(len(rest), 'tensor')} more"], style) if rest else "")


def _copied_row(pair: CopiedPair, inks: dict[str, str]) -> Row:
    return [
        mark(pair.a, pair.b),
        *("–" if amount is None else size_between(amount.low, amount.high) for amount in (pair.a, pair.b)),
        change(pair.id or pair.id_b or "", pair.id_b or pair.id or ""),
        Cell(pair.what, "dim"),
        Cell(pair.src, inks.get(pair.src, "")),
        Cell(pair.dst, inks.get(pair.dst, "")),
    ]
