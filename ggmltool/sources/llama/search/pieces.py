"""Layers of one device as a piece of a placement: what A* adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggmltool.sources.llama.layers import PlaceOptions, layer_devices
from ggmltool.sources.llama.needs import margins_of
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.costs import Costs, Piece, piece
from ggmltool.sources.llama.search.objective import Objective
from ggmltool.sources.llama.search.paths import Costs as Vector
from ggmltool.sources.llama.search.space import Space


class Pieces:
    """The edges of `Paths` for a captured model: each number is the least that any placement with the piece has.

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
        self._free = [None if n is None else n - spare for n in free_of(placer, space, self.tables.gpus)]
        self._largest = [placer.devices[gpu].buft.largest for gpu in self.tables.gpus]
        self._split = space.split
        self._gpus = [gpu for gpu in placer.gpus if gpu.name in self.tables.gpus]
        self._cpu = placer.cpu.name
        memory = placer.cpu.memory
        self.cap = float("inf") if memory is None else float(memory - spare)

    def start(self, first: int) -> tuple[Vector, int]:
        """What the layers before `first` cost on the CPU, and load it with."""
        tables, cpu = self.tables, self.costs.cpu
        costs = self._vector(
            self.costs.input + cpu.seconds(0, first), cpu.changes(0, first), tables.off_layers[first], 0
        )
        return costs, tables.before(first)

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
        compute = p.compute
        if gpu == 0:
            compute = max(compute, self.costs.cpu.compute(0, first))
        return self.weights_room(gpu, first, end, spilled) - compute

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
        return None if not self._split else self._ends(first)

    def _ends(self, first: int) -> list[int]:
        options = PlaceOptions(n_gpu_layers=self.n - first, tensor_split=self._split)
        devices = layer_devices(self.n - 1, self._gpus, self._cpu, options)
        names = [*devices.layers, devices.output]
        ends, at = [], first
        for gpu in self._gpus:
            at += names.count(gpu.name)
            ends.append(at)
        return ends

    def _piece(self, gpu: int, first: int, end: int, spilled: int) -> Piece:
        key = (gpu, first, end, spilled)
        found = self.costs.pieces.get(key)
        if found is None:
            found = self.costs.pieces[key] = piece(self.costs, gpu, first, end, spilled)
        return found

    def _vector(self, seconds: float, changes: int, off: int, gpu_bytes: int) -> Vector:
        match self.objective:
            case "smallest":
                return (off, gpu_bytes, seconds)
            case "fewest-splits":
                return (changes, seconds)
        return (seconds,)


def free_of(placer: Placer, space: Space, gpus: Sequence[str]) -> list[int | None]:
    """What each GPU has for a placement: its memory without its margin; None if that is unknown."""
    names = [gpu.name for gpu in placer.gpus]
    margins = margins_of(names, placer.cpu.name, space.margins)
    memory = {gpu.name: gpu.memory for gpu in placer.gpus}
    return [None if (m := memory[gpu]) is None else m - margins[gpu] for gpu in gpus]
