"""Nodes counted by what they are and where they run: the op × backend matrix and its kin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from ggmltool.ask.answer import Answer
from ggmltool.ggml.plan import NodePlan, Plan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.document import StepDocument, head
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_table
from ggmltool.show.text import count, printable

NOTHING = "–"
"""A count of none, and the value of a key that a node does not have."""

_REST = "others"
_GAP = 2

Tally = Counter[tuple[str, ...]]


def tally(plan: Plan, tensors: Tensors, keys: Sequence[str]) -> Tally:
    """How many nodes there are of each combination of the keys' values."""
    return Counter(tuple(_value(node, plan, tensors, key) for key in keys) for node in plan.nodes)


def _value(node: NodePlan, plan: Plan, tensors: Tensors, key: str) -> str:
    match key:
        case "op":
            return tensors[node.id].op if node.id in tensors else node.op
        case "split":
            return f"#{plan.splits[node.split].id}" if plan.splits else f"#{node.split}"
        case "backend":
            return node.backend or NOTHING
        case "cause":
            return node.cause or NOTHING
        case _:
            return node.type


class NodeCounts(StepDocument, kw_only=True):
    """`splits --by KEYS --json`: how many of the `nodes` there are of every combination of the keys `by`."""

    view = "tally:shown"
    beside = ("plan", "tally")
    """The counts, with the plan that they are of."""
    kind: Literal["tally"] = "tally"
    by: list[str]
    nodes: int
    counts: list[dict[str, str | int]]
    plan: Plan
    tally: Tally

    @classmethod
    def of(cls, plan: Plan, tensors: Tensors, keys: Sequence[str]) -> NodeCounts:
        """The nodes of a plan, counted."""
        counted = tally(plan, tensors, keys)
        counts: list[dict[str, str | int]] = []
        for values, n in counted.items():
            counts.append({**dict(zip(keys, values, strict=True)), "nodes": n})
        return cls(**head(plan), by=list(keys), nodes=len(plan.nodes), counts=counts, plan=plan, tally=counted)


def shown(answer: Answer[NodeCounts], style: Style) -> str:
    """A row per value of the keys, most nodes first; of several keys the last one makes the columns.

    Columns for which there is no room are summed up in one.
    """
    plan, keys, counts = answer.facts.plan, answer.facts.by, answer.facts.tally
    facts = [answer.heading, f"{count(len(plan.nodes), 'node')} by {', '.join(keys)}"]
    inks = term_colors(name for name, _ in plan.backends)
    table = _list(counts, keys[0], plan, inks, style) if len(keys) == 1 else _matrix(counts, keys, plan, inks, style)
    return heading(answer.title, facts, style) + "\n" + table


def _cell(key: str, value: str, inks: dict[str, str]) -> Cell:
    return Cell(value, inks.get(value, "") if key == "backend" else "")


def _ordered(values: Counter[str], key: str, plan: Plan) -> list[str]:
    """Backends by priority, splits by number, everything else by how often it is there."""
    if key == "backend":
        names = [name for name, _ in plan.backends]
        return sorted(values, key=lambda v: names.index(v) if v in names else len(names))
    if key == "split":
        return sorted(values, key=lambda v: int(v[1:]))
    return sorted(values, key=lambda v: (-values[v], v))


def _list(counts: Tally, key: str, plan: Plan, inks: dict[str, str], style: Style) -> str:
    sums: Counter[str] = Counter({values[0]: n for values, n in counts.items()})
    rows: list[Row] = [[_cell(key, v, inks), str(sums[v])] for v in _ordered(sums, key, plan)]
    rows.append([Cell("total", "dim"), str(sums.total())])
    return render_table((Head(key, cut=True), Head("nodes", right=True)), rows, style)


def _matrix(counts: Tally, keys: Sequence[str], plan: Plan, inks: dict[str, str], style: Style) -> str:
    heads: Counter[tuple[str, ...]] = Counter()
    across: Counter[str] = Counter()
    for values, n in counts.items():
        heads[values[:-1]] += n
        across[values[-1]] += n
    per_key = [_ordered(Counter(h[i] for h in heads.elements()), key, plan) for i, key in enumerate(keys[:-1])]
    ranks = [{value: at for at, value in enumerate(values)} for values in per_key]
    order = sorted(heads, key=lambda head: [rank[value] for rank, value in zip(ranks, head, strict=True)])
    columns = _ordered(across, keys[-1], plan)
    shown = _that_fit(columns, keys, order, across, counts.total(), style.width)
    rest = columns[len(shown) :]

    def line(label: Sequence[str | Cell], values: Counter[str]) -> Row:
        cells = [*(values[c] for c in shown), *([sum(values[c] for c in rest)] if rest else []), values.total()]
        return [*label, *(str(n) if n else Cell(NOTHING, "dim") for n in cells)]

    rows: list[Row] = []
    for values in order:
        in_row = Counter({c: counts[*values, c] for c in columns if counts[*values, c]})
        rows.append(line([_cell(key, v, inks) for key, v in zip(keys, values, strict=False)], in_row))
    rows.append(line([Cell("total", "dim"), *[""] * (len(keys) - 2)], across))
    table = [Head(key, cut=True) for key in keys[:-1]]
    table += [Head(printable(name), right=True) for name in shown]
    table += [Head(_rest(rest), right=True)] if rest else []
    return render_table([*table, Head("total", right=True)], rows, style)


def _rest(columns: Sequence[str]) -> str:
    return f"{len(columns)} {_REST}"


def _that_fit(
    columns: list[str], keys: Sequence[str], heads: list[tuple[str, ...]], across: Counter[str], total: int, width: int
) -> list[str]:
    """The first columns, as many as there is room for beside the keys, the total and, if need be, the rest."""
    room = width - 2 - max(len("total"), len(str(total)))
    for i, key in enumerate(keys[:-1]):
        room -= max([len(key), len("total"), *(len(printable(head[i])) for head in heads)]) + _GAP
    widths = [max(len(printable(c)), len(str(across[c]))) + _GAP for c in columns]
    if sum(widths) <= room:
        return columns
    room -= max(len(_rest(columns)), len(str(total))) + _GAP
    fit = 0
    while fit < len(columns) and sum(widths[: fit + 1]) <= room:
        fit += 1
    return columns[: max(fit, 1)]
