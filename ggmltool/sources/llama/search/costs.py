"""What each layer costs on each device, from a few placements in which all layers lie alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.search.layers import Layer, layer_shares
from ggmltool.sources.llama.search.speed import Speed
from ggmltool.sources.llama.search.tables import Tables


class Costs:
    """The least seconds of a request, bytes of compute buffers and changes of backend that layers come to.

    `cpu` is a row of layers on the CPU, `gpus[g][u]` one of layers on GPU `g` of which each has its first `u` units on
    the CPU (all, if it has fewer); `floors[g]` has the least of these. What `layer_shares` says of a layer holds in
    every placement where it lies so, and nodes of different layers are different nodes: so seconds and changes add up,
    and the largest need of a layer is the least that a compute buffer has.
    """

    def __init__(self, measurer: Measurer, tables: Tables, speed: Speed) -> None:
        self.tables = tables
        self.n = tables.n
        self._measurer = measurer
        self._speed = speed
        most = max((end - start for start, end in zip(tables.starts, tables.starts[1:], strict=False)), default=0)
        k = len(tables.gpus)
        self.cpu = Row(self._shares([0] * k, 0), k)
        self.gpus: list[list[Row]] = []
        self.floors: list[Row] = []
        for g in range(k):
            each = [self._shares([self.n * (i == g) for i in range(k)], u) for u in range(most + 1)]
            self.gpus.append([Row(layers, k) for layers in _never_falling(each)])
            self.floors.append(Row([_floor(modes) for modes in zip(*each, strict=True)], k))

    def _shares(self, counts: Sequence[int], units: int) -> list[Layer]:
        """The shares of all layers, of all graphs together, in one placement."""
        tables, speed = self.tables, self._speed
        options = tables.alike(counts, units).options(tables.base, self.n - 1)
        needs = self._measurer.needs(replace(options, parallel=False))
        out = [Layer(0.0, (0,) * len(tables.gpus), 0)] * self.n
        for name, splits in needs.splits.items():
            weight = speed.weight(name)
            shares = layer_shares(speed.graphs[name], splits, speed.estimators[name], tables.gpus)
            for il, share in enumerate(shares):
                before = out[il]
                out[il] = Layer(
                    before.seconds + weight * share.seconds,
                    tuple(map(max, before.compute, share.compute)),
                    before.changes + share.changes,
                )
        return out


def _never_falling(each: Sequence[Sequence[Layer]]) -> list[list[Layer]]:
    """Seconds and changes as little as with any more units on the CPU."""
    out = [list(each[-1])]
    for layers in reversed(each[:-1]):
        then = out[-1]
        out.append(
            [
                Layer(min(a.seconds, b.seconds), a.compute, min(a.changes, b.changes))
                for a, b in zip(layers, then, strict=True)
            ]
        )
    return out[::-1]


def _floor(modes: Sequence[Layer]) -> Layer:
    """The least of a layer, however many of its units are on the CPU."""
    compute = tuple(min(sizes) for sizes in zip(*(m.compute for m in modes), strict=True))
    return Layer(min(m.seconds for m in modes), compute, min(m.changes for m in modes))


class Row:
    """Layers that all lie alike; sums and maxima over some of them."""

    def __init__(self, layers: Sequence[Layer], k: int) -> None:
        self.layers = layers
        self._seconds = list(accumulate((layer.seconds for layer in layers), initial=0.0))
        self._changes = list(accumulate((layer.changes for layer in layers), initial=0))
        self._compute = [_Maxima([layer.compute[g] for layer in layers]) for g in range(k)]

    def seconds(self, first: int, end: int) -> float:
        return self._seconds[end] - self._seconds[first]

    def changes(self, first: int, end: int) -> int:
        return self._changes[end] - self._changes[first]

    def compute(self, gpu: int, first: int, end: int) -> int:
        return self._compute[gpu].most(first, end)


class _Maxima:
    """The largest of a run of numbers: `levels[k][i]` is that of 2^k of them from i on."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.levels = [list(numbers)]
        while len(self.levels[-1]) > 1 << (len(self.levels) - 1):
            last, step = self.levels[-1], 1 << (len(self.levels) - 1)
            self.levels.append([max(last[i], last[i + step]) for i in range(len(last) - step)])

    def most(self, first: int, end: int) -> int:
        if first >= end:
            return 0
        k = (end - first).bit_length() - 1
        level = self.levels[k]
        return max(level[first], level[end - (1 << k)])


class Piece(NamedTuple):
    """The layers of one GPU: those of which all units are on the CPU, one of which some are, and whole ones."""

    seconds: float
    changes: int
    compute: tuple[int, ...]


def piece(costs: Costs, gpu: int, first: int, end: int, spilled: int) -> Piece:
    """What the layers from `first` to before `end` come to on a GPU if so many of their units spill."""
    tables, rows = costs.tables, costs.gpus[gpu]
    at = tables.starts[first] + spilled
    split = tables.layer_at(at, first, end)
    runs = [(rows[-1], first, split), (rows[0], split, end)] if split < end else [(rows[-1], first, end)]
    inner = at - tables.starts[split] if split < end else 0
    if inner:
        runs[1:] = [(rows[inner], split, split + 1), (rows[0], split + 1, end)]
    if not spilled:
        runs = [(rows[0], first, end)]
    k = len(tables.gpus)
    return Piece(
        sum(row.seconds(a, b) for row, a, b in runs),
        sum(row.changes(a, b) for row, a, b in runs),
        tuple(max(row.compute(g, a, b) for row, a, b in runs) for g in range(k)),
    )
