"""The splits of a plan as a table and as JSON: where each runs, what is copied before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.inspect.tensors import bytes_of
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, printable, shortened

_COLUMNS = (
    Head("split", right=True),
    Head("backend"),
    Head("nodes", right=True),
    Head("count", right=True, drop=2),
    Head("copied", right=True),
    Head("inputs", cut=True, drop=3),
    Head("main ops", cut=True, drop=4),
)


def splits_table(plan: Plan, tensors: Tensors, style: Style, limit: int | None = None) -> str:
    """One row per split; with `limit`, the ones in the middle are left out and counted."""
    rows = [_row(plan, split, tensors, style) for split in plan.splits]
    if limit is None or len(rows) <= limit:
        return render_table(_COLUMNS, rows, style)
    first = limit - limit // 3
    skipped = len(rows) - limit
    rows[first : first + skipped] = [[Cell("⋮", "dim"), Cell(f"{skipped} more", "dim"), *[""] * (len(_COLUMNS) - 2)]]
    return render_table(_COLUMNS, rows, style)


def splits_report(plan: Plan, tensors: Tensors, title: str, style: Style) -> str:
    """All splits, with a heading."""
    copied = bytes_of(tensors[i] for split in plan.splits for i in split.inputs if i in tensors)
    copies = sum(len(split.inputs) for split in plan.splits)
    facts = [plan_step(plan), count(len(plan.splits), "split"), f"{count(copies, 'input')} copied, {copied}"]
    return heading(title, facts, style) + render_lines([""], style) + splits_table(plan, tensors, style)


def plan_step(plan: Plan) -> str:
    """`reserve main`."""
    return f"{plan.step} {printable(plan.graph or '')}".rstrip()


def _row(plan: Plan, split: SplitPlan, tensors: Tensors, style: Style) -> Row:
    nodes = plan.nodes[split.i_start : split.i_end]
    names = [tensors[i].name or i if i in tensors else i for i in split.inputs]
    color = colors(name for name, _ in plan.backends).get(split.backend)
    return [
        f"#{split.id}",
        Cell(split.backend, "dim" if color is None else color.term),
        _range(nodes),
        str(len(nodes)) if plan.nodes else "",
        bytes_of(tensors[i] for i in split.inputs if i in tensors) if split.inputs else "",
        shortened(names, 3),
        ops_of(nodes, tensors, 3),
    ]


def _range(nodes: Sequence[NodePlan]) -> str:
    return "" if not nodes else str(nodes[0].index) if len(nodes) == 1 else f"{nodes[0].index}–{nodes[-1].index}"


def ops_of(nodes: tuple[NodePlan, ...], tensors: Tensors, limit: int) -> str:
    """The most frequent ops: `4 MUL_MAT, 2 SILU, +3 more`."""
    counts = Counter(tensors[node.id].op if node.id in tensors else node.op for node in nodes)
    return shortened([f"{n} {op}" for op, n in counts.most_common()], limit)


def input_bytes(split: SplitPlan, tensors: Tensors) -> int:
    """Bytes copied before a split."""
    return sum(tensors[i].nbytes for i in split.inputs if i in tensors)
