"""The compute buffers, sizes and contexts of two plans side by side."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.inspect.diff.plans import BufferPair, BufferSide, HeldMove, HeldPair, PlanDiff, ShapePair
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, shortened, size
from ggmltool.views.diff.cells import MAX_ROWS, bytes_columns, change, growth, inks_of, wrapped_lines


def _nbytes(pair: ShapePair) -> tuple[int, int]:
    return pair.a.nbytes or 0, pair.b.nbytes or 0


_SIZES = Table[ShapePair](
    *bytes_columns(_nbytes),
    Column("tensor", lambda p: change(p.id, p.id_b), cut=True),
    Column("op", lambda p: Cell("leaf" if p.op == "NONE" else p.op, "dim"), drop=1),
    Column("shape", lambda p: change(p.a.shape, p.b.shape), drop=2),
)
_HELD = Table[HeldPair](
    Column("buffer type", lambda p: p.buft, cut=True),
    Column("usage", lambda p: p.usage, drop=1),
    *bytes_columns(lambda p: (p.a, p.b)),
)
_MOVES = Table[tuple[str, list[HeldMove]]](
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


def _buffers(inks: dict[str, str]) -> Table[BufferPair]:
    def both(tell: Callable[[BufferSide], str]) -> Callable[[BufferPair], str]:
        return lambda pair: change(*(tell(side) if side is not None else "–" for side in (pair.a, pair.b)))

    def chunks(side: BufferSide) -> str:
        return ", ".join(map(size, side.chunks)) if len(side.chunks) > 1 else str(len(side.chunks))

    def grown(pair: BufferPair) -> str:
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
    grown = sorted((pair for pair in diff.shapes if pair.growth > 0), key=lambda pair: -pair.growth)
    shrunk = sorted((pair for pair in diff.shapes if pair.growth < 0), key=lambda pair: pair.growth)
    others = len(diff.shapes) - len(grown) - len(shrunk)
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
    out += _HELD.render(diff.held, style) if diff.held else ""
    groups: dict[str, list[HeldMove]] = {}
    for move in diff.held_moves:
        groups.setdefault(_move(move), []).append(move)
    moves = sorted(groups.items(), key=lambda group: -len(group[1]))
    return out + ("\n" + _MOVES.render(moves, style) if moves else "")


def _move(move: HeldMove) -> str:
    a, b = move.a, move.b
    if a is None or b is None:
        return "only in B" if a is None else "only in A"
    if a.buft != b.buft:
        return f"{a.buft} → {b.buft}"
    return "of another size" if a.nbytes != b.nbytes else f"usage {a.usage} → {b.usage}"
