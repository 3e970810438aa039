"""A plan on one screen: what each layer does in each split, and layers that are alike told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ggmltool.ggml.plan import NodePlan, Plan
from ggmltool.inspect.folded import layer_spans
from ggmltool.scenario.tensor_info import Tensors

MOST_COLUMNS = 8
"""Columns beyond which layers are alike if only their backends are, in the same order."""

_LONGEST_PERIOD = 6


class Stage(NamedTuple):
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


class Column(NamedTuple):
    """Layers that are alike, and their stages in order; None is what comes before, between or behind the layers."""

    layers: tuple[int | None, ...]
    stages: tuple[Stage, ...]


class Group(NamedTuple):
    """Columns that follow each other `times` times: mostly one, several where layers take turns."""

    times: int
    columns: tuple[Column, ...]


class _Part(NamedTuple):
    layer: int | None
    split: int
    nodes: tuple[NodePlan, ...]
    begins: bool


_Layer = tuple[_Part, ...]


def overview(plan: Plan, tensors: Tensors) -> tuple[Group, ...]:
    """All groups in program order. Every node is in one stage, every copied input before one."""
    layers = list(_layers(plan))
    groups = list(_groups(layers, [_strictly(plan, layer) for layer in layers]))
    if sum(len(pieces) // times for times, pieces in groups) > MOST_COLUMNS:
        groups = list(_groups(layers, [_loosely(plan, layer) for layer in layers]))
    return tuple(Group(times, tuple(_columns(plan, tensors, pieces, len(pieces) // times))) for times, pieces in groups)


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


def _columns(plan: Plan, tensors: Tensors, layers: Sequence[_Layer], period: int) -> Iterator[Column]:
    for first in range(period):
        alike = layers[first::period]
        stages = (_stage(plan, tensors, parts) for parts in zip(*alike, strict=True))
        yield Column(tuple(layer[0].layer for layer in alike), tuple(stages))


def _stage(plan: Plan, tensors: Tensors, parts: Sequence[_Part]) -> Stage:
    splits = [plan.splits[part.split] for part in parts]
    copied = [plan.splits[part.split].inputs if part.begins else () for part in parts]
    nbytes = [sum(tensors[of].nbytes for of in inputs) for inputs in copied]
    return Stage(
        splits[0].backend,
        tuple(dict.fromkeys(split.id for split in splits)),
        Counter(tensors[node.id].op for part in parts for node in part.nodes),
        _range([len(part.nodes) for part in parts]),
        _range([len(inputs) for inputs in copied]),
        _range(nbytes),
        any(part.begins for part in parts),
    )


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)
