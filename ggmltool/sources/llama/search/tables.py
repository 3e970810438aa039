"""What each layer needs on each device, added up once for all placements of a captured model."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ggmltool.sources.llama.layers import ALL, PlaceOptions, chosen_gpus
from ggmltool.sources.llama.place import Placer, TensorPlace
from ggmltool.sources.llama.search.choice import PARTS, Choice, Spill, pattern
from ggmltool.sources.llama.search.space import Space


@dataclass(frozen=True, slots=True)
class Unit:
    """Parts of a layer's experts or dense feed-forward weights that may stay on the CPU while their layer does not."""

    layer: int
    experts: bool
    parts: tuple[str, ...]


class Tables:
    """Bytes of weights and caches that every placement of a model has at least, by device and layer.

    `gpus` name the GPUs in llama.cpp's order; the output is the layer after the last. `units` are what may spill, in
    the order in which a device's layers give it up, first those of its first layer; `starts[il]` is how many belong to
    layers before `il`.

    A weight goes where its own layer goes, whatever other layers do: so the sums over a device's layers are exact but
    for padding, which only adds. That makes them lower bounds of what the device needs.
    """

    def __init__(self, placer: Placer, space: Space) -> None:
        self.placer = placer
        self.base = replace(space.base, tensor_split=())
        self.gpus = [gpu.name for gpu in chosen_gpus(placer.gpus, space.base)]
        self.cpu = placer.cpu.name
        self.n = placer.parts.n_layer + 1
        self.owners = self._owned()
        on_cpu = self._entries(replace(self.base, n_gpu_layers=0))
        on_gpus = [self._entries(_all_on(self.base, i, len(self.gpus))) for i in range(len(self.gpus))]
        self.units = _units(on_gpus[0], space, self.n) if on_gpus else []
        self.starts = list(accumulate((sum(u.layer == il for u in self.units) for il in range(self.n)), initial=0))
        at = {unit: i for i, unit in enumerate(self.units)}
        self.fixed: list[int] = []
        self.layers: list[list[int]] = []
        self.spills: list[list[int]] = []
        for i, gpu in enumerate(self.gpus):
            mine = self._bytes(on_gpus[i], gpu)
            others = [self._bytes(e, gpu) for j, e in enumerate((on_cpu, *on_gpus)) if j != i + 1]
            # What lies there wherever the layer is: the user's overrides say so.
            fixed = [min(each) for each in zip(mine, *others, strict=True)]
            self.fixed.append(sum(fixed))
            self.layers.append(list(accumulate((n - f for n, f in zip(mine, fixed, strict=True)), initial=0)))
            spilled = [0] * len(self.units)
            for t in on_gpus[i]:
                unit = _unit_of(t, self.n, space.parts)
                if unit in at and self.owners.get(t.buft) == gpu:
                    spilled[at[unit]] += t.nbytes
            self.spills.append(list(accumulate(spilled, initial=0)))
        self._cpu_layers = list(accumulate(self._bytes(on_cpu, self.cpu), initial=0))
        self._cpu_always = [list(accumulate(self._bytes(e, self.cpu), initial=0)) for e in on_gpus]
        self.off_layers = list(accumulate(self._bytes(on_cpu, self.cpu, "weight"), initial=0))
        self.caches = list(accumulate(_sum(on_cpu, self.n, lambda t: t.kind == "cache"), initial=0))
        self.input = sum(
            t.nbytes for t in on_cpu if _layer_of(t, self.n) is None and self.owners.get(t.buft) == self.cpu
        )

    def _owned(self) -> dict[str, str]:
        """The device of each buffer type: a GPU's own, and for all else the CPU, whose memory pinned memory is."""
        placer = self.placer
        own = {placer.devices[d.name].buft.name: d.name for d in (*placer.gpus, *placer.accels)}
        return {name: own.get(name, self.cpu) for name in placer.bufts}

    def _entries(self, options: PlaceOptions) -> Sequence[TensorPlace]:
        return self.placer.place(replace(options, parallel=False)).tensors

    def _bytes(self, entries: Iterable[TensorPlace], device: str, kind: str = "") -> list[int]:
        """What lies on a device, by layer."""
        return _sum(entries, self.n, lambda t: self.owners.get(t.buft) == device and kind in ("", t.kind))

    def on_gpu(self, gpu: int, first: int, end: int, spilled: int) -> int:
        """The least that the layers from `first` to before `end` need on a GPU if so many of their units spill."""
        layers, units, at = self.layers[gpu], self.spills[gpu], self.starts[first]
        return layers[end] - layers[first] - units[at + spilled] + units[at]

    def on_cpu(self, gpu: int, first: int, end: int, spilled: int) -> int:
        """The least that they need on the CPU."""
        always = self._cpu_always[gpu]
        return always[end] - always[first] + self.off(gpu, first, spilled)

    def off(self, gpu: int, first: int, spilled: int) -> int:
        """The bytes of so many units, from those of the layer `first` on."""
        units, at = self.spills[gpu], self.starts[first]
        return units[at + spilled] - units[at]

    def before(self, first: int) -> int:
        """The least that the layers before `first` and the input need on the CPU."""
        return self.input + self._cpu_layers[first]

    def layer_at(self, unit: int, first: int, end: int) -> int:
        """The layer, from `first` on, that the unit of this number is of; `end` if it is of none before that."""
        return min(max(bisect_right(self.starts, unit) - 1, first), end)

    def alike(self, counts: Sequence[int], units: int) -> Choice:
        """The choice in which every layer on a GPU gives up so many units, or all if it has fewer."""
        spills: list[Spill] = []
        for il in range(self.n - sum(counts), self.n):
            spills += self._spills(il, il + 1, min(units, self.starts[il + 1] - self.starts[il]))
        return Choice(tuple(counts), tuple(spills))

    def choice(self, counts: Sequence[int], spilled: Sequence[int]) -> Choice:
        """The choice in which each GPU's layers give up so many units."""
        spills: list[Spill] = []
        first = self.n - sum(counts)
        for count, many in zip(counts, spilled, strict=True):
            spills += self._spills(first, first + count, many)
            first += count
        return Choice(tuple(counts), tuple(spills))

    def _spills(self, first: int, end: int, many: int) -> list[Spill]:
        """The first units of these layers; a layer without such weights gives up all that it has not."""
        if not many:
            return []
        last = self.starts[first] + many
        kinds = sorted({unit.experts for unit in self.units}, reverse=True)
        out = []
        for il in range(first, end):
            if self.starts[il] >= last:
                break
            all_ = self.starts[il + 1] <= last
            given = self.units[self.starts[il] : min(self.starts[il + 1], last)]
            for experts in kinds:
                parts = PARTS if all_ else tuple(p for u in given if u.experts is experts for p in u.parts)
                out += [Spill(il, experts, parts)] if parts else []
        return out


def _sum(entries: Iterable[TensorPlace], n: int, counts: Callable[[TensorPlace], bool]) -> list[int]:
    """The bytes of what counts, by layer."""
    out = [0] * n
    for t in entries:
        il = _layer_of(t, n)
        if il is not None and counts(t):
            out[il] += t.nbytes
    return out


def _all_on(base: PlaceOptions, gpu: int, n: int) -> PlaceOptions:
    """All layers on one GPU of several."""
    return replace(base, n_gpu_layers=ALL, tensor_split=tuple(float(i == gpu) for i in range(n)) if n > 1 else ())


def _layer_of(t: TensorPlace, n: int) -> int | None:
    """The layer that a weight or a cache goes with; the output's is the last, None is the input's."""
    if t.layer == "output":
        return n - 1
    return min(int(t.layer), max(n - 2, 0)) if t.layer.isdecimal() else None


_PATTERNS = {
    (experts, part): re.compile(pattern(r"\d+", experts, [part])) for experts in (True, False) for part in PARTS
}


def _unit_of(t: TensorPlace, n: int, parts: bool) -> Unit | None:
    """The unit that a weight is of; None for one that the user's overrides place, or that is of no layer."""
    il = _layer_of(t, n)
    if t.kind != "weight" or il is None or t.layer == "output" or t.rule.startswith("-"):
        return None
    found = next((key for key, pattern in _PATTERNS.items() if pattern.search(t.name)), None)
    return Unit(il, found[0], (found[1],) if parts else PARTS) if found else None


def _units(entries: Iterable[TensorPlace], space: Space, n: int) -> list[Unit]:
    """What may spill, layer by layer, experts first; without `parts`, all of a layer at once."""
    found = {unit for t in entries if (unit := _unit_of(t, n, space.parts)) is not None}
    wanted = [u for u in found if (space.experts if u.experts else space.dense)]
    return sorted(wanted, key=lambda u: (u.layer, not u.experts, PARTS.index(u.parts[0])))
