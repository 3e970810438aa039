"""The compute buffers, sizes and contexts of two plans side by side."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.inspect.diff.plans import BufferPair, BufferSide, HeldMove, PlanDiff, ShapePair
from ggmltool.views.diff.cells import MAX_ROWS, bytes_of, change, growth, inks_of, wrapped_lines
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, shortened, size

_BUFFERS = (
    Head("backend"),
    Head("A", right=True),
    Head("B", right=True),
    Head("difference", right=True),
    Head("peak", right=True, drop=2),
    Head("while computing", cut=True, drop=3),
    Head("chunks", cut=True, drop=1, numbers=True),
)
_SIZES = (
    Head("A", right=True),
    Head("B", right=True),
    Head("difference", right=True),
    Head("tensor", cut=True),
    Head("op", drop=1),
    Head("shape", drop=2),
)
_HELD = (
    Head("buffer type", cut=True),
    Head("usage", drop=1),
    Head("A", right=True),
    Head("B", right=True),
    Head("difference", right=True),
)
_MOVES = (Head("bytes", right=True), Head("tensors", right=True), Head("what"), Head("which", cut=True))


def buffers_section(diff: PlanDiff, style: Style) -> str:
    """A row per buffer, then what lies in it in another way."""
    inks = inks_of(diff)
    rows = [_buffer_row(pair, inks) for pair in diff.buffers]
    notes = []
    for words, ids in (
        ("in place in A, with memory of their own in B", [pair.id for pair in diff.reuse if pair.b is None]),
        ("in place in B, with memory of their own in A", [pair.id for pair in diff.reuse if pair.a is None]),
        ("in place of another source", [pair.id for pair in diff.reuse if pair.a is not None and pair.b is not None]),
    ):
        if ids:
            notes.append(f"{words}: {shortened(ids, 5)}")
    if diff.elsewhere:
        notes.append(f"{count(diff.elsewhere, 'tensor')} at another place in memory")
    table = heading("compute buffers", [], style) + render_table(_BUFFERS, rows, style)
    return table + wrapped_lines([("", "", note) for note in notes], style)


def _buffer_row(pair: BufferPair, inks: dict[str, str]) -> Row:
    a, b = pair.a, pair.b
    sizes = [size(side.size) if side is not None else "–" for side in (a, b)]

    def both(tell: Callable[[BufferSide], str]) -> str:
        return change(*(tell(side) if side is not None else "–" for side in (a, b)))

    return [
        Cell(pair.backend, inks.get(pair.backend, "")),
        *sizes,
        growth((b.size if b is not None else 0) - (a.size if a is not None else 0)),
        both(lambda side: size(side.peak) if side.peak is not None else "–"),
        both(lambda side: side.at or "–"),
        both(lambda side: ", ".join(map(size, side.chunks)) if len(side.chunks) > 1 else str(len(side.chunks))),
    ]


def sizes_section(diff: PlanDiff, style: Style) -> str:
    """The tensors that are larger in B, then those that are smaller, each with the greatest difference first."""
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
                together = growth(sum(pair.growth for pair in rest))
                out.append(render_lines([f"  and {count(len(rest), 'tensor')} more, together {together}"], style))
    return "".join(out)


def _shape_row(pair: ShapePair) -> Row:
    return [
        *bytes_of(pair.a.nbytes or 0, pair.b.nbytes or 0),
        change(pair.id, pair.id_b),
        Cell("leaf" if pair.op == "NONE" else pair.op, "dim"),
        change(pair.a.shape, pair.b.shape),
    ]


def contexts_section(diff: PlanDiff, style: Style) -> str:
    """Bytes per buffer type and usage, then the tensors that lie elsewhere, by where from and where to."""
    rows: list[Row] = [[pair.buft, pair.usage, *bytes_of(pair.a, pair.b)] for pair in diff.held]
    out = heading("contexts", ["weights and all else that has memory before the graph"], style)
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
