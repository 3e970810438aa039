"""What every split copies before it runs: each input with its bytes, and where from."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.copied import CopiedInput, OtherPlan, copied_inputs
from ggmltool.inspect.copied_experts import ExpertCopy
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size, size_between
from ggmltool.views.plan.splits import plan_step


def copied_view(
    plan: Plan,
    tensors: Tensors,
    title: str,
    style: Style,
    other: OtherPlan | None = None,
    experts: Sequence[ExpertCopy] = (),
) -> str:
    """A line per input with a sum per split; then sums per pair of backends and over all."""
    inputs = copied_inputs(plan, tensors)
    facts = [plan_step(plan), f"{count(len(inputs), 'input')} copied, {_size(inputs)}"]
    parts = [heading(title, facts, style)]
    if inputs:
        parts += ["\n", _table(plan, inputs, style)]
    parts += ["\n", render_lines(copied_sums(inputs), style)]
    if experts:
        parts.append(render_lines([experts_line(experts)], style))
    if other is not None:
        how = "with" if other.op_offload else "without"
        parts.append(render_lines([f"{how} op offload: {count(other.inputs, 'tensor')}, {size(other.nbytes)}"], style))
    return "".join(parts)


def _table(plan: Plan, inputs: list[CopiedInput], style: Style) -> str:
    inks = term_colors(name for name, _ in plan.backends)
    by_split: dict[int, list[CopiedInput]] = {}
    for i in inputs:
        by_split.setdefault(i.split, []).append(i)
    columns: list[Column[CopiedInput]] = [
        Column("split", lambda i: f"#{i.split}" if len(by_split[i.split]) == 1 else None, right=True),
        Column("bytes", lambda i: _size([i]), right=True),
        Column("tensor", lambda i: i.tensor, cut=True),
        Column("what", lambda i: Cell(i.what, "dim"), drop=1),
        Column("from", lambda i: Cell(i.src, inks.get(i.src, ""))),
        Column("to", lambda i: Cell(i.dst, inks.get(i.dst, ""))),
    ]
    if any(i.shape for i in inputs):
        columns.append(Column("shape", lambda i: i.shape, drop=2))
    rows: list[Row] = []
    for split in plan.splits:
        of = by_split.get(split.id, []) if split.inputs else []
        if len(of) > 1:
            rows.append([f"#{split.id}", Cell(_size(of), "bold"), f"in {len(of)} tensors", "", "", split.backend])
        rows += Table(*columns).rows(of)
    return render_table(columns, rows, style)


def copied_sums(inputs: list[CopiedInput]) -> list[str]:
    """A line per pair of backends, and one for all."""
    if not inputs:
        return ["nothing is copied between backends"]
    lines = []
    for src, dst in dict.fromkeys((i.src, i.dst) for i in inputs):
        of = [i for i in inputs if (i.src, i.dst) == (src, dst)]
        lines.append(f"{printable(src)} → {printable(dst)}: {_sum(of)}{_weights(of)}")
    return [*lines, f"total: {_sum(inputs)}{_weights(inputs)}"]


def _sum(inputs: list[CopiedInput]) -> str:
    return f"{count(len(inputs), 'tensor')}, {_size(inputs)}"


def _weights(inputs: list[CopiedInput]) -> str:
    weights = [i for i in inputs if i.what == "weight" and i.nbytes + i.slack]
    return f" ({_size(weights)} of it weights)" if weights else ""


def _size(inputs: list[CopiedInput]) -> str:
    return size_between(sum(i.nbytes for i in inputs), sum(i.nbytes + i.slack for i in inputs))


def experts_line(experts: Sequence[ExpertCopy]) -> str:
    """How much of these weights is copied, in words; "" if there are none."""
    if not experts:
        return ""
    between = size_between(sum(e.nbytes_least for e in experts), sum(e.nbytes_most for e in experts))
    shares = dict.fromkeys(f"{_from_to(e.least, e.most)} of {e.n_expert}" for e in experts)
    whole = f"{count(len(experts), 'weight')} of experts, {size(sum(e.nbytes for e in experts))} whole"
    return f"{whole}: ggml copies only the experts that the batch uses, {between} ({', '.join(shares)})"


def _from_to(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
