"""A graph computed on two backends: where their values part."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Column, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, dims, printable, shortened, size

if TYPE_CHECKING:
    from rich.text import Text

_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ComparedNode:
    """A node that was computed on both backends, and how the values differ.

    `nmse` is the squared error by the first one's squares, `largest` the largest absolute error, `at` where (None
    where all are equal), `values` the two there. `not_finite` counts NaN and infinities of each, `misplaced` those
    without a like on the other side. `begins`: it is over its tolerance though its sources, all compared, are not.
    `not_run_by` are the backends that do not run the op.
    """

    index: int
    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[str, ...]
    nmse: float
    largest: float
    at: tuple[int, ...] | None
    values: tuple[float, float]
    not_finite: tuple[int, int]
    misplaced: int
    tolerance: float
    ok: bool
    begins: bool
    not_run_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparedGraph:
    """All nodes that were compared, in the graph's order. `n_nodes` counts views too, `nbytes` is what each side took.

    `injected` has the op whose kernel was put in the place of a node's, on the second backend; `made_up` the tensors
    without data that were given values, `zero` those that were not; `engines` who computed on each backend.
    """

    graph: str
    backends: tuple[str, str]
    engines: tuple[str, str]
    nodes: Sequence[ComparedNode]
    n_nodes: int
    nbytes: int
    injected: Mapping[str, str]
    made_up: Sequence[str]
    zero: Sequence[str]

    @property
    def over(self) -> list[ComparedNode]:
        """The nodes over their tolerance; the first one is the bad one."""
        return [n for n in self.nodes if not n.ok]


def compare_view(c: ComparedGraph, title: str, worst: int, style: Style) -> str:
    """The first bad node with what speaks for it, then the worst nodes in a table."""
    top = heading(
        title,
        [
            f"graph {c.graph}",
            f"{c.backends[0]} and {c.backends[1]}",
            f"{len(c.nodes)} of {count(c.n_nodes, 'node')} compared",
            f"{size(c.nbytes)} each",
        ],
        style,
    )
    text = top + "\n" + render_lines(_verdict(c), style)
    rows = _worst(c, worst)
    if rows:
        text += "\n" + render_table(_COLUMNS, [_row(n, rows[0].begins) for n in rows], style)
        left = sum(not (n.ok and not n.nmse) for n in c.nodes) - len(rows)
        if left > 0:
            text += render_lines([f"  {count(left, 'more node')} with a difference; --worst {len(rows) + left}"], style)
    notes = [line for note in _notes(c) for line in _wrapped(note, style.width)]
    return text + ("\n" + render_lines(notes, style) if notes else "")


def _wrapped(note: str, width: int) -> list[str]:
    return textwrap.wrap(note, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _verdict(c: ComparedGraph) -> list[str | Text]:
    from rich.text import Text

    over = c.over
    if not over:
        largest = max(c.nodes, key=lambda n: n.nmse, default=None)
        if largest is None:
            return ["  no node computes anything: there is nothing to compare"]
        if not largest.nmse:
            return [f"  {count(len(c.nodes), 'node')}, equal values on both"]
        return [f"  all agree; the largest NMSE is {_number(largest.nmse)}, of {printable(largest.id)}"]
    first = over[0]
    name = f"{printable(first.id)}, node {first.index}, {first.op} {first.type}{dims(first.ne)}"
    lines: list[str | Text] = [Text.assemble("  first bad node: ", (name, "bold red"))]
    if first.misplaced:
        lines.append(f"    {count(first.misplaced, 'element')} finite on one side only, or not finite in another way")
    else:
        lines.append(f"    {_error(first)}")
    if first.at is not None:
        inks = colors(c.backends)
        one, other = (
            Text.assemble(f"{_number(v)} on ", (printable(name), inks[name].term))
            for v, name in zip(first.values, c.backends, strict=True)
        )
        where = ", ".join(map(str, first.at))
        lines.append(Text.assemble(f"    at [{where}]: ", one, ", ", other))
    if first.begins and first.src:
        lines.append(f"    its sources agree: {shortened(first.src, _NAMES_SHOWN)}")
    lines += _others(over)
    return lines


def _error(n: ComparedNode) -> str:
    if n.type in ("i8", "i16", "i32", "i64"):
        return f"its integers differ, by {_number(n.largest)} at most; they must be equal"
    return f"NMSE {_number(n.nmse)}, allowed {_number(n.tolerance)}; largest error {_number(n.largest)}"


def _others(over: Sequence[ComparedNode]) -> list[str]:
    """What is said of the bad nodes after the first."""
    more = over[1:]
    if not more:
        return []
    begin = [n.id for n in more if n.begins]
    what = f"    {count(len(more), 'more node')} over the tolerance"
    if not over[0].begins:
        return [what]
    if not begin:
        return [what + ", all from bad sources"]
    return [f"{what}, {len(begin)} of them from good sources: {shortened(begin, _NAMES_SHOWN)}"]


_COLUMNS = [
    Column("node", right=True, drop=3),
    Column("name", cut=True),
    Column("op", cut=True, drop=2),
    Column("result", drop=4),
    Column("NMSE", right=True),
    Column("allowed", right=True),
    Column("largest error", right=True, drop=1),
    Column("not finite", right=True, drop=5),
    Column(""),
]


def _worst(c: ComparedGraph, limit: int) -> list[ComparedNode]:
    """The nodes with a difference: those over the tolerance in the graph's order, then the others, worst first."""
    fine = sorted((n for n in c.nodes if n.ok and n.nmse), key=lambda n: -n.nmse / n.tolerance if n.tolerance else 0.0)
    return [*c.over, *fine][:limit]


def _row(n: ComparedNode, sources_known: bool) -> Row:
    said = "" if n.ok else "begins here" if n.begins else "bad sources" if sources_known else "over"
    ink = "" if n.ok else "bold red" if n.begins else "red"
    return [
        str(n.index),
        n.id,
        n.op,
        f"{n.type}{dims(n.ne)}",
        Cell(_number(n.nmse), ink),
        _number(n.tolerance),
        _number(n.largest),
        f"{n.not_finite[0]}, {n.not_finite[1]}" if any(n.not_finite) else "",
        Cell(said, ink),
    ]


def _notes(c: ComparedGraph) -> list[str]:
    out = []
    for id, op in c.injected.items():
        out.append(f"{printable(id)} was computed by the kernel of {op} on {c.backends[1]}")
    for backend in dict.fromkeys(c.backends):
        without = [f"{n.id} ({n.op})" for n in c.nodes if backend in n.not_run_by]
        if without:
            what = count(len(without), "node")
            out.append(f"{backend} does not run {what}, computed all the same: {shortened(without, _NAMES_SHOWN)}")
    both = [n.id for n in c.nodes if n.not_finite[0] and n.not_finite[1] and not n.misplaced]
    if both:
        out.append(f"NaN or infinities on both sides alike: {shortened(both, _NAMES_SHOWN)}")
    if c.made_up:
        out.append(f"without data, values made up: {shortened(c.made_up, _NAMES_SHOWN)}")
    if c.zero:
        out.append(f"without data, left at zero: {shortened(c.zero, _NAMES_SHOWN)}")
    if c.engines[0] == c.engines[1] and not c.injected:
        out.append(f"both are computed by {c.engines[0]}, with the same kernels: without --inject nothing can differ")
    if c.engines[0] != c.engines[1]:
        out.append(" and ".join(f"{b} is computed by {e}" for b, e in zip(c.backends, c.engines, strict=True)))
    return out


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return f"{value:.3g}"


def compare_json(c: ComparedGraph) -> dict[str, Any]:
    """Every node that was compared; what is not finite is a text."""
    over = c.over
    return {
        "ggmltool": 1,
        "kind": "compare",
        "graph": c.graph,
        "ok": not over,
        "backends": [{"name": n, "engine": e} for n, e in zip(c.backends, c.engines, strict=True)],
        "first_bad": over[0].id if over else None,
        "n_nodes": c.n_nodes,
        "nbytes": c.nbytes,
        "injected": dict(c.injected),
        "made_up": list(c.made_up),
        "zero": list(c.zero),
        "nodes": [_node_json(n) for n in c.nodes],
    }


def _node_json(n: ComparedNode) -> dict[str, Any]:
    return {
        "index": n.index,
        "id": n.id,
        "op": n.op,
        "type": n.type,
        "ne": list(n.ne),
        "nmse": _value(n.nmse),
        "tolerance": n.tolerance,
        "ok": n.ok,
        "begins": n.begins,
        "largest_error": _value(n.largest),
        "at": list(n.at) if n.at is not None else None,
        "values": [_value(v) for v in n.values] if n.at is not None else None,
        "not_finite": list(n.not_finite),
        "misplaced": n.misplaced,
        "not_run_by": list(n.not_run_by),
    }


def _value(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
