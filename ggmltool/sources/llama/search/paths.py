"""Ways to put layers on devices, the most promising first: A* over the devices in their order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count, pairwise
from math import prod
from typing import NamedTuple

from ggmltool.sources.llama.search.candidates import rounded_costs
from ggmltool.sources.llama.search.costs import Pieces
from ggmltool.sources.llama.search.space import Vector


class Path(NamedTuple):
    """A choice, or its beginning: the first layer on a GPU, where each GPU's layers end, the number of what spills
    there; and the least that it costs and loads the CPU with, with the most room that the fullest GPU has left.
    """

    first: int
    ends: tuple[int, ...]
    spilled: tuple[int, ...]
    costs: Vector
    load: int
    room: float

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.first

    @property
    def counts(self) -> tuple[int, ...]:
        starts = (self.first, *self.ends)
        return tuple(end - start for start, end in zip(starts, self.ends, strict=False))


class Bound(NamedTuple):
    """What a path can come to at best: compared first by costs, then by room."""

    costs: Vector
    less_room: float


class _Rest(NamedTuple):
    """The best of what GPUs that are still to come make of the layers that are left, each by itself."""

    costs: Vector
    load: int
    room: float


class _Open(NamedTuple):
    """A path that is still to be looked at; `before` is what its last piece was added to, if more may spill there:
    what is left of its way in `more`.
    """

    bound: Bound
    number: int
    path: Path
    before: Path | None
    more: range


class Paths:
    """All paths whose layers fit by `edges`.

    Iterating gives them from the best bound on; no path that is still to come has a better one than the last. For the
    beginning of a path is tried with the least costs and the most room that any rest of it has, and no piece that is
    added costs less than nothing or makes room.
    """

    def __init__(self, edges: Pieces, firsts: Sequence[int]) -> None:
        self.edges = edges
        self.firsts = firsts
        self._fewest: list[list[dict[int, list[range]]]] = []
        self._rests = self._all_rests()

    def _all_rests(self) -> list[list[_Rest | None]]:
        """For each GPU and first layer, and after the last GPU: the best of the rest; None if none fits."""
        edges, n = self.edges, self.edges.n
        zero = tuple(0.0 for _ in edges.start(n)[0])
        table: list[list[_Rest | None]] = [[*([None] * n), _Rest(zero, 0, float("inf"))]]
        for gpu in reversed(range(edges.n_gpus)):
            rests: list[_Rest | None] = []
            fewest: list[dict[int, list[range]]] = []
            for first in range(n + 1):
                found = self._found(gpu, first, table[-1])
                rests.append(self._best(gpu, first, found, table[-1]))
                fewest.append(found)
            table.append(rests)
            self._fewest.append(fewest)
        self._fewest.reverse()
        return table[::-1]

    def _found(self, gpu: int, first: int, then: Sequence[_Rest | None]) -> dict[int, list[range]]:
        """Where the layers of a GPU may end, and the ways to spill there from where they fit on."""
        edges = self.edges
        out = {}
        for end in range(first, edges.n + 1):
            if then[end] is not None and edges.most_room(gpu, first, end) >= 0:
                ways = edges.ways(first, end)
                fitting = [some for way in ways if (some := self._fitting(gpu, first, end, way))]
                if not fitting and edges.weights_room(gpu, first, end, ways[-1][-1]) < 0:
                    break
                if fitting:
                    out[end] = fitting
        return out

    def _fitting(self, gpu: int, first: int, end: int, way: range) -> range:
        """A way from the least on that has to spill, empty if the layers do not fit whatever does."""
        edges = self.edges
        few = bisect_left(way, True, key=lambda m: edges.weights_room(gpu, first, end, m) >= 0)
        fits = (i for i in range(few, len(way)) if edges.room(gpu, first, end, way[i]) >= 0)
        return way[next(fits, len(way)) :]

    def _best(
        self, gpu: int, first: int, found: Mapping[int, Sequence[range]], then: Sequence[_Rest | None]
    ) -> _Rest | None:
        best: _Rest | None = None
        for end, ways in found.items():
            rest = then[end]
            if rest is not None:
                room = min(self.edges.most_room(gpu, first, end), rest.room)
                for way in ways:
                    costs, load = self.edges.edge(gpu, first, end, way[0])
                    costs, load = _sum(costs, rest.costs), load + rest.load
                    if best is not None:
                        costs, load = tuple(map(min, best.costs, costs)), min(best.load, load)
                    best = _Rest(costs, load, room if best is None else max(best.room, room))
        return best

    def number(self) -> int:
        """How many paths there are, those that do not fit among them."""
        edges, n = self.edges, self.edges.n
        if any(edges.ends(first) is not None for first in self.firsts):
            fixed = (pairwise((first, *(edges.ends(first) or ()))) for first in self.firsts)
            return sum(prod(self._number(a, b) for a, b in pairs) for pairs in fixed)
        ways = [0] * n + [1]
        for _ in range(edges.n_gpus):
            ways = [sum(self._number(a, b) * ways[b] for b in range(a, n + 1)) for a in range(n + 1)]
        return sum(ways[first] for first in self.firsts)

    def _number(self, first: int, end: int) -> int:
        return sum(map(len, self.edges.ways(first, end)))

    def __iter__(self) -> Iterator[tuple[Bound, Path]]:
        heap: list[_Open] = []
        numbers = count()
        for first in self.firsts:
            costs, load = self.edges.start(first)
            begun = Path(first, (), (), costs, load, float("inf"))
            if (bound := self._bound(begun)) is not None:
                heappush(heap, _Open(bound, next(numbers), begun, None, range(0)))
        while heap:
            bound, _, path, before, more = heappop(heap)
            if before is not None:
                for item in self._spilling(before, path.end, more, numbers):
                    heappush(heap, item)
            if len(path.ends) == self.edges.n_gpus:
                yield bound, path
                continue
            gpu = len(path.ends)
            found = self._fewest[gpu][path.end]
            fixed = self.edges.ends(path.first)
            for end, ways in found.items() if fixed is None else [(fixed[gpu], found.get(fixed[gpu], []))]:
                for item in (item for way in ways for item in self._spilling(path, end, way, numbers)):
                    heappush(heap, item)

    def _spilling(self, before: Path, end: int, way: range, numbers: Iterator[int]) -> Iterator[_Open]:
        """The path with layers to before `end` on the next GPU that spills the least of a way, or the next that fits.

        The last item stands for those that spill more, too. All that cost as little are items of their own, for they
        may leave more room.
        """
        here: _Open | None = None
        gpu = len(before.ends)
        for i, spilled in enumerate(way):
            costs, load = self.edges.edge(gpu, before.end, end, spilled)
            room = min(before.room, self.edges.room(gpu, before.end, end, spilled))
            ends, spills = (*before.ends, end), (*before.spilled, spilled)
            path = Path(before.first, ends, spills, _sum(before.costs, costs), before.load + load, room)
            bound = self._bound(path)
            if bound is None:
                continue
            if here is not None and here.bound.costs < bound.costs:
                break
            if here is not None:
                yield here._replace(before=None)
            here = _Open(bound, next(numbers), path, before, way[i + 1 :])
        if here is not None:
            yield here

    def _bound(self, path: Path) -> Bound | None:
        """The best that a path can come to; None if it does not fit."""
        rest = self._rests[len(path.ends)][path.end]
        if rest is None or path.room < 0 or path.load + rest.load > self.edges.cap:
            return None
        return Bound(rounded_costs(_sum(path.costs, rest.costs)), -min(path.room, rest.room))


def _sum(a: Vector, b: Vector) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))
