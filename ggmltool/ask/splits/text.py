"""The splits of a plan as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ggmltool.ask.answer import Answer
from ggmltool.ask.splits.record import SplitsTable
from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.inspect.copied import bytes_of
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, render_table, without_middle
from ggmltool.show.text import count, shortened


def splits_table(plan: Plan, tensors: Tensors, style: Style, limit: int | None = None) -> str:
    """One row per split; with `limit`, the ones in the middle are left out and counted."""
    table = _table(plan, tensors)
    rows: Sequence[Row] = table.rows(plan.splits)
    if limit is not None:
        rows = without_middle(rows, limit, lambda n: [Cell("⋮", "dim"), Cell(f"{n} more", "dim")])
    return render_table(table.columns, rows, style)


def splits(answer: Answer[SplitsTable], style: Style) -> str:
    """All splits, with a heading."""
    plan, tensors = answer.facts.plan, answer.facts.tensors
    copied = bytes_of(tensors[i] for split in plan.splits for i in split.inputs if i in tensors)
    copies = sum(len(split.inputs) for split in plan.splits)
    facts = [answer.heading, count(len(plan.splits), "split"), f"{count(copies, 'input')} copied, {copied}"]
    return heading(answer.title, facts, style) + render_lines([""], style) + splits_table(plan, tensors, style)


def _table(plan: Plan, tensors: Tensors) -> Table[SplitPlan]:
    inks = term_colors(name for name, _ in plan.backends)

    def nodes(split: SplitPlan) -> tuple[NodePlan, ...]:
        return plan.nodes[split.i_start : split.i_end]

    def numbers(split: SplitPlan) -> str:
        of = nodes(split)
        return "" if not of else str(of[0].index) if len(of) == 1 else f"{of[0].index}–{of[-1].index}"

    def copied(split: SplitPlan) -> str | None:
        return bytes_of(tensors[i] for i in split.inputs if i in tensors) if split.inputs else None

    def names(split: SplitPlan) -> str:
        return shortened([tensors[i].name or i if i in tensors else i for i in split.inputs], 3)

    return Table(
        Column("split", lambda s: f"#{s.id}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, "dim"))),
        Column("nodes", numbers, right=True),
        Column("count", lambda s: len(nodes(s)) if plan.nodes else None, right=True, drop=2),
        Column("copied", copied, right=True),
        Column("inputs", names, cut=True, drop=3),
        Column("main ops", lambda s: ops_of(nodes(s), tensors), cut=True, drop=4),
    )


def ops_of(nodes: tuple[NodePlan, ...], tensors: Tensors) -> str:
    """The most frequent ops: `4 MUL_MAT, 2 SILU, +3 more`."""
    counts = Counter(tensors[node.id].op if node.id in tensors else node.op for node in nodes)
    return shortened([f"{n} {op}" for op, n in counts.most_common()], 3)
