"""What each layer needs on each device, added up once for all placements of a captured model."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ggmltool.sources.llama.place.options import ALL, PlaceOptions, chosen_gpus
from ggmltool.sources.llama.place.place import Placer, TensorPlace
from ggmltool.sources.llama.search.space import PARTS, Choice, Space, Spill, pattern


class Tables:
    """Bytes of weights and caches that every placement of a model has at least, by device and layer.

    `gpus` name the GPUs in llama.cpp's order; the output is the layer after the last. Experts and dense feed-forward
    weights spill each for themselves: `first` is what spills part by part, the experts if the model has any, and
    `second` the dense weights beside them, which spill by whole layers. How much of both the layers of a device give up
    is one number, in `ways`.

    A weight goes where its own layer goes, whatever other layers do: so the sums over a device's layers are exact but
    for padding, which only adds. That makes them lower bounds of what the device needs.
    """

    def __init__(self, placer: Placer, space: Space) -> None:
        self.placer = placer
        self.base = replace(space.base, tensor_split=())
        self.gpus = [gpu.name for gpu in chosen_gpus(placer.gpus, space.base)]
        self.cpu = placer.cpu.name
        self.n = placer.parts.n_layer + 1
        # The device of each buffer type: a GPU's own, and for all else the CPU, whose memory pinned memory is.
        own = {placer.devices[d.name].buft.name: d.name for d in (*placer.gpus, *placer.accels)}
        self.owners = {name: own.get(name, self.cpu) for name in placer.bufts}
        on_cpu = self._entries(replace(self.base, n_gpu_layers=0))
        on_gpus = []
        for gpu in self.gpus:
            alone = tuple(float(gpu == other) for other in self.gpus) if len(self.gpus) > 1 else ()
            on_gpus.append(self._entries(replace(self.base, n_gpu_layers=ALL, tensor_split=alone)))
        units = _units(on_gpus[0], space, self.n) if on_gpus else {}
        kinds = sorted(({u.experts for u in units.values()}), reverse=True)
        given = [
            sorted({u for u in units.values() if u.experts is kind}, key=lambda u: (u.layer, PARTS.index(u.parts[0])))
            for kind in (*kinds, None, None)
        ]
        self._single: list[list[int]] = []
        self.fixed: list[int] = []
        self.layers: list[list[int]] = []
        spilled: list[dict[Spill, int]] = []
        for i, gpu in enumerate(self.gpus):
            mine = self._bytes(on_gpus[i], gpu)
            others = [self._bytes(e, gpu) for j, e in enumerate((on_cpu, *on_gpus)) if j != i + 1]
            # What lies there wherever the layer is: the user's overrides say so.
            fixed = [min(each) for each in zip(mine, *others, strict=True)]
            self.fixed.append(sum(fixed))
            self.layers.append(list(accumulate((n - f for n, f in zip(mine, fixed, strict=True)), initial=0)))
            single = [0] * self.n
            spilled.append(dict.fromkeys(units.values(), 0))
            for t in (t for t in on_gpus[i] if self.owners.get(t.buft) == gpu):
                il = _layer_of(t, self.n)
                if t.id in units:
                    spilled[i][units[t.id]] += t.nbytes
                elif il is not None:
                    single[il] = max(single[il], t.nbytes)
            self._single.append(single)
        self.first, self.second = (Series(each, self.n, spilled) for each in given[:2])
        self._cpu_layers = list(accumulate(self._bytes(on_cpu, self.cpu), initial=0))
        self._cpu_always = [list(accumulate(self._bytes(e, self.cpu), initial=0)) for e in on_gpus]
        self.off_layers = list(accumulate(self._bytes(on_cpu, self.cpu, "weight"), initial=0))
        self.caches = list(accumulate(_sum(on_cpu, self.n, lambda t: t.kind == "cache"), initial=0))
        self.input = sum(
            t.nbytes for t in on_cpu if _layer_of(t, self.n) is None and self.owners.get(t.buft) == self.cpu
        )

    def _entries(self, options: PlaceOptions) -> Sequence[TensorPlace]:
        return self.placer.place(replace(options, parallel=False)).tensors

    def _bytes(self, entries: Iterable[TensorPlace], device: str, kind: str = "") -> list[int]:
        """What lies on a device, by layer."""
        return _sum(entries, self.n, lambda t: self.owners.get(t.buft) == device and kind in ("", t.kind))

    def single(self, gpu: int, first: int, end: int) -> int:
        """The largest weight or cache of these layers that is on the GPU however much spills."""
        return max(self._single[gpu][first:end], default=0)

    def on_gpu(self, gpu: int, first: int, end: int, spilled: int) -> int:
        """The least that the layers from `first` to before `end` need on a GPU if so much of theirs spills."""
        layers = self.layers[gpu]
        return layers[end] - layers[first] - self.off(gpu, first, end, spilled)

    def on_cpu(self, gpu: int, first: int, end: int, spilled: int) -> int:
        """The least that they need on the CPU."""
        always = self._cpu_always[gpu]
        return always[end] - always[first] + self.off(gpu, first, end, spilled)

    def off(self, gpu: int, first: int, end: int, spilled: int) -> int:
        """The bytes that these layers spill."""
        one, two = self.of_each(first, end, spilled)
        return self.first.nbytes(gpu, first, one) + self.second.nbytes(gpu, first, two)

    def ways(self, first: int, end: int) -> list[range]:
        """The numbers of what these layers may spill: a range for each number of units of `second`, of `first` within.

        The last number stands for all of them.
        """
        step = self.first.number(first, end) + 1
        return [range(i * step, (i + 1) * step) for i in range(self.second.number(first, end) + 1)]

    def of_each(self, first: int, end: int, spilled: int) -> tuple[int, int]:
        """The units of `first` and of `second` that a number stands for."""
        if not self.second.units:
            return spilled, 0
        two, one = divmod(spilled, self.first.number(first, end) + 1)
        return one, two

    def before(self, first: int) -> int:
        """The least that the layers before `first` and the input need on the CPU."""
        return self.input + self._cpu_layers[first]

    def alike(self, counts: Sequence[int], one: int, two: int) -> Choice:
        """The choice in which every layer on a GPU gives up so many units of each series, or all if it has fewer."""
        spills: list[Spill] = []
        for il in range(self.n - sum(counts), self.n):
            for series, many in ((self.first, one), (self.second, two)):
                spills += series.spills(il, il + 1, min(many, series.number(il, il + 1)))
        return Choice(tuple(counts), tuple(spills))

    def choice(self, counts: Sequence[int], spilled: Sequence[int]) -> Choice:
        """The choice in which each GPU's layers spill so much."""
        spills: list[Spill] = []
        first = self.n - sum(counts)
        for count, many in zip(counts, spilled, strict=True):
            end = first + count
            for series, n in zip((self.first, self.second), self.of_each(first, end, many), strict=True):
                spills += series.spills(first, end, n)
            first = end
        return Choice(tuple(counts), tuple(spills))


class Series:
    """Units of one kind in the order in which a device's layers give them up, first those of its first layer."""

    def __init__(self, units: Sequence[Spill], n: int, nbytes: Sequence[Mapping[Spill, int]]) -> None:
        self.units = units
        self.n = n
        self._starts = list(accumulate((sum(u.layer == il for u in units) for il in range(n)), initial=0))
        self._sums = [list(accumulate((each[u] for u in units), initial=0)) for each in nbytes]

    @property
    def most(self) -> int:
        """The most units of one layer."""
        return max((self.number(il, il + 1) for il in range(self.n)), default=0)

    def number(self, first: int, end: int) -> int:
        """How many units these layers have."""
        return self._starts[end] - self._starts[first]

    def nbytes(self, gpu: int, first: int, many: int) -> int:
        """The bytes of so many units on a GPU, from those of the layer `first` on."""
        sums, at = self._sums[gpu], self._starts[first]
        return sums[at + many] - sums[at]

    def end(self, first: int, end: int, many: int) -> tuple[int, int]:
        """Where the layers end that give up all, if these give up so many units, and how many the next one does."""
        if not many:
            return first, 0
        at = self._starts[first] + many
        il = min(max(bisect_right(self._starts, at) - 1, first), end)
        return il, at - self._starts[il] if il < end else 0

    def spills(self, first: int, end: int, many: int) -> list[Spill]:
        """The first units of these layers; a layer without such weights gives up all that it has not."""
        if not many:
            return []
        last = self._starts[first] + many
        out = []
        for il in range(first, end):
            if self._starts[il] >= last:
                break
            given = self.units[self._starts[il] : min(self._starts[il + 1], last)]
            parts = PARTS if self._starts[il + 1] <= last else tuple(p for u in given for p in u.parts)
            out.append(Spill(il, self.units[0].experts, parts))
        return out


def _sum(entries: Iterable[TensorPlace], n: int, counts: Callable[[TensorPlace], bool]) -> list[int]:
    """The bytes of what counts, by layer."""
    out = [0] * n
    for t in entries:
        il = _layer_of(t, n)
        if il is not None and counts(t):
            out[il] += t.nbytes
    return out


def _layer_of(t: TensorPlace, n: int) -> int | None:
    """The layer that a weight or a cache goes with; the output's is the last, None is the input's."""
    if t.layer == "output":
        return n - 1
    return min(int(t.layer), max(n - 2, 0)) if t.layer.isdecimal() else None


_PATTERNS = {
    (experts, part): re.compile(pattern(r"\d+", experts, [part])) for experts in (True, False) for part in PARTS
}


def _units(entries: Iterable[TensorPlace], space: Space, n: int) -> dict[str, Spill]:
    """The unit of each weight that may spill, by its id: not of those that the user's overrides place.

    Without `parts` in the space all of a layer spills at once, and so do dense weights of a model with experts.
    """
    found: dict[str, tuple[int, bool, str]] = {}
    has_experts = False
    for t in entries:
        il = _layer_of(t, n)
        kind = next((key for key, pattern in _PATTERNS.items() if pattern.search(t.name)), None)
        if t.kind != "weight" or il is None or t.layer == "output" or kind is None:
            continue
        has_experts |= kind[0]
        if not t.rule.startswith("-") and (space.experts if kind[0] else space.dense):
            found[t.id] = il, *kind
    return {
        id: Spill(il, experts, (part,) if space.parts and (experts or not has_experts) else PARTS)
        for id, (il, experts, part) in found.items()
    }
