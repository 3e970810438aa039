"""The assignments after one of the scheduler's passes, what the pass changed, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.state import PASSES
from ggmltool.inspect.passes import Assignment, PassRecord
from ggmltool.views.explain.words import words
from ggmltool.views.palette import colors
from ggmltool.views.plan.splits import plan_step
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, printable, shortened

_PASSES = (Head("pass", right=True), Head("what it does", cut=True, drop=1))
_NODES = (
    Head(""),
    Head("#", right=True),
    Head("op", drop=1),
    Head("tensor", cut=True),
    Head("backend"),
    Head("cause"),
    Head("why", cut=True, drop=2),
)
_SPLITS = (
    Head("split", right=True),
    Head("backend"),
    Head("from node", right=True),
    Head("why", cut=True),
    Head("copied", cut=True, drop=1),
)


def pass_view(
    plan: Plan, records: Sequence[PassRecord], number: int, title: str, style: Style, passes: Sequence[str] = PASSES
) -> str:
    """Counts after every pass up to `number`, then the nodes and leafs after it; `+` marks what it set anew.

    `records` may end before `number` where ggml did not go on. `passes` say what each does.
    """
    inks = {name: color.term for name, color in colors(name for name, _ in plan.backends).items()}
    parts = [heading(title, [plan_step(plan), f"after pass {number}: {passes[number]}"], style), "\n"]
    upto = [r for r in records if r.number <= number]
    parts += [_counts(plan, upto, inks, style, passes)]
    if upto and upto[-1].number == number:
        record = upto[-1]
        if number == len(passes) - 1:
            parts += ["\n", _split_table(record, inks, style)]
        parts += ["\n", _node_table(record, inks, style)]
    return "".join(parts)


def _counts(
    plan: Plan, records: Sequence[PassRecord], inks: dict[str, str], style: Style, passes: Sequence[str]
) -> str:
    """How many nodes and leafs each backend has after each pass."""
    backends = [name for name, _ in plan.backends]
    columns = [*_PASSES, *(Head(printable(b), right=True) for b in backends)]
    columns += [Head("none yet", right=True), Head("changed", right=True)]
    rows: list[Row] = []
    for record in records:
        n = Counter(a.backend for a in record.assignments)
        counts = [Cell(str(n[b]), inks[b]) if n[b] else Cell("–", "dim") for b in backends]
        changed = len(changes(record))
        rows.append([str(record.number), passes[record.number], *counts, str(n[None]), str(changed)])
    return render_table(columns, rows, style) if rows else ""


def changes(record: PassRecord) -> dict[str, str]:
    """Per tensor that the pass assigned: the reason (of its last assignment)."""
    there = {a.tensor for a in record.assignments}
    return {e.tensor: words(e) for e in record.assigned if e.tensor in there}


def _node_table(record: PassRecord, inks: dict[str, str], style: Style) -> str:
    reasons = changes(record)
    return render_table(_NODES, [_node_row(a, reasons.get(a.tensor), inks) for a in record.assignments], style)


def _node_row(a: Assignment, reason: str | None, inks: dict[str, str]) -> Row:
    return [
        "" if reason is None else Cell("+", "bold"),
        f"leaf {a.index}" if a.is_leaf else str(a.index),
        Cell("" if a.is_leaf else a.op, "dim"),
        a.tensor,
        Cell(a.backend, inks.get(a.backend, "")) if a.backend is not None else Cell("–", "dim"),
        a.cause or "",
        reason or "",
    ]


def _split_table(record: PassRecord, inks: dict[str, str], style: Style) -> str:
    rows: list[Row] = []
    for start in record.splits:
        names = [i.tensor for i in record.inputs if i.split == start.split]
        ink = inks.get(start.backend, "")
        rows.append([f"#{start.split}", Cell(start.backend, ink), str(start.at), words(start), shortened(names, 3)])
    lines = [f"{count(len(rows), 'split')}, {count(len(record.inputs), 'input')} to copy"]
    return render_lines(lines, style) + (render_table(_SPLITS, rows, style) if rows else "")
