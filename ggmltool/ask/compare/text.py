"""A graph computed by two sides: the first node whose own kernel is off, and where values part end to end."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, shortened, size

if TYPE_CHECKING:
    from rich.text import Text

    from ggmltool.ask.answer import Answer
    from ggmltool.ask.compare.record import ComparedGraph, ComparedNode

_NAMES_SHOWN = 4


def comparison(answer: Answer[ComparedGraph], style: Style) -> str:
    """The first bad node with what speaks for it, then the worst nodes in a table."""
    c = answer.facts
    facts = [
        f"graph {c.graph}",
        " and ".join(_sides(c)),
        f"{len(c.nodes)} of {count(c.n_nodes, 'node')} compared",
    ]
    top = heading(answer.title, [*facts, f"{size(c.nbytes)} each"], style)
    text = top + "\n" + render_lines(_verdict(c), style)
    rows = _worst(c, c.worst)
    if rows:
        text += "\n" + _table(c.whole).render(rows, style)
        left = sum(_differs(n) for n in c.nodes) - len(rows)
        if left > 0:
            text += render_lines([f"  {count(left, 'more node')} with a difference; --worst {len(rows) + left}"], style)
    notes: list[str] = []
    for note in _notes(c):
        notes += textwrap.wrap(note, style.width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return text + ("\n" + render_lines(notes, style) if notes else "")


def _sides(c: ComparedGraph) -> tuple[str, str]:
    one, other = c.backends
    return one.name, other.name


def _verdict(c: ComparedGraph) -> list[str | Text]:
    if c.over:
        return _bad(c, c.over)
    if not c.nodes:
        return [
            "  no node computes anything: there is nothing to compare" if not c.recorded else "  nothing to compare"
        ]
    if not any(map(_differs, c.nodes)):
        return [f"  {count(len(c.nodes), 'node')}, equal values on both"]
    worst = max(c.nodes, key=lambda n: n.nmse)
    if c.recorded == "log":
        return ["  no node is off by more than its inputs explain, as far as the log shows", *_end_to_end(c)]
    if c.whole:
        return [f"  all agree; the largest NMSE is {_number(worst.nmse)}, of {printable(worst.id)}"]
    alone = f"the largest NMSE is {_number(worst.nmse)}, of {printable(worst.id)}" if worst.nmse else "equal"
    return [f"  every node agrees from the same inputs: {alone}", *_end_to_end(c)]


def _bad(c: ComparedGraph, over: Sequence[ComparedNode]) -> list[str | Text]:
    from rich.text import Text

    first = over[0]
    name = f"{printable(first.id)}, node {first.index}, {first.op} {first.type}{dims(first.ne)}"
    what = "first node that is off" if c.whole else "first node whose own kernel is off"
    by = f", by {printable(first.ran_on)}" if first.ran_on else ""
    lines: list[str | Text] = [Text.assemble(f"  {what}: ", (name, "bold red"), by)]
    if first.misplaced:
        lines.append(
            f"    {count(first.misplaced, 'element')} finite on one side only, or not finite in different ways"
        )
    else:
        how = "beyond what its inputs explain: " if c.recorded == "log" else "from the same inputs: "
        lines.append(f"    {'' if c.whole else how}{_error(first)}")
    if first.at is not None and first.values is not None:
        inks = colors(_sides(c))
        one, other = (
            Text.assemble(f"{_number(v)} on ", (printable(name), inks[name].term))
            for v, name in zip(first.values, _sides(c), strict=True)
        )
        where = ", ".join(map(str, first.at))
        lines.append(Text.assemble(f"    at [{where}]: ", one, ", ", other))
    if first.through:
        lines.append(
            f"    or one of {shortened(first.through, _NAMES_SHOWN)} before it, whose values are not in the log"
        )
    if len(over) > 1:
        others = shortened([n.id for n in over[1:]], _NAMES_SHOWN)
        lines.append(f"    {count(len(over) - 1, 'more node')} off{'' if c.whole else ' by themselves'}: {others}")
    return [*lines, *([] if c.whole else [f"  {line}" for line in _end_to_end(c)])]


def _end_to_end(c: ComparedGraph) -> list[str]:
    """How far the sides part where each goes on with its own values."""
    differing = [n for n in c.nodes if n.end_to_end.misplaced or n.end_to_end.nmse]
    if not differing:
        return []
    worst = max(differing, key=lambda n: (n.end_to_end.misplaced > 0, n.end_to_end.nmse))
    if worst.end_to_end.misplaced:
        return [f"  end to end {printable(worst.id)} is not finite on one side only"]
    return [f"  end to end the largest NMSE is {_number(worst.end_to_end.nmse)}, of {printable(worst.id)}"]


def _error(n: ComparedNode) -> str:
    if n.type in ("i8", "i16", "i32", "i64"):
        return f"integers differ, by {_number(n.largest_error)} at most; they must be equal"
    allowed = f"{_number(n.tolerance)} is allowed"
    return f"NMSE {_number(n.nmse)}, {allowed}; largest error {_number(n.largest_error)}"


def _differs(n: ComparedNode) -> bool:
    return not n.ok or bool(n.nmse or n.end_to_end.nmse or n.end_to_end.misplaced)


def _worst(c: ComparedGraph, limit: int) -> list[ComparedNode]:
    """The nodes with a difference: those over the tolerance in the graph's order, then the others, worst first."""
    fine = [n for n in c.nodes if n.ok and _differs(n)]
    fine.sort(key=lambda n: (-n.nmse / n.tolerance if n.tolerance else 0.0, -n.end_to_end.nmse))
    return [*c.over, *fine][:limit]


def _table(whole: bool) -> Table[ComparedNode]:
    """The nodes' own errors, and unless the graph was computed as a whole those from end to end."""

    def not_finite(n: ComparedNode) -> str:
        return "{}, {}".format(*n.end_to_end.not_finite) if any(n.end_to_end.not_finite) else ""

    def verdict(n: ComparedNode) -> Cell:
        if not n.ok:
            return Cell("off" if whole else "its kernel is off", "bold red")
        return Cell("" if whole or not n.drifts else "inputs differ", "red" if n.drifts else "")

    columns: list[Column[ComparedNode]] = [
        Column("node", lambda n: n.index, right=True, drop=3),
        Column("name", lambda n: n.id, cut=True),
        Column("op", lambda n: n.op, cut=True, drop=2),
        Column("result", lambda n: f"{n.type}{dims(n.ne)}", drop=4),
        Column("NMSE", lambda n: Cell(_number(n.nmse), "" if n.ok else "bold red"), right=True),
        Column("allowed", lambda n: _number(n.tolerance), right=True),
        Column("largest error", lambda n: _number(n.largest_error), right=True, drop=1),
        Column("end to end", lambda n: _number(n.end_to_end.nmse), right=True, drop=1),
        Column("not finite", not_finite, right=True, drop=5),
        Column("", verdict),
    ]
    return Table(*(c for c in columns if not whole or c.header != "end to end"))


def _notes(c: ComparedGraph) -> list[str]:
    out = []
    for id, op in c.injected.items():
        out.append(f"{printable(id)} was computed by the kernel of {op} on {_sides(c)[1]}")
    for side in dict.fromkeys(_sides(c)):
        without = [f"{n.id} ({n.op})" for n in c.nodes if side in n.not_run_by]
        if without:
            what = count(len(without), "node")
            out.append(f"{side} does not support {what}; computed anyway: {shortened(without, _NAMES_SHOWN)}")
    both = [n.id for n in c.nodes if n.not_finite[0] and n.not_finite[1] and not n.misplaced]
    if both:
        out.append(f"the same NaN or infinities on both sides: {shortened(both, _NAMES_SHOWN)}")
    if c.made_up:
        out.append(f"no data, random values: {shortened(c.made_up, _NAMES_SHOWN)}")
    if c.zero:
        out.append(f"no data, zero: {shortened(c.zero, _NAMES_SHOWN)}")
    return [*out, *(_recorded_notes(c) if c.recorded else _engine_notes(c))]


def _engine_notes(c: ComparedGraph) -> list[str]:
    one, other = c.backends
    if one.engine != other.engine:
        return [" and ".join(f"{side.name} is computed by {side.engine}" for side in c.backends)]
    if c.injected:
        return []
    same = f"both are computed by {one.engine}, with the same kernels, so nothing can differ: --with library compares"
    own = "--values and --eval-log with what your own backend computed, --inject tries a wrong kernel"
    return [f"{same} with the real ggml, {own}"]


def _recorded_notes(c: ComparedGraph) -> list[str]:
    out = []
    if c.untold:
        out.append(f"{count(len(c.untold), 'node')} without values there: {shortened(c.untold, _NAMES_SHOWN)}")
    if c.unknown:
        there = count(len(c.unknown), "node" if c.recorded == "log" else "name")
        out.append(f"{there} there that the graph does not have: {shortened(c.unknown, _NAMES_SHOWN)}")
    return out


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return f"{value:.3g}"
