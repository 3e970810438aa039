"""What each layer costs on each device, from a few placements in which all layers lie alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from ggmltool.estimate.records import PlacedSplit
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import margins_of
from ggmltool.sources.llama.place.options import PlaceOptions, layer_devices
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.anatomy import (
    Layer,
    LayerPeak,
    Leafs,
    Peaks,
    Speed,
    arrivals,
    input_seconds,
    layer_shares,
)
from ggmltool.sources.llama.search.candidates import Objective
from ggmltool.sources.llama.search.space import Space, Vector
from ggmltool.sources.llama.search.tables import Tables

_Units = tuple[int, int]
"""Units of both series."""


class Costs:
    """The least seconds of a request, bytes of compute buffers and changes of backend that layers come to.

    `cpu` is a row of layers on the CPU, `gpus[g][t][u]` one of layers on GPU `g` of which each has its first `u` units
    of the tables' first series on the CPU, and `t` of their second (all, if it has fewer); `floors[g]` has the least of
    these. `input` are the seconds of the input,
    `arrivals[g][il]` those of copies to a GPU whose first layer is `il`. What `layer_shares` says of a layer holds in
    every placement where it lies so, and nodes of different layers are different nodes: so seconds and changes add up,
    and the largest need of a layer is the least that a compute buffer has. `pieces` is for those who ask for the same
    layers again.
    """

    def __init__(self, measurer: Measurer, tables: Tables, speed: Speed) -> None:
        self.tables = tables
        self.n = tables.n
        self._measurer = measurer
        self._speed = speed
        self._devices = measurer.placer.devices
        self._known: dict[tuple[tuple[int, ...], _Units, int], Mapping[str, Peaks]] = {}
        self._planned: dict[object, Mapping[str, Sequence[PlacedSplit]]] = {}
        most = tables.first.most, tables.second.most
        k = len(tables.gpus)
        nothing = dict.fromkeys(speed.graphs, [dict[str, int]()] * self.n)
        self.cpu = AlikeLayers(self._shares([0] * k, (0, 0), 0, nothing))
        self.pieces: dict[tuple[int, int, int, int], GpuPiece] = {}
        self.input = sum(
            speed.weight(name) * input_seconds(speed.graphs[name], splits, speed.estimators[name])
            for name, splits in self._splits([0] * k, (0, 0)).items()
        )
        self.gpus: list[list[list[AlikeLayers]]] = []
        self.floors: list[AlikeLayers] = []
        self.arrivals: list[list[float]] = []
        for g in range(k):
            counts = [self.n * (i == g) for i in range(k)]
            peaks = self._peaks(counts, most, g)
            seconds = [0.0] * self.n
            for name, p in peaks.items():
                copies = arrivals(speed.graphs[name], p, speed.estimators[name], tables.gpus[g], self.n)
                weight = speed.weight(name)
                seconds = [before + weight * copy for before, copy in zip(seconds, copies, strict=True)]
            self.arrivals.append(seconds)
            leafs = {name: p.leafs(self.n) for name, p in peaks.items()}
            each = [[self._shares(counts, (u, t), g, leafs) for u in range(most[0] + 1)] for t in range(most[1] + 1)]
            self.gpus.append([[AlikeLayers(layers) for layers in _never_falling(of)] for of in each])
            # The least of a layer, however many of its units are on the CPU.
            modes = zip(*chain(*each), strict=True)
            self.floors.append(AlikeLayers([Layer(*map(min, zip(*mode, strict=True))) for mode in modes]))

    def _splits(self, counts: Sequence[int], units: _Units) -> Mapping[str, Sequence[PlacedSplit]]:
        """The splits of all graphs where layers lie alike."""
        options = self.tables.alike(counts, *units).options(self.tables.base, self.n - 1)
        key = options.overrides, options.n_gpu_layers, options.tensor_split
        if key not in self._planned:
            self._planned[key] = self._measurer.needs(replace(options, parallel=False)).splits
        return self._planned[key]

    def _peaks(self, counts: Sequence[int], units: _Units, gpu: int) -> Mapping[str, Peaks]:
        """What layers need at once on a GPU, by graph."""
        key = (tuple(counts), units, gpu)
        if key not in self._known:
            device, graphs = self._devices[self.tables.gpus[gpu]], self._speed.graphs
            splits = self._splits(counts, units)
            self._known[key] = {name: Peaks(graphs[name], each, device) for name, each in splits.items()}
        return self._known[key]

    def _shares(self, counts: Sequence[int], units: _Units, gpu: int, leafs: Mapping[str, Leafs]) -> list[Layer]:
        """The shares of all layers, of all graphs together, in one placement; memory is that of a GPU."""
        gpus, speed = self.tables.gpus, self._speed
        out = [Layer(0.0, 0, 0, 0, 0)] * self.n
        for name, splits in self._splits(counts, units).items():
            a, weight = speed.graphs[name], speed.weight(name)
            peaks = [LayerPeak(0, 0)] * self.n
            if gpus:
                peaks = self._peaks(counts, units, gpu)[name].of(self.n, leafs[name])
            shares = layer_shares(a, splits, speed.estimators[name], gpus, peaks, not any(counts))
            out = [
                Layer(
                    before.seconds + weight * share.seconds,
                    max(before.compute, share.compute),
                    max(before.before_next, share.before_next),
                    max(before.single, share.single),
                    before.changes + share.changes,
                )
                for before, share in zip(out, shares, strict=True)
            ]
        return out


def _never_falling(each: Sequence[Sequence[Layer]]) -> list[list[Layer]]:
    """Seconds and changes as little as with any more units on the CPU."""
    out = [list(each[-1])]
    for layers in reversed(each[:-1]):
        then = out[-1]
        out.append(
            [
                a._replace(seconds=min(a.seconds, b.seconds), changes=min(a.changes, b.changes))
                for a, b in zip(layers, then, strict=True)
            ]
        )
    return out[::-1]


class AlikeLayers:
    """Layers that all lie alike; sums and maxima over some of them."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self._seconds = list(accumulate((layer.seconds for layer in layers), initial=0.0))
        self._changes = list(accumulate((layer.changes for layer in layers), initial=0))
        self._before_next = _Maxima([layer.before_next for layer in layers])
        self._single = _Maxima([layer.single for layer in layers])

    def seconds(self, first: int, end: int) -> float:
        return self._seconds[end] - self._seconds[first]

    def changes(self, first: int, end: int) -> int:
        return self._changes[end] - self._changes[first]

    def single(self, first: int, end: int) -> int:
        """The largest tensor in the compute buffer."""
        return self._single.most(first, end)

    def compute(self, first: int, end: int, last: bool = True) -> int:
        """The compute buffer for these layers, if the `last` of them is the GPU's last."""
        if first >= end:
            return 0
        if not last:
            return self._before_next.most(first, end)
        return max(self._before_next.most(first, end - 1), self.layers[end - 1].compute)


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


class GpuPiece(NamedTuple):
    """What the layers of one GPU come to."""

    seconds: float
    changes: int
    compute: int
    single: int


class Pieces:
    """The layers of one device as a piece of a placement: costs and loads of pieces add up, the least room counts. Each
    number is the least that any placement with the piece has.

    `ways` are the numbers of what the layers from `first` to before `end` may spill from a GPU to the CPU, in ranges;
    the very last is all. Neither costs nor loads fall within a range. `cap` is the most that the CPU may be given.

    `extra` is added to the compute buffer of each GPU: 0 for a bound, or what plans had more than the bound, for a
    guess. `spare` has to stay free on every device, beyond the margins.
    """

    def __init__(
        self,
        placer: Placer,
        costs: Costs,
        space: Space,
        objective: Objective,
        extra: Mapping[int, int] | None = None,
        spare: int = 0,
    ) -> None:
        self.tables = costs.tables
        self.costs = costs
        self.objective = objective
        self.n = costs.n
        self.n_gpus = len(self.tables.gpus)
        self.extra = extra or {}
        margins = margins_of([gpu.name for gpu in placer.gpus], placer.cpu.name, space.margins)
        sizes = {gpu.name: gpu.memory for gpu in placer.gpus}
        self._free = [None if (size := sizes[gpu]) is None else size - margins[gpu] - spare for gpu in self.tables.gpus]
        self._largest = [placer.devices[gpu].buft.largest for gpu in self.tables.gpus]
        self._split = space.split
        self._gpus = [gpu for gpu in placer.gpus if gpu.name in self.tables.gpus]
        self._cpu = placer.cpu.name
        memory = placer.cpu.memory
        self.cap = float("inf") if memory is None else float(memory - spare)

    def start(self, first: int) -> tuple[Vector, int]:
        """What the layers before `first` cost on the CPU, and load it with."""
        tables, cpu = self.tables, self.costs.cpu
        seconds = self.costs.input + cpu.seconds(0, first)
        return self._vector(seconds, cpu.changes(0, first), tables.off_layers[first], 0), tables.before(first)

    def edge(self, gpu: int, first: int, end: int, spilled: int) -> tuple[Vector, int]:
        """What these layers cost on a GPU, and load the CPU with."""
        p = self._piece(gpu, first, end, spilled)
        tables = self.tables
        cached = tables.caches[end] - tables.caches[first]
        costs = self._vector(p.seconds, p.changes + (end > first), tables.off(gpu, first, end, spilled), cached)
        return costs, tables.on_cpu(gpu, first, end, spilled)

    def room(self, gpu: int, first: int, end: int, spilled: int) -> float:
        """What is left beyond the margin at most. The first GPU computes for layers on the CPU, too."""
        p = self._piece(gpu, first, end, spilled)
        if self._too_large(gpu, first, end, p.single):
            return float("-inf")
        compute = 0 if gpu else self.costs.cpu.compute(0, first)
        return self.weights_room(gpu, first, end, spilled) - max(p.compute, compute)

    def _too_large(self, gpu: int, first: int, end: int, single: int) -> bool:
        """Whether a tensor needs a larger buffer than the GPU makes."""
        return max(single, self.tables.single(gpu, first, end)) > self._largest[gpu]

    def most_room(self, gpu: int, first: int, end: int) -> float:
        """The same, however much spills."""
        if self._too_large(gpu, first, end, self.costs.floors[gpu].single(first, end)):
            return float("-inf")
        least = self.costs.floors[gpu].compute(first, end)
        return self.weights_room(gpu, first, end, self.ways(first, end)[-1][-1]) - least

    def weights_room(self, gpu: int, first: int, end: int, spilled: int) -> float:
        """The same without a compute buffer."""
        free = self._free[gpu]
        if free is None:
            return float("inf")
        return free - self.extra.get(gpu, 0) - self.tables.fixed[gpu] - self.tables.on_gpu(gpu, first, end, spilled)

    def ways(self, first: int, end: int) -> Sequence[range]:
        return self.tables.ways(first, end)

    def ends(self, first: int) -> Sequence[int] | None:
        """Where each GPU's layers end by a -ts that is given; None if it is not."""
        if not self._split:
            return None
        options = PlaceOptions(n_gpu_layers=self.n - first, tensor_split=self._split)
        devices = layer_devices(self.n - 1, self._gpus, self._cpu, options)
        names = [*devices.layers, devices.output]
        ends, at = [], first
        for gpu in self._gpus:
            at += names.count(gpu.name)
            ends.append(at)
        return ends

    def _piece(self, gpu: int, first: int, end: int, spilled: int) -> GpuPiece:
        key = (gpu, first, end, spilled)
        found = self.costs.pieces.get(key)
        if found is None:
            found = self.costs.pieces[key] = self._new_piece(*key)
        return found

    def _new_piece(self, gpu: int, first: int, end: int, spilled: int) -> GpuPiece:
        """What the layers from `first` to before `end` come to on a GPU if so much of theirs spills.

        Of each series some give up all units, one gives up a part, and the others none.
        """
        tables, rows = self.tables, self.costs.gpus[gpu]
        arrival = self.costs.arrivals[gpu][first] if first < end else 0.0
        of_each = zip((tables.first, tables.second), tables.of_each(first, end, spilled), strict=True)
        ends = [series.end(first, end, n) for series, n in of_each]
        cuts = sorted({first, end, *(il for il, _ in ends), *(il + 1 for il, part in ends if part)})
        runs = []
        for a, b in pairwise(cuts):
            u, t = (-1 if a < il else part if a == il else 0 for il, part in ends)
            runs.append((rows[t][u], a, b))
        return GpuPiece(
            arrival + sum(row.seconds(a, b) for row, a, b in runs),
            sum(row.changes(a, b) for row, a, b in runs),
            max((row.compute(a, b, b == end) for row, a, b in runs), default=0),
            max((row.single(a, b) for row, a, b in runs), default=0),
        )

    def _vector(self, seconds: float, changes: int, off: int, gpu_bytes: int) -> Vector:
        match self.objective:
            case "smallest":
                return (off, gpu_bytes, seconds)
            case "fewest-splits":
                return (changes, seconds)
        return (seconds,)
