"""Repeated pieces of a graph, found by its structure: layers that follow each other and differ in their weights only.

A piece `[start, start + period)` of the graph's order repeats when the nodes at the same place of every repetition have
equal keys and read the same place of their own repetition, the same place of the one before, or the same node before
them all. What a key holds (op, type, shape, backend, whether a split starts …) is the caller's choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

SHORTEST = 6
"""Nodes that a piece has at least: shorter repetitions read better as they are."""

_WINDOW = 6
_PERIODS = 24
_ROUNDS = 4
_PHASES = 8


class FoldNode(NamedTuple):
    """A node to fold: `src` are the places of the nodes it reads, each before its own; leafs have no place.

    `border`: something, such as a split, begins with this node. Pieces have their borders at the same places, but the
    first may begin with one that the others lack: what comes before it differs anyway.
    """

    key: Hashable
    src: tuple[int, ...]
    border: bool = False


class Fold(NamedTuple):
    """`times` repetitions of the `period` nodes from `start` on; `body` is the first of them, folded in turn."""

    start: int
    period: int
    times: int
    body: tuple[int | Fold, ...]

    @property
    def end(self) -> int:
        return self.start + self.period * self.times


Item = int | Fold


def fold(nodes: Sequence[FoldNode]) -> tuple[Item, ...]:
    """The graph with its repeated pieces folded, in its order; takes time linear in its size but for a logarithm."""
    return _Folder(nodes).within(0, len(nodes))


def unfolded(items: Iterable[Item], offsets: Sequence[int] = (0,)) -> Iterator[tuple[int, list[int]]]:
    """Every node that is drawn, with all the nodes that it stands for: itself first."""
    for item in items:
        if isinstance(item, int):
            yield item, [item + offset for offset in offsets]
        else:
            steps = [n * item.period for n in range(item.times)]
            yield from unfolded(item.body, [offset + step for offset in offsets for step in steps])


class _Folder:
    def __init__(self, nodes: Sequence[FoldNode]) -> None:
        numbers: dict[Hashable, int] = {}
        self.plain = [numbers.setdefault((node.key, len(node.src)), len(numbers)) for node in nodes]
        self.keys = [2 * key + node.border for key, node in zip(self.plain, nodes, strict=True)]
        self.src = [node.src for node in nodes]
        self.crossing = _crossing(self.src)

    def within(self, low: int, high: int) -> tuple[Item, ...]:
        """`[low, high)` folded. Folds that save most come first; what is left between them is searched again."""
        chosen: list[Fold] = []
        gaps = [(low, high)]
        for _ in range(_ROUNDS):
            found = [run for gap in gaps for run in self.in_gap(*gap)]
            if not found:
                break
            chosen += found
            gaps = _between(low, high, sorted(chosen))
        items: list[Item] = []
        at = low
        for start, period, times, _ in sorted(chosen):
            items += range(at, start)
            items.append(Fold(start, period, times, self.within(start, start + period)))
            at = start + period * times
        return (*items, *range(at, high))

    def in_gap(self, low: int, high: int) -> list[Fold]:
        """The repetitions in `[low, high)` that save most and do not overlap; their bodies are still empty."""
        runs = [run for period in self.periods(low, high) for run in self.runs(low, high, period)]
        runs.sort(key=lambda run: (-run.period * (run.times - 1), run.period, run.start))
        taken: list[Fold] = []
        free = bytearray(b"\1") * (high - low)
        for run in runs:
            if all(free[run.start - low : run.end - low]):
                free[run.start - low : run.end - low] = bytes(run.end - run.start)
                taken.append(run)
        return taken

    def periods(self, low: int, high: int) -> list[int]:
        """The commonest distances between two places where the same few nodes follow each other."""
        last: dict[tuple[int, ...], int] = {}
        distances: Counter[int] = Counter()
        for i in range(low, high - _WINDOW + 1):
            window = tuple(self.keys[i : i + _WINDOW])
            if window in last:
                distances[i - last[window]] += 1
            last[window] = i
        return [d for d, _ in distances.most_common(_PERIODS) if d >= SHORTEST]

    def runs(self, low: int, high: int, period: int) -> Iterator[Fold]:
        """Where nodes and those one period on are alike for at least a period."""
        i = low
        while i + period < high:
            first = i
            while i + period < high and self.keys[i] == self.keys[i + period]:
                i += 1
            if first > low and self.plain[first - 1] == self.plain[first - 1 + period]:
                first -= 1
            if i - first >= period and (run := self.best_cut(first, i + period, period)):
                yield run
                i = max(first + 1, run.end - period)
            i += 1

    def best_cut(self, first: int, end: int, period: int) -> Fold | None:
        """Where to cut a run into pieces: where the fewest tensors cross from one to the next, as between layers."""

        def cost(start: int) -> tuple[int, int, int]:
            return self.crossing[start + period], -((end - start) // period), start

        best: Fold | None = None
        starts = range(first, min(first + period, end - 2 * period) + 1)
        for start in sorted(starts, key=cost)[:_PHASES]:
            times = self.repetitions(start, period, (end - start) // period)
            if times > 1 and (best is None or times > best.times + 1):
                best = Fold(start, period, times, ())
        return best

    def repetitions(self, start: int, period: int, most: int) -> int:
        """How many repetitions from `start` on read alike."""
        for n in range(1, most):
            first = start + n * period
            if not all(self.alike(i, start, first, period) for i in range(first, first + period)):
                return n
        return most

    def alike(self, i: int, start: int, first: int, period: int) -> bool:
        """Whether the node reads what its counterpart one repetition before reads; `first` is where its own starts."""
        for here, before in zip(self.src[i], self.src[i - period], strict=True):
            if here >= first:
                same = here - period == before
            elif here < start:
                same = here == before
            elif first == start + period:
                same = before < start
            else:
                same = here >= first - period and here - period == before
            if not same:
                return False
        return True


def _crossing(src: Sequence[tuple[int, ...]]) -> list[int]:
    """For every place how many nodes before it are read at it or after it."""
    last = list(range(len(src)))
    for i, sources in enumerate(src):
        for k in sources:
            last[k] = i
    change = [0] * (len(src) + 2)
    for k, end in enumerate(last):
        change[k + 1] += 1
        change[end + 1] -= 1
    out, crossing = [], 0
    for step in change:
        crossing += step
        out.append(crossing)
    return out


def _between(low: int, high: int, folds: Iterable[Fold]) -> list[tuple[int, int]]:
    gaps = []
    for run in folds:
        gaps.append((low, run.start))
        low = run.end
    return [*gaps, (low, high)]
