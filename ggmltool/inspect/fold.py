"""A plan with its repeated layers folded: what is drawn once, what it stands for, and the edges between.

A piece `[start, start + period)` of the graph's order repeats when the nodes at the same place of every repetition have
equal keys and read the same place of their own repetition, the same place of the one before, or the same node before
them all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.plan import LeafPlan, Plan
from ggmltool.scenario.tensor_info import Tensors

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
            folds = sorted(chosen)
            ends = [low, *(run.end for run in folds)]
            gaps = list(zip(ends, [*(run.start for run in folds), high], strict=True))
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


_NUMBER = re.compile(r"(\d+)")
_LAYER = re.compile(r"(?:\bblk\.([0-9]{1,6})\.|-([0-9]{1,6})(?=$|[ ~#]))")


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded plan. Keys name what is drawn: `n<index>` nodes, `l<index>` leafs, `c<number>` copies.

    `members` are the ids of the tensors that each stands for (for copies: those that are copied), `key_of` the key of
    every node and leaf, `copies` that of every copied tensor on a backend; `edges` counts the edges that a drawn one
    stands for. Every tensor and every copy is in exactly one, as is every edge.
    """

    items: tuple[Item, ...]
    members: dict[str, list[str]]
    key_of: dict[str, str]
    copies: dict[tuple[str, str], str]
    edges: Counter[tuple[str, str]]


def fold_plan(plan: Plan, tensors: Tensors) -> Folded:
    """Fold a plan's repeated pieces: equal ops, types, shapes, edges, backends and borders of splits."""
    items = fold(fold_nodes(plan, tensors))
    members = {f"n{i}": [plan.nodes[k].id for k in all] for i, all in unfolded(items)}
    key_of = {id: key for key, ids in members.items() for id in ids}
    for group in _leaf_groups(plan, tensors, key_of, members):
        members[f"l{group[0].index}"] = [leaf.id for leaf in group]
    key_of = {id: key for key, ids in members.items() for id in ids}
    keys: dict[tuple[str, str], str] = {}  # one for the copies of what is drawn as one, on one backend
    copies: dict[tuple[str, str], str] = {}
    for split in plan.splits:
        for of in split.inputs:
            copies[of, split.backend] = keys.setdefault((key_of[of], split.backend), f"c{len(keys)}")
    for (of, _), key in copies.items():
        members.setdefault(key, []).append(of)
    edges: Counter[tuple[str, str]] = Counter()
    for node in plan.nodes:
        backend = plan.splits[node.split].backend
        for written, src in zip(tensors[node.id].src, node.src, strict=False):
            if written is not None and written != node.id:
                copy = copies.get((written, backend)) if src != written else None
                edges[copy or key_of[written], key_of[node.id]] += 1
    return Folded(items, members, key_of, copies, edges)


def fold_nodes(plan: Plan, tensors: Tensors) -> list[FoldNode]:
    """What has to be equal in nodes that are folded: all but names, numbers, op parameters and the types of weights.

    Types of weights differ from layer to layer in most quantized models, and the same layers they are still.
    """
    place = {node.id: node.index for node in plan.nodes}
    leafs = {leaf.id: leaf for leaf in plan.leafs}
    out = []
    for node in plan.nodes:
        info, split = tensors[node.id], plan.splits[node.split]
        kinds: list[tuple[object, ...] | None] = []
        sources: list[int] = []
        for written, src in zip(info.src, node.src, strict=False):
            if written is None or written == node.id:
                kinds.append(None)
            elif written in place:
                sources.append(place[written])
                kinds.append((tensors[written].type, tensors[written].ne))
            else:
                leaf = leafs[written]
                kinds.append((tensors[written].ne, leaf.backend, leaf.buffer, leaf.usage, src != written))
        key = (info.op, node.type, node.ne, node.backend, split.backend, tuple(kinds))
        out.append(FoldNode(key, tuple(sources), split.i_start == node.index))
    return out


def _leaf_groups(
    plan: Plan, tensors: Tensors, key_of: dict[str, str], members: dict[str, list[str]]
) -> Iterable[list[LeafPlan]]:
    """Leafs that the same drawn nodes read in different repetitions, such as one weight of every layer."""
    uses: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in plan.nodes:
        for j, src in enumerate(tensors[node.id].src):
            if src is not None and src not in key_of:
                uses[src].append((key_of[node.id], j))
    groups: dict[object, list[LeafPlan]] = {}
    for leaf in plan.leafs:
        by = uses[leaf.id]
        own = by and len(set(by)) == len(by) and all(len(members[key]) > 1 for key, _ in by)
        alike = (frozenset(by), tensors[leaf.id].ne, leaf.backend, leaf.buffer, leaf.usage) if own else leaf.id
        groups.setdefault(alike, []).append(leaf)
    return groups.values()


def masked(names: Sequence[str]) -> str:
    """One name for several: the numbers in which they differ become N; empty if they differ otherwise too.

    >>> masked(["blk.0.attn_q", "blk.1.attn_q"]), masked(["pos", "pos"]), masked(["a", "b"])
    ('blk.N.attn_q', 'pos', '')
    """
    parts = [_NUMBER.split(name) for name in names]
    if any(part[::2] != parts[0][::2] for part in parts):
        return ""
    return "".join(column[0] if len(set(column)) == 1 else "N" for column in zip(*parts, strict=True))


def layers(names: Iterable[str]) -> str:
    """Which layers the names of llama.cpp speak of: `layers 0–8`, or nothing."""
    found = [number for name in names if (number := layer_of(name)) is not None]
    if not found:
        return ""
    low, high = min(found), max(found)
    return f"layer {low}" if low == high else f"layers {low}–{high}"


def layer_of(name: str) -> int | None:
    """The layer that a name of llama.cpp speaks of: of a weight, of a node, of a view or a copy of them.

    >>> layer_of("blk.3.attn_q.weight"), layer_of("Kcur-12 (view)"), layer_of("CUDA0#ffn_inp-2#0"), layer_of("norm")
    (3, 12, 2, None)
    """
    match = _LAYER.search(name)
    return None if match is None else int(match[1] or match[2])


class LayerSpan(NamedTuple):
    """Nodes `[start, end)` of a layer."""

    start: int
    end: int
    layer: int


def layer_spans(names: Sequence[str]) -> Iterator[LayerSpan]:
    """Where the layers of a model begin, by the names of nodes in their order. Each next one, or 0 for another stack of
    them, ends the one before; the last ends with its last name.

    >>> [tuple(span) for span in layer_spans(["embd", "q-0", "x", "q-1", "out-1", "norm"])]
    [(1, 3, 0), (3, 5, 1)]
    """
    start, current, end = 0, -1, 0
    for place, name in enumerate(names):
        found = layer_of(name)
        if found == current:
            end = place + 1
        elif found is not None and (found > current or found == 0):
            if current >= 0:
                yield LayerSpan(start, place, current)
            start, current, end = place, found, place + 1
    if current >= 0:
        yield LayerSpan(start, end, current)
