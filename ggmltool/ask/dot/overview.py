"""A plan on one screen as Graphviz's text: a column per layer, a box per split in it, alike layers drawn once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ggmltool.ask.dot.folded import plan_summary, split_numbers
from ggmltool.ask.dot.splits import escaped
from ggmltool.ggml.plan import NodePlan, Plan
from ggmltool.inspect.fold import layer_spans
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import LIGHT, NO_BACKEND, colors
from ggmltool.show.text import count, size

MOST_COLUMNS = 8
"""Columns beyond which layers are alike if only their backends are, in the same order."""

_LONGEST_PERIOD = 6


class SplitStage(NamedTuple):
    """The nodes of one layer in one split, and those at their place in the layers that are alike.

    `splits` are the numbers of the splits, each once; `ops` how many there are of each op in all. `nodes`, `inputs` and
    `nbytes` are the least and the most of them: nodes, tensors that are copied before them, and their bytes, which are
    0 where no split `begins` there.
    """

    backend: str
    splits: tuple[int, ...]
    ops: Counter[str]
    nodes: tuple[int, int]
    inputs: tuple[int, int]
    nbytes: tuple[int, int]
    begins: bool


class LayerColumn(NamedTuple):
    """Layers that are alike, and their stages in order; None is what comes before, between or behind the layers."""

    layers: tuple[int | None, ...]
    stages: tuple[SplitStage, ...]


class LayerGroup(NamedTuple):
    """Columns that follow each other `times` times: mostly one, several where layers take turns."""

    times: int
    columns: tuple[LayerColumn, ...]


class _Part(NamedTuple):
    layer: int | None
    split: int
    nodes: tuple[NodePlan, ...]
    begins: bool


_Layer = tuple[_Part, ...]


def overview(plan: Plan, tensors: Tensors) -> tuple[LayerGroup, ...]:
    """All groups in program order. Every node is in one stage, every copied input before one."""
    layers = list(_layers(plan))
    groups = list(_groups(layers, [_strictly(plan, layer) for layer in layers]))
    if sum(len(pieces) // times for times, pieces in groups) > MOST_COLUMNS:
        groups = list(_groups(layers, [_loosely(plan, layer) for layer in layers]))
    return tuple(
        LayerGroup(times, tuple(_columns(plan, tensors, pieces, len(pieces) // times))) for times, pieces in groups
    )


def _layers(plan: Plan) -> Iterator[_Layer]:
    """The nodes by layers and splits. Where nothing has a name of a layer, all are one."""
    spans = [(span.start, span.end, span.layer) for span in layer_spans([node.name for node in plan.nodes])]
    seen: set[int] = set()
    done = 0
    for start, end, layer in [*spans, (len(plan.nodes), len(plan.nodes), None)]:
        for first, last, number in ((done, start, None), (start, end, layer)):
            if first < last:
                yield tuple(_parts(number, plan.nodes[first:last], seen))
        done = end


def _parts(layer: int | None, nodes: Sequence[NodePlan], seen: set[int]) -> Iterator[_Part]:
    for split, part in groupby(nodes, key=lambda node: node.split):
        yield _Part(layer, split, tuple(part), split not in seen)
        seen.add(split)


def _strictly(plan: Plan, layer: _Layer) -> Hashable:
    return tuple((plan.splits[part.split].backend, len(part.nodes), part.begins) for part in layer)


def _loosely(plan: Plan, layer: _Layer) -> Hashable:
    return tuple(plan.splits[part.split].backend for part in layer)


def _groups(layers: Sequence[_Layer], keys: Sequence[Hashable]) -> Iterator[tuple[int, Sequence[_Layer]]]:
    """Runs of layers that repeat: how often, and all their layers. What has no layer stands alone."""
    i = 0
    while i < len(layers):
        period, times = max(
            ((p, _times(layers, keys, i, p)) for p in range(1, _LONGEST_PERIOD + 1)),
            key=lambda found: (found[0] * found[1] if found[1] > 1 else 1, -found[0]),
        )
        period = period if times > 1 else 1
        yield times, layers[i : i + period * times]
        i += period * times


def _times(layers: Sequence[_Layer], keys: Sequence[Hashable], start: int, period: int) -> int:
    """How often the layers from `start` on repeat themselves after `period` layers."""
    end = start + period
    while (
        end < len(layers)
        and keys[end] == keys[end - period]
        and None not in (_number(layers, end), _number(layers, start))
    ):
        end += 1
    return max((end - start) // period, 1)


def _number(layers: Sequence[_Layer], place: int) -> int | None:
    return layers[place][0].layer


def _columns(plan: Plan, tensors: Tensors, layers: Sequence[_Layer], period: int) -> Iterator[LayerColumn]:
    for first in range(period):
        alike = layers[first::period]
        stages = (_stage(plan, tensors, parts) for parts in zip(*alike, strict=True))
        yield LayerColumn(tuple(layer[0].layer for layer in alike), tuple(stages))


def _stage(plan: Plan, tensors: Tensors, parts: Sequence[_Part]) -> SplitStage:
    splits = [plan.splits[part.split] for part in parts]
    copied = [plan.splits[part.split].inputs if part.begins else () for part in parts]
    nbytes = [sum(tensors[of].nbytes for of in inputs) for inputs in copied]
    return SplitStage(
        splits[0].backend, tuple(dict.fromkeys(split.id for split in splits)),
        Counter(tensors[node.id].op for part in parts for node in part.nodes),
        _range([len(part.nodes) for part in parts]), _range([len(inputs) for inputs in copied]), _range(nbytes),
        any(part.begins for part in parts),
    )  # fmt: skip


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


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
    facts = [plan_summary(plan, tensors)]
    if any(split.inputs for split in plan.splits):
        facts.append("← what is copied before a split")
    lines = [
        "digraph ggml {",
        f'  label="{escaped(title)}\\n{" · ".join(facts)}\\n "; labelloc=t; fontsize=16;',
        f'  fontname="Helvetica"; rankdir=TB; ranksep=0.14; nodesep=0.16; newrank=true; bgcolor="{LIGHT.paper}";',
        '  node [fontname="Helvetica", fontsize=10, shape=box, style="filled,rounded"];',
        '  node [margin="0.07,0.02", height=0.2];',
        f'  edge [fontname="Helvetica", color="{LIGHT.soft}", arrowsize=0.5];',
        *(f"  {line}" for i, (c, title) in enumerate(titled) for line in _column(i, c, title, plan)),
        *([f"  {{rank=same; {' -> '.join(f'h{i}' for i in range(len(columns)))};}}"] if columns else []),
        "}\n",
    ]
    return "\n".join(lines)


def _pieces(column: LayerColumn) -> Iterator[LayerColumn]:
    """The column, in as many of equal length as are needed."""
    n = len(column.stages)
    pieces = -(-n // MOST_ROWS)
    for i in range(pieces):
        yield LayerColumn(column.layers, column.stages[n * i // pieces : n * (i + 1) // pieces])


def _column(i: int, column: LayerColumn, title: str, plan: Plan) -> Iterator[str]:
    """The head, and the boxes below it from one to the next."""
    inks = colors(name for name, _ in plan.backends)
    yield f'h{i} [label="{title}", shape=plaintext, style="", fontsize=12, group=g{i}];'
    before = f"h{i}"
    for k, stage in enumerate(column.stages):
        color = inks.get(stage.backend, NO_BACKEND)
        name, label = f"s{i}_{k}", "\\n".join(map(escaped, _lines(stage)))
        ops = ", ".join(f"{n} {op}" for op, n in stage.ops.most_common())
        look = f'fillcolor="{color.fill}", color="{color.ink}", group=g{i}, tooltip="{escaped(ops)}"'
        yield f'{name} [label="{label}", {look}];'
        arrow = f'style=dashed, penwidth=1.4, color="{color.ink}"' if stage.inputs[1] else ""
        yield f"{before} -> {name} [{arrow if k else 'style=invis'}];"
        before = name


def _titles(columns: Sequence[LayerColumn]) -> Iterator[str]:
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


def _lines(stage: SplitStage) -> tuple[str, str]:
    """What a box says: splits, backend and what is copied; how many nodes, and their commonest ops."""
    first = f"{split_numbers(stage.splits)} {stage.backend}"
    if stage.inputs[1]:
        least, most = map(size, stage.nbytes)
        first += f" ← {most if least == most else f'{least} to {most}'}"
    ops = [op for op, _ in stage.ops.most_common()]
    low, high = stage.nodes
    nodes = count(high, "node") if low == high else f"{low}–{count(high, 'node')}"
    return first, f"{nodes}: {', '.join(ops[:_OPS])}{' …' if len(ops) > _OPS else ''}"
