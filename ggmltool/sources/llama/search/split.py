"""-ts auto: how GPUs share the layers so that the fullest of them has the most memory left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.layers import PlaceOptions, chosen_gpus
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.needs import Needs
from ggmltool.sources.llama.place import Placement

_MOST_PLANS = 60

Counts = tuple[int, ...]
"""Layers on each GPU, the output's among them: as -ts, they make llama.cpp split just so."""


def best_split(measurer: Measurer, options: PlaceOptions, margins: Sequence[int] = (0,)) -> tuple[Counts, Needs]:
    """The layers on each GPU that leave the fullest of them most room, and what comes of that; () for one GPU.

    Raises PlaceError, also if the memory of a GPU is unknown.
    """
    placer = measurer.placer
    gpus = chosen_gpus(placer.gpus, options)
    if len(gpus) < 2 or not options.n_gpu(placer.parts.n_layer):
        return (), measurer.needs(options, margins)
    unknown = next((gpu.name for gpu in gpus if gpu.memory is None), None)
    if unknown is not None:
        raise PlaceError(f"-ts auto needs the memory of each GPU: --device {unknown}:24GiB")
    return _Search(measurer, options, margins, [gpu.name for gpu in gpus]).best()


class _Search:
    """The search of one placement. `tried` has every split that was planned.

    What layers need is added up, and the best shares are found for compute buffers as large as in the last plan; those
    are planned, until nothing new comes of it. Then layers are moved from the fullest GPU to others, one at a time, for
    as long as that helps.
    """

    def __init__(self, measurer: Measurer, options: PlaceOptions, margins: Sequence[int], gpus: list[str]) -> None:
        self.measurer = measurer
        self.placer = placer = measurer.placer
        self.options = options
        self.margins = margins
        self.gpus = gpus
        n_layer = placer.parts.n_layer
        self.n = min(options.n_gpu(n_layer), n_layer + 1)
        self.first = n_layer + 1 - self.n
        self.tried: dict[Counts, Needs] = {}

    def best(self) -> tuple[Counts, Needs]:
        n, k = self.n, len(self.gpus)
        counts = tuple(n * (i + 1) // k - n * i // k for i in range(k))
        needs = self.plan(counts)
        layers = list(accumulate(self.layers(self.placer.place(self.given(counts))), initial=0))
        while True:
            counts = self.shares(layers, self.free(counts, needs, layers))
            if counts in self.tried:
                break
            needs = self.plan(counts)
        counts = max(self.tried, key=self.room)
        while len(self.tried) < _MOST_PLANS:
            better = max(self.moved(counts), key=self.room, default=counts)
            if self.room(better) <= self.room(counts):
                break
            counts = better
        return counts, self.tried[counts]

    def given(self, counts: Counts) -> PlaceOptions:
        """The options with these shares."""
        return replace(self.options, tensor_split=tuple(map(float, counts)))

    def plan(self, counts: Counts) -> Needs:
        """What becomes of these shares; planned once."""
        if counts not in self.tried:
            self.tried[counts] = self.measurer.needs(self.given(counts), self.margins)
        return self.tried[counts]

    def room(self, counts: Counts) -> tuple[int, ...]:
        """What each GPU has left beyond its margin, the fullest first: the more, the better."""
        room = self.plan(counts).room
        return tuple(sorted(room[gpu] for gpu in self.gpus))

    def layers(self, placement: Placement) -> list[int]:
        """Bytes of each layer that is on a GPU: its weights and caches that go where it goes."""
        bufts = {self.placer.devices[gpu].buft.name for gpu in self.gpus}
        out = [0] * self.n
        for t in placement.tensors:
            il = self.first + self.n - 1 if t.layer == "output" else int(t.layer) if t.layer.isdecimal() else -1
            if t.buft in bufts and il >= self.first and not t.rule.startswith("-"):
                out[min(il - self.first, self.n - 1)] += t.nbytes
        return out

    def free(self, counts: Counts, needs: Needs, layers: Sequence[int]) -> list[int]:
        """What each GPU has for layers, if all else takes what it takes in this plan."""
        ends = list(accumulate(counts, initial=0))
        room = needs.room
        return [room[gpu] + layers[ends[i + 1]] - layers[ends[i]] for i, gpu in enumerate(self.gpus)]

    def shares(self, layers: Sequence[int], free: Sequence[int]) -> Counts:
        """The shares that leave most room on the fullest GPU; `layers` are sums of bytes up to each."""
        n = self.n
        # For the first GPUs and the first layers: the most room of the fullest, and how many layers the last one has.
        best = [(free[0] - layers[m], m) for m in range(n + 1)]
        taken = [[count for _, count in best]]
        for more in free[1:]:
            best = [
                max((min(best[m - c][0], more - layers[m] + layers[m - c]), c) for c in range(m + 1))
                for m in range(n + 1)
            ]
            taken.append([count for _, count in best])
        counts: list[int] = []
        for row in reversed(taken):
            counts.append(row[n])
            n -= row[n]
        return tuple(reversed(counts))

    def moved(self, counts: Counts) -> Iterator[Counts]:
        """The shares with one layer less on the fullest GPU."""
        room: Mapping[str, int] = self.plan(counts).room
        fullest = min(range(len(counts)), key=lambda i: room[self.gpus[i]])
        for other in range(len(counts)):
            if other != fullest and counts[fullest]:
                step = list(counts)
                step[fullest] -= 1
                step[other] += 1
                yield tuple(step)
