"""The splits and copies of two plans side by side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from ggmltool.inspect.diff.plans import PlanDiff
from ggmltool.inspect.diff.splits import Amount, CopiedPair, Copies, SplitPair, SplitSide
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, render_table, without_middle
from ggmltool.show.text import count, size_between
from ggmltool.views.diff.cells import MAX_ROWS, amounts, change, inks_of, mark
from ggmltool.views.explain.words import words


def splits_section(diff: PlanDiff, style: Style) -> str:
    """A row per split that differs; those that are alike are counted."""
    table = _split_table(inks_of(diff))
    rows: list[Row] = []
    for same, some in groupby(diff.splits, lambda pair: not pair.changes):
        pairs = list(some)
        rows += [_gap(f"{len(pairs)} alike")] if same else table.rows(pairs)
    if len(rows) > MAX_ROWS + 1:
        rows = list(without_middle(rows, MAX_ROWS, lambda n: _gap(f"{n} rows")))
    return heading("splits", [], style) + render_table(table.columns, rows, style)


def _gap(text: str) -> Row:
    return ["", Cell("⋮", "dim"), Cell("⋮", "dim"), Cell(text, "dim")]


def _split_table(inks: dict[str, str]) -> Table[SplitPair]:
    def there(pair: SplitPair) -> SplitSide:
        side = pair.b or pair.a
        if side is None:
            raise ValueError("a split of neither plan")
        return side

    def both(tell: Callable[[SplitSide], str]) -> Callable[[SplitPair], str]:
        return lambda p: tell(there(p)) if p.a is None or p.b is None else change(tell(p.a), tell(p.b))

    def why(pair: SplitPair) -> str | None:
        start = there(pair).start
        return None if start is None else words(start)

    def copied(side: SplitSide) -> str:
        return size_between(side.copied.low, side.copied.high) if side.copied.n else "–"

    backend = both(lambda s: s.backend)
    return Table(
        Column("", lambda p: mark(p.a, p.b)),
        Column("A", lambda p: p.a and f"#{p.a.id}", right=True),
        Column("B", lambda p: p.b and f"#{p.b.id}", right=True),
        Column("backend", lambda p: Cell(backend(p), inks.get(there(p).backend, ""))),
        Column("nodes", both(lambda s: str(s.n_nodes)), right=True),
        Column(
            "copied",
            both(copied),
            right=True,
            drop=1,
        ),
        Column("from node", lambda p: f"{there(p).index} {there(p).first}", cut=True),
        Column("reason", why, cut=True),
    )


def copies_section(diff: PlanDiff, style: Style) -> str:
    """What is copied between which backends, then the tensors that are not copied alike."""
    inks = inks_of(diff)
    table = Table[Copies](
        Column("from", lambda c: Cell(c.src, inks.get(c.src, ""))),
        Column("to", lambda c: Cell(c.dst, inks.get(c.dst, ""))),
        Column("tensors", lambda c: change(str(c.a.n), str(c.b.n)), right=True),
        Column("A", lambda c: amounts(c.a, c.b)[0], right=True),
        Column("B", lambda c: amounts(c.a, c.b)[1], right=True),
        Column("difference", lambda c: amounts(c.a, c.b)[2], right=True),
    )
    out = heading("copies", [], style) + table.render(diff.copies, style)
    shown, rest = diff.inputs[:MAX_ROWS], diff.inputs[MAX_ROWS:]
    if shown:
        out += "\n" + _copied_table(inks).render(shown, style)
    return out + (render_lines([f"  and {count(len(rest), 'tensor')} more"], style) if rest else "")


def _copied_table(inks: dict[str, str]) -> Table[CopiedPair]:
    def nbytes(amount: Amount | None) -> str:
        return "–" if amount is None else size_between(amount.low, amount.high)

    return Table(
        Column("", lambda p: mark(p.a, p.b)),
        Column("A", lambda p: nbytes(p.a), right=True),
        Column("B", lambda p: nbytes(p.b), right=True),
        Column("tensor", lambda p: change(p.id or p.id_b or "", p.id_b or p.id or ""), cut=True),
        Column("what", lambda p: Cell(p.what, "dim"), drop=1),
        Column("from", lambda p: Cell(p.src, inks.get(p.src, ""))),
        Column("to", lambda p: Cell(p.dst, inks.get(p.dst, ""))),
    )
