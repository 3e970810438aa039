"""Two plans side by side: where they part first, then nodes, splits, copies and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from textwrap import wrap

from ggmltool.views.diff_side import Titles
from ggmltool.views.errors import ggml_error
from ggmltool.views.palette import colors
from ggmltool.views.plan_diff import (
    PARTS,
    BufferPair,
    BufferSide,
    Divergence,
    HeldMove,
    NodePair,
    Place,
    PlanDiff,
    ShapePair,
)
from ggmltool.views.split_diff import Amount, CopiedPair, SplitPair, SplitSide
from ggmltool.views.splits import plan_step
from ggmltool.views.table import Cell, Column, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, printable, shortened, size, size_between

MAX_ROWS = 10
"""Rows of a list before the others are counted."""

_FEW = 3

A, B = "red", "green"
"""What is only in A or only in B."""

_SUMMARY = (Column(""), Column("A", right=True), Column("B", right=True), Column("difference", right=True))
_NODES = (Column("count", right=True), Column("what", cut=True), Column("which", cut=True))
_SPLITS = (
    Column(""),
    Column("A", right=True),
    Column("B", right=True),
    Column("backend"),
    Column("nodes", right=True),
    Column("copied", right=True),
    Column("from node", cut=True),
    Column("why it begins", cut=True, drop=5),
)
_COPIES = (
    Column("from"),
    Column("to"),
    Column("tensors", right=True),
    Column("A", right=True),
    Column("B", right=True),
    Column("difference", right=True),
)
_COPIED = (
    Column(""),
    Column("A", right=True),
    Column("B", right=True),
    Column("tensor", cut=True),
    Column("what", drop=1),
    Column("from"),
    Column("to"),
)
_BUFFERS = (
    Column("backend"),
    Column("A", right=True),
    Column("B", right=True),
    Column("difference", right=True),
    Column("peak", right=True, drop=2),
    Column("while computing", cut=True, drop=3),
    Column("chunks", cut=True, drop=1, numbers=True),
)
_SIZES = (
    Column("A", right=True),
    Column("B", right=True),
    Column("difference", right=True),
    Column("tensor", cut=True),
    Column("op", drop=1),
    Column("shape", drop=2),
)
_HELD = (
    Column("buffer type", cut=True),
    Column("usage", drop=1),
    Column("A", right=True),
    Column("B", right=True),
    Column("difference", right=True),
)
_MOVES = (Column("bytes", right=True), Column("tensors", right=True), Column("what"), Column("which", cut=True))


def diff_view(diff: PlanDiff, titles: Titles, parts: Collection[str], style: Style) -> str:
    """All that differs in the `parts`; one line where nothing does."""
    found = [part for part in PARTS if part in parts and diff.differs(part)]
    if not found:
        return _nothing(diff, titles, parts, style)
    out = [_head(diff, titles, style)]
    for plan in (diff.a.plan, diff.b.plan):
        if plan.error is not None:
            out += ["\n", ggml_error(dict(plan.error)), "\n"]
    out += ["\n", render_table(_SUMMARY, list(_summary(diff)), style)]
    shown = [d for d in diff.divergences if _part_of(d) in parts]
    for i, divergence in enumerate(shown):
        out += ["\n", _divergence(divergence, "first divergence" if i == 0 else "then", style)]
    for part in found:
        if PARTS[part](diff):
            out += ["\n", _SECTIONS[part](diff, style)]
    return "".join(out)


def diff_line(diff: PlanDiff, titles: Titles, parts: Collection[str], style: Style) -> str:
    """--brief: which parts differ, in one line."""
    found = [part for part in PARTS if part in parts and diff.differs(part)]
    names = f"{titles.a} and {titles.b}"
    return render_lines(
        [printable(f"{names} differ in {', '.join(found)}" if found else f"{names} do not differ")], style
    )


def _part_of(divergence: Divergence) -> str:
    return "splits" if divergence.kind == "split" else "nodes"


def _nothing(diff: PlanDiff, titles: Titles, parts: Collection[str], style: Style) -> str:
    plan = diff.a.plan
    facts = ["no difference", plan_step(plan), count(len(plan.nodes), "node"), count(len(plan.splits), "split")]
    if len(set(parts)) < len(PARTS):
        facts[0] += f" in {', '.join(part for part in PARTS if part in parts)}"
    if diff.has_log:
        facts.append("as far as a log can tell")
    title = titles.a if titles.a == titles.b else f"{titles.a} and {titles.b}"
    return heading(title, facts, style)


def _head(diff: PlanDiff, titles: Titles, style: Style) -> str:
    from rich.text import Text

    lines = []
    for label, title, side, ink in (("A", titles.a, diff.a, A), ("B", titles.b, diff.b, B)):
        refused = ", which ggml refuses" if side.plan.error is not None else ""
        facts = f"{plan_step(side.plan)}{refused}"
        lines.append(Text.assemble((label, ink), "  ", (printable(title), "bold"), (" · ", "dim"), facts))
    if diff.has_log:
        lines.append(Text("views, shapes and memory apart, which a log does not have", "dim"))
    return render_lines(lines, style)


def _summary(diff: PlanDiff) -> Iterator[Row]:
    a, b = diff.a.plan, diff.b.plan
    yield _counts("nodes", len(a.nodes), len(b.nodes))
    yield _counts("splits", len(a.splits), len(b.splits))
    copied = [sum(amounts, Amount(0, 0, 0)) for amounts in ((c.a for c in diff.copies), (c.b for c in diff.copies))]
    inputs = copied[0].n, copied[1].n
    yield _counts("inputs copied", *inputs)
    if diff.buffers and (len(a.copies), len(b.copies)) != inputs:
        yield _counts("copies in memory", len(a.copies), len(b.copies))
    yield ["bytes copied", *_amounts(*copied)]
    if diff.buffers:
        yield ["compute buffers", *_bytes(sum(dict(a.buffer_sizes).values()), sum(dict(b.buffer_sizes).values()))]
    if diff.held:
        yield ["contexts", *_bytes(sum(pair.a for pair in diff.held), sum(pair.b for pair in diff.held))]


def _counts(what: str, a: int, b: int) -> Row:
    return [what, str(a), str(b), f"{b - a:+}" if a != b else ""]


def _bytes(a: int, b: int) -> list[str]:
    return [size(a), size(b), _growth(b - a)]


def _growth(nbytes: int) -> str:
    return "" if nbytes == 0 else f"{'+' if nbytes > 0 else '-'}{size(abs(nbytes))}"


def _amounts(a: Amount, b: Amount) -> list[str]:
    """The bytes of both, and their difference as far as it is known."""
    least, most = b.low - a.high, b.high - a.low
    difference = ""
    if least > 0 or most < 0:
        difference = f"+{size_between(least, most)}" if least > 0 else f"-{size_between(-most, -least)}"
    return [size_between(a.low, a.high), size_between(b.low, b.high), difference]


def _change(a: str, b: str) -> str:
    return a if a == b else f"{a} → {b}"


def _lines(lines: Iterable[tuple[str, str, str]], style: Style) -> str:
    """Lines that are wrapped: each a label in a colour, and what stands beside it."""
    from rich.text import Text

    out: list[Text] = []
    for label, ink, text in lines:
        indent = len(label) + 4 if label else 2
        parts = wrap(printable(text), max(style.width - indent, 20), break_long_words=False, break_on_hyphens=False)
        lead = Text.assemble("  ", (label, ink), "  ") if label else Text("  ")
        out.append(lead + Text(parts[0]))
        out += (Text(" " * indent + part) for part in parts[1:])
    return render_lines(out, style)


def _divergence(divergence: Divergence, lead: str, style: Style) -> str:
    """The first node that differs in one way, and what it is in A and in B."""
    sides = (("A", A, divergence.a), ("B", B, divergence.b))
    if divergence.kind == "order":
        head = f"{lead}: the order, from node {divergence.at} on"
        lines = [(label, ink, _name(p) if p is not None else "there is no more node") for label, ink, p in sides]
    else:
        what = "the backend of" if divergence.kind == "backend" else "a split that begins with"
        head = f"{lead}: {what} {_name(divergence.b or divergence.a)}"
        lines = [(label, ink, _decision(p)) for label, ink, p in sides if p is not None]
    return heading(head, [], style) + _lines(lines, style)


def _name(place: Place | None) -> str:
    return "" if place is None else f"node {place.index}, {place.id} ({place.op})"


def _decision(place: Place) -> str:
    """The backend of a node and why, and the split it is in or begins."""
    why = ": ".join(part for part in (place.cause, place.reason) if part)
    backend = f"{place.backend or 'no backend'}{f' ({why})' if why else ''}"
    if place.start is None:
        return f"{backend}; in split #{place.split}"
    return f"{backend}; begins split #{place.split}{': ' if place.start else ''}{place.start}"


def _nodes(diff: PlanDiff, style: Style) -> str:
    inks = _inks(diff)
    rows: list[Row] = []
    for what, ink, places in (("only in A", A, diff.gone), ("only in B", B, diff.added)):
        if places:
            rows.append([str(len(places)), Cell(what, ink), _which(places)])
    for (src, dst), pairs in _grouped(diff.moved, lambda p: p.backend or "none"):
        rows.append([str(len(pairs)), Cell(f"{src} → {dst}", inks.get(dst, "")), _which([pair.b for pair in pairs])])
    if diff.reordered:
        which = [f"{pair.b.id} #{pair.a.index} → #{pair.b.index}" for pair in diff.reordered]
        rows.append([str(len(diff.reordered)), "at another place", shortened(which, 3)])
    for (mine, theirs), pairs in _grouped(diff.recaused, lambda p: p.cause or ""):
        rows.append([str(len(pairs)), f"cause {mine} → {theirs}", _which([pair.b for pair in pairs])])
    return render_lines(["nodes"], style) + render_table(_NODES, rows, style)


def _grouped(pairs: Iterable[NodePair], key: Callable[[Place], str]) -> list[tuple[tuple[str, str], list[NodePair]]]:
    """By what A and B have, most pairs first."""
    groups: dict[tuple[str, str], list[NodePair]] = {}
    for pair in pairs:
        groups.setdefault((key(pair.a), key(pair.b)), []).append(pair)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _which(places: Sequence[Place]) -> str:
    """A few by name, many by their ops."""
    if len(places) <= _FEW:
        return ", ".join(f"{place.id} ({place.op})" for place in places)
    ops = Counter(place.op for place in places)
    return f"first {places[0].id}; {shortened([f'{n} {op}' for op, n in ops.most_common()], 3)}"


def _inks(diff: PlanDiff) -> dict[str, str]:
    names = [name for side in (diff.a, diff.b) for name, _ in side.plan.backends]
    return {name: color.term for name, color in colors(names).items()}


def _splits(diff: PlanDiff, style: Style) -> str:
    inks = _inks(diff)
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
    return render_lines(["splits"], style) + render_table(_SPLITS, _some(rows, len(_SPLITS)), style)


def _split_row(pair: SplitPair, inks: dict[str, str]) -> Row:
    a, b = pair.a, pair.b
    there = b or a
    if there is None:
        return []

    def change(tell: Callable[[SplitSide], str]) -> str:
        return tell(there) if a is None or b is None else _change(tell(a), tell(b))

    return [
        _mark(a, b),
        f"#{a.id}" if a is not None else "",
        f"#{b.id}" if b is not None else "",
        Cell(change(lambda s: s.backend), inks.get(there.backend, "")),
        change(lambda s: str(s.n_nodes)),
        change(lambda s: size_between(s.copied.low, s.copied.high) if s.copied.n else "–"),
        f"{there.index} {there.first}",
        there.reason,
    ]


def _some(rows: list[Row], n_columns: int) -> list[Row]:
    """The rows, without the middle ones of very many."""
    if len(rows) <= MAX_ROWS + 1:
        return rows
    first = MAX_ROWS - MAX_ROWS // 3
    left_out = len(rows) - MAX_ROWS
    gap: Row = ["", Cell("⋮", "dim"), Cell("⋮", "dim"), Cell(f"{left_out} rows", "dim"), *[""] * (n_columns - 4)]
    return [*rows[:first], gap, *rows[first + left_out :]]


def _copies(diff: PlanDiff, style: Style) -> str:
    inks = _inks(diff)
    rows: list[Row] = [
        [
            Cell(c.src, inks.get(c.src, "")),
            Cell(c.dst, inks.get(c.dst, "")),
            _change(str(c.a.n), str(c.b.n)),
            *_amounts(c.a, c.b),
        ]
        for c in diff.copies
    ]
    out = render_lines(["copies"], style) + render_table(_COPIES, rows, style)
    shown, rest = diff.inputs[:MAX_ROWS], diff.inputs[MAX_ROWS:]
    if shown:
        out += "\n" + render_table(_COPIED, [_copied_row(pair, inks) for pair in shown], style)
    return out + (render_lines([f"  and {count(len(rest), 'tensor')} more"], style) if rest else "")


def _copied_row(pair: CopiedPair, inks: dict[str, str]) -> Row:
    return [
        _mark(pair.a, pair.b),
        *("–" if amount is None else size_between(amount.low, amount.high) for amount in (pair.a, pair.b)),
        _change(pair.id or pair.id_b or "", pair.id_b or pair.id or ""),
        Cell(pair.what, "dim"),
        Cell(pair.src, inks.get(pair.src, "")),
        Cell(pair.dst, inks.get(pair.dst, "")),
    ]


def _mark(a: object, b: object) -> Cell:
    """`-` for what only A has, `+` for what only B has, `~` for what both have."""
    return Cell("-", A) if b is None else Cell("+", B) if a is None else Cell("~")


def _buffers(diff: PlanDiff, style: Style) -> str:
    inks = _inks(diff)
    rows = [_buffer_row(pair, inks) for pair in diff.buffers]
    notes = []
    apart = [pair.id for pair in diff.reuse if pair.b is None]
    if apart:
        notes.append(f"in place in A, with memory of their own in B: {shortened(apart, 5)}")
    joined = [pair.id for pair in diff.reuse if pair.a is None]
    if joined:
        notes.append(f"in place in B, with memory of their own in A: {shortened(joined, 5)}")
    if diff.elsewhere:
        notes.append(f"{count(diff.elsewhere, 'tensor')} at another place in memory")
    table = render_lines(["compute buffers"], style) + render_table(_BUFFERS, rows, style)
    return table + _lines([("", "", note) for note in notes], style)


def _buffer_row(pair: BufferPair, inks: dict[str, str]) -> Row:
    a, b = pair.a, pair.b
    sizes = [size(side.size) if side is not None else "–" for side in (a, b)]

    def change(tell: Callable[[BufferSide], str]) -> str:
        return _change(*(tell(side) if side is not None else "–" for side in (a, b)))

    return [
        Cell(pair.backend, inks.get(pair.backend, "")),
        *sizes,
        _growth((b.size if b is not None else 0) - (a.size if a is not None else 0)),
        change(lambda side: size(side.peak) if side.peak is not None else "–"),
        change(lambda side: side.at or "–"),
        change(lambda side: " + ".join(map(size, side.chunks)) if len(side.chunks) > 1 else str(len(side.chunks))),
    ]


def _sizes(diff: PlanDiff, style: Style) -> str:
    grown = sorted((pair for pair in diff.shapes if pair.growth > 0), key=lambda pair: -pair.growth)
    shrunk = sorted((pair for pair in diff.shapes if pair.growth < 0), key=lambda pair: pair.growth)
    others = len(diff.shapes) - len(grown) - len(shrunk)
    facts = [f"{len(some)} {word}" for some, word in ((grown, "larger in B"), (shrunk, "smaller in B")) if some]
    facts += [f"{others} of another shape or type with as many bytes, or views"] if others else []
    out = [heading("tensors", facts, style)]
    for some in (grown, shrunk):
        if some:
            rows: list[Row] = [_shape_row(pair) for pair in some[:MAX_ROWS]]
            out += [render_table(_SIZES, rows, style)]
            rest = some[MAX_ROWS:]
            if rest:
                growth = _growth(sum(pair.growth for pair in rest))
                out.append(render_lines([f"  and {count(len(rest), 'tensor')} more, together {growth}"], style))
    return "".join(out)


def _shape_row(pair: ShapePair) -> Row:
    return [
        *_bytes(pair.a.nbytes or 0, pair.b.nbytes or 0),
        _change(pair.id, pair.id_b),
        Cell("leaf" if pair.op == "NONE" else pair.op, "dim"),
        _change(pair.a.shape, pair.b.shape),
    ]


def _contexts(diff: PlanDiff, style: Style) -> str:
    rows: list[Row] = [[pair.buft, pair.usage, *_bytes(pair.a, pair.b)] for pair in diff.held]
    out = render_lines(["contexts: weights and all else that has memory before the graph"], style)
    out += render_table(_HELD, rows, style) if rows else ""
    groups: dict[str, list[HeldMove]] = {}
    for move in diff.held_moves:
        groups.setdefault(_move(move), []).append(move)
    moves: list[Row] = []
    for what, some in sorted(groups.items(), key=lambda group: -len(group[1])):
        nbytes = sum(there.nbytes for m in some if (there := m.b or m.a) is not None)
        moves.append([size(nbytes), str(len(some)), what, shortened([m.id for m in some], 3)])
    return out + ("\n" + render_table(_MOVES, moves, style) if moves else "")


def _move(move: HeldMove) -> str:
    a, b = move.a, move.b
    if a is None or b is None:
        return "only in B" if a is None else "only in A"
    if a.buft != b.buft:
        return f"{a.buft} → {b.buft}"
    return "of another size" if a.nbytes != b.nbytes else f"usage {a.usage} → {b.usage}"


_SECTIONS: dict[str, Callable[[PlanDiff, Style], str]] = {
    "nodes": _nodes,
    "splits": _splits,
    "copies": _copies,
    "buffers": _buffers,
    "sizes": _sizes,
    "contexts": _contexts,
}
