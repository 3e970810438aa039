"""Sections of a difference: splits, copies and memory of two plans beside each other, and how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from textwrap import wrap
from typing import TypeVar

from ggmltool.ask.diff import record
from ggmltool.ask.diff.plans import PlanDiff
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, render_table, without_middle
from ggmltool.show.text import count, printable, shortened, size, size_between

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


def amounts(a: record.Amount, b: record.Amount) -> list[str]:
    """Cells for the bytes of both, and their difference where both are known."""
    least, most = b.nbytes - a.most, b.most - a.nbytes
    difference = ""
    if least > 0 or most < 0:
        difference = f"+{size_between(least, most)}" if least > 0 else f"-{size_between(-most, -least)}"
    return [size_between(a.nbytes, a.most), size_between(b.nbytes, b.most), difference]


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


def _nbytes(pair: record.ShapePair) -> tuple[int, int]:
    return pair.a.nbytes or 0, pair.b.nbytes or 0


_SIZES = Table[record.ShapePair](
    *bytes_columns(_nbytes),
    Column("tensor", lambda p: change(p.id, p.id_b), cut=True),
    Column("op", lambda p: Cell("leaf" if p.op == "NONE" else p.op, "dim"), drop=1),
    Column("shape", lambda p: change(p.a.shape, p.b.shape), drop=2),
)
_HELD = Table[record.HeldPair](
    Column("buffer type", lambda p: p.buft, cut=True),
    Column("usage", lambda p: p.usage, drop=1),
    *bytes_columns(lambda p: (p.a, p.b)),
)
_MOVES = Table[tuple[str, list[record.HeldMove]]](
    Column("bytes", lambda g: size(sum(there.nbytes for m in g[1] if (there := m.b or m.a))), right=True),
    Column("tensors", lambda g: len(g[1]), right=True),
    Column("what", lambda g: g[0]),
    Column("which", lambda g: shortened([m.id for m in g[1]], 3), cut=True),
)


def buffers_section(diff: PlanDiff, style: Style) -> str:
    """A row per buffer, then what lies in it in another way."""
    inks = inks_of(diff)
    notes = []
    for words, ids in (
        ("in place in A, in new memory in B", [pair.id for pair in diff.reuse if pair.b is None]),
        ("in place in B, in new memory in A", [pair.id for pair in diff.reuse if pair.a is None]),
        ("in place of another source", [pair.id for pair in diff.reuse if pair.a is not None and pair.b is not None]),
    ):
        if ids:
            notes.append(f"{words}: {shortened(ids, 5)}")
    if diff.elsewhere:
        notes.append(f"{count(diff.elsewhere, 'tensor')} elsewhere in memory")
    table = heading("compute buffers", [], style) + _buffers(inks).render(diff.buffers, style)
    return table + wrapped_lines([("", "", note) for note in notes], style)


def _buffers(inks: dict[str, str]) -> Table[record.BufferPair]:
    def both(tell: Callable[[record.BufferSide], str]) -> Callable[[record.BufferPair], str]:
        return lambda pair: change(*(tell(side) if side is not None else "–" for side in (pair.a, pair.b)))

    def chunks(side: record.BufferSide) -> str:
        return ", ".join(map(size, side.chunks)) if len(side.chunks) > 1 else str(len(side.chunks))

    def grown(pair: record.BufferPair) -> str:
        return growth((pair.b.size if pair.b is not None else 0) - (pair.a.size if pair.a is not None else 0))

    return Table(
        Column("backend", lambda p: Cell(p.backend, inks.get(p.backend, ""))),
        Column("A", lambda p: "–" if p.a is None else size(p.a.size), right=True),
        Column("B", lambda p: "–" if p.b is None else size(p.b.size), right=True),
        Column("difference", grown, right=True),
        Column("peak", both(lambda side: size(side.peak) if side.peak is not None else "–"), right=True, drop=2),
        Column("while computing", both(lambda side: side.at or "–"), cut=True, drop=3),
        Column("chunks", both(chunks), cut=True, drop=1, numbers=True),
    )


def sizes_section(diff: PlanDiff, style: Style) -> str:
    """The tensors that are larger in B, then those that are smaller, each with the greatest difference first."""
    grown = sorted((pair for pair in diff.sizes if pair.growth > 0), key=lambda pair: -pair.growth)
    shrunk = sorted((pair for pair in diff.sizes if pair.growth < 0), key=lambda pair: pair.growth)
    others = len(diff.sizes) - len(grown) - len(shrunk)
    facts = [f"{len(some)} {word}" for some, word in ((grown, "larger in B"), (shrunk, "smaller in B")) if some]
    facts += [f"{others} of another shape or type with the same size, or views"] if others else []
    out = [heading("tensors", facts, style)]
    for some in (grown, shrunk):
        if some:
            out += [_SIZES.render(some[:MAX_ROWS], style)]
            rest = some[MAX_ROWS:]
            if rest:
                together = growth(sum(pair.growth for pair in rest))
                out.append(render_lines([f"  and {count(len(rest), 'tensor')} more, together {together}"], style))
    return "".join(out)


def contexts_section(diff: PlanDiff, style: Style) -> str:
    """Bytes per buffer type and usage, then the tensors that lie elsewhere, by where from and where to."""
    out = heading("contexts", ["contexts: weights and other pre-allocated tensors"], style)
    out += _HELD.render(diff.contexts, style) if diff.contexts else ""
    groups: dict[str, list[record.HeldMove]] = {}
    for move in diff.context_tensors:
        groups.setdefault(_move(move), []).append(move)
    moves = sorted(groups.items(), key=lambda group: -len(group[1]))
    return out + ("\n" + _MOVES.render(moves, style) if moves else "")


def _move(move: record.HeldMove) -> str:
    a, b = move.a, move.b
    if a is None or b is None:
        return "only in B" if a is None else "only in A"
    if a.buft != b.buft:
        return f"{a.buft} → {b.buft}"
    return "of another size" if a.nbytes != b.nbytes else f"usage {a.usage} → {b.usage}"


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


def _split_table(inks: dict[str, str]) -> Table[record.SplitPair]:
    def there(pair: record.SplitPair) -> record.SplitSide:
        side = pair.b or pair.a
        if side is None:
            raise ValueError("a split of neither plan")
        return side

    def both(tell: Callable[[record.SplitSide], str]) -> Callable[[record.SplitPair], str]:
        return lambda p: tell(there(p)) if p.a is None or p.b is None else change(tell(p.a), tell(p.b))

    def copied(side: record.SplitSide) -> str:
        return size_between(side.copied.nbytes, side.copied.most) if side.copied.tensors else "–"

    backend = both(lambda s: s.backend)
    return Table(
        Column("", lambda p: mark(p.a, p.b)),
        Column("A", lambda p: f"#{p.a.id}" if p.a is not None else None, right=True),
        Column("B", lambda p: f"#{p.b.id}" if p.b is not None else None, right=True),
        Column("backend", lambda p: Cell(backend(p), inks.get(there(p).backend, ""))),
        Column("nodes", both(lambda s: str(s.n_nodes)), right=True),
        Column(
            "copied",
            both(copied),
            right=True,
            drop=1,
        ),
        Column("from node", lambda p: f"{there(p).index} {there(p).first}", cut=True),
        Column("reason", lambda p: there(p).reason, cut=True),
    )


def copies_section(diff: PlanDiff, style: Style) -> str:
    """What is copied between which backends, then the tensors that are not copied alike."""
    inks = inks_of(diff)
    table = Table[record.CopiesPair](
        Column("from", lambda c: Cell(c.src, inks.get(c.src, ""))),
        Column("to", lambda c: Cell(c.dst, inks.get(c.dst, ""))),
        Column("tensors", lambda c: change(str(c.a.tensors), str(c.b.tensors)), right=True),
        Column("A", lambda c: amounts(c.a, c.b)[0], right=True),
        Column("B", lambda c: amounts(c.a, c.b)[1], right=True),
        Column("difference", lambda c: amounts(c.a, c.b)[2], right=True),
    )
    out = heading("copies", [], style) + table.render(diff.copies, style)
    shown, rest = diff.copied[:MAX_ROWS], diff.copied[MAX_ROWS:]
    if shown:
        out += "\n" + _copied_table(inks).render(shown, style)
    return out + (render_lines([f"  and {count(len(rest), 'tensor')} more"], style) if rest else "")


def _copied_table(inks: dict[str, str]) -> Table[record.CopyPair]:
    def nbytes(amount: record.Amount | None) -> str:
        return "–" if amount is None else size_between(amount.nbytes, amount.most)

    return Table(
        Column("", lambda p: mark(p.a, p.b)),
        Column("A", lambda p: nbytes(p.a), right=True),
        Column("B", lambda p: nbytes(p.b), right=True),
        Column("tensor", lambda p: change(p.id or p.id_b or "", p.id_b or p.id or ""), cut=True),
        Column("what", lambda p: Cell(p.what, "dim"), drop=1),
        Column("from", lambda p: Cell(p.src, inks.get(p.src, ""))),
        Column("to", lambda p: Cell(p.dst, inks.get(p.dst, ""))),
    )
