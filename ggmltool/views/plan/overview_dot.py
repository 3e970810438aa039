"""A plan on one screen as Graphviz's text: a column per layer, a box per split in it, alike layers drawn once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.overview import Column, Stage, overview
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import LIGHT, NO_BACKEND, colors
from ggmltool.show.text import count, size
from ggmltool.views.plan.dot import escaped
from ggmltool.views.plan.fold_dot import plan_summary, split_numbers

MOST_ROWS = 20
"""Boxes of a column; what is more stands in a column beside it."""

_OPS = 2


def overview_dot(plan: Plan, tensors: Tensors, title: str) -> str:
    """The columns from left to right, and in each the boxes from top to bottom, in program order.

    A dashed arrow leads into a box where a split begins; what is copied before it stands behind `←`.
    """
    groups = overview(plan, tensors)
    columns = [piece for group in groups for column in group.columns for piece in _pieces(column)]
    titled = list(zip(columns, _titles(columns), strict=True))
    facts = [plan_summary(plan, tensors), "← what is copied before a split"]
    lines = [
        "digraph ggml {",
        f'  label="{escaped(title)}\\n{" · ".join(facts[: 1 + _any_copied(plan)])}\\n "; labelloc=t; fontsize=16;',
        f'  fontname="Helvetica"; rankdir=TB; ranksep=0.14; nodesep=0.16; newrank=true; bgcolor="{LIGHT.paper}";',
        '  node [fontname="Helvetica", fontsize=10, shape=box, style="filled,rounded"];',
        '  node [margin="0.07,0.02", height=0.2];',
        f'  edge [fontname="Helvetica", color="{LIGHT.soft}", arrowsize=0.5];',
        *(f"  {line}" for i, (c, title) in enumerate(titled) for line in _column(i, c, title, plan)),
        *(f"  {line}" for line in _heads(columns)),
        "}\n",
    ]
    return "\n".join(lines)


def _any_copied(plan: Plan) -> bool:
    """Whether anything is copied between devices."""
    return any(split.inputs for split in plan.splits)


def _pieces(column: Column) -> Iterator[Column]:
    """The column, in as many of equal length as are needed."""
    n = len(column.stages)
    pieces = -(-n // MOST_ROWS)
    for i in range(pieces):
        yield Column(column.layers, column.stages[n * i // pieces : n * (i + 1) // pieces])


def _column(i: int, column: Column, title: str, plan: Plan) -> Iterator[str]:
    """The head, and the boxes below it from one to the next."""
    inks = colors(name for name, _ in plan.backends)
    yield f'h{i} [label="{title}", shape=plaintext, style="", fontsize=12, group=g{i}];'
    before = f"h{i}"
    for k, stage in enumerate(column.stages):
        color = inks.get(stage.backend, NO_BACKEND)
        name, label = f"s{i}_{k}", "\\n".join(map(escaped, _lines(stage)))
        look = f'fillcolor="{color.fill}", color="{color.ink}", group=g{i}, tooltip="{escaped(_all_ops(stage))}"'
        yield f'{name} [label="{label}", {look}];'
        arrow = f'style=dashed, penwidth=1.4, color="{color.ink}"' if stage.inputs[1] else ""
        yield f"{before} -> {name} [{arrow if k else 'style=invis'}];"
        before = name


def _titles(columns: Sequence[Column]) -> Iterator[str]:
    """What each column is of."""
    before = None
    for i, (layers, _) in enumerate(columns):
        if layers == before:
            yield "continued"
        elif layers[0] is not None:
            yield _layers_of([n for n in layers if n is not None])
        else:
            last = all(column.layers == layers for column in columns[i:])
            yield ("graph" if last else "start") if not i else "end" if last else "between"
        before = layers


def _layers_of(numbers: Sequence[int]) -> str:
    """
    >>> _layers_of([3]), _layers_of([0, 1, 2]), _layers_of([1, 3, 5])
    ('layer 3', 'layers 0–2 · × 3', 'layers 1, 3 … 5 · × 3')
    """
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    in_order = numbers[-1] - numbers[0] == len(numbers) - 1
    which = f"{numbers[0]}–{numbers[-1]}" if in_order else f"{numbers[0]}, {numbers[1]} … {numbers[-1]}"
    return f"layers {which} · × {len(numbers)}"


def _lines(stage: Stage) -> tuple[str, str]:
    """What a box says: splits, backend and what is copied; how many nodes, and their commonest ops."""
    first = f"{split_numbers(stage.splits)} {stage.backend}"
    if stage.inputs[1]:
        first += f" ← {_sizes(stage.nbytes)}"
    ops = [op for op, _ in stage.ops.most_common()]
    low, high = stage.nodes
    nodes = count(high, "node") if low == high else f"{low}–{count(high, 'node')}"
    return first, f"{nodes}: {', '.join(ops[:_OPS])}{' …' if len(ops) > _OPS else ''}"


def _sizes(ends: tuple[int, int]) -> str:
    low, high = map(size, ends)
    return high if low == high else f"{low} to {high}"


def _all_ops(stage: Stage) -> str:
    return ", ".join(f"{n} {op}" for op, n in stage.ops.most_common())


def _heads(columns: Sequence[Column]) -> Iterator[str]:
    """The heads side by side, from one to the next."""
    if columns:
        yield f"{{rank=same; {' -> '.join(f'h{i}' for i in range(len(columns)))};}}"
