"""Which tensor and which split of one plan is which of another, and what is copied for them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ask.diff.record import Amount, CopiesPair, CopyPair, SplitPair, SplitSide
from ggmltool.ask.diff.side import DiffSide
from ggmltool.ask.words import words
from ggmltool.ggml.events import Assigned, SplitStarted
from ggmltool.ggml.op import GluOp, UnaryOp
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.copied import CopiedInput, copied_inputs

_NUMBERED = re.compile(r"(?:(?:node|leaf)_\d+)?(?:~\d+)?(?: \([^()]*\))*")
"""Names that ggml makes up by counting: they say where in its graph a tensor is, not what it is."""


class Item(NamedTuple):
    """A tensor to find again: `shape` is its type and extents (None: unknown), `src` are ids of items.

    A leaf has the op NONE.
    """

    id: str
    name: str
    op: str
    shape: Hashable
    src: tuple[str | None, ...] = ()

    @property
    def is_leaf(self) -> bool:
        return self.op == "NONE"

    @property
    def is_named(self) -> bool:
        """Whether its name is more than a number."""
        return _NUMBERED.fullmatch(self.name) is None


_NAME, _OP = 20, 10
"""Bytes that a log leaves of a name and of an op."""


_FAMILIES = {f.name[:_OP]: "UNARY" for f in UnaryOp} | {f.name[:_OP]: "GLU" for f in GluOp}
"""The op that each function belongs to, by its name as a log leaves it."""


def _items(side: DiffSide, as_log: bool) -> list[Item]:
    """The leafs and then the nodes."""
    plan, tensors = side.plan, side.tensors
    leafs = [tensors[leaf.id] for leaf in plan.leafs if leaf.id in tensors]
    nodes = [tensors[n.id] for n in plan.nodes if n.id in tensors]
    if as_log:
        return [
            *(Item(t.id, _cut(t.name, _NAME), "NONE", None) for t in leafs),
            *(Item(t.id, _cut(t.name, _NAME), _cut(t.op, _OP), None, t.src) for t in nodes),
        ]
    return [Item(t.id, t.name, t.op, (t.type, t.ne), t.src) for t in (*leafs, *nodes)]


def _cut(text: str, nbytes: int) -> str:
    return text.encode("utf-8", "surrogateescape")[:nbytes].decode("utf-8", "surrogateescape").strip()


Key = Callable[[Item], Hashable]


def match(a: Sequence[Item], b: Sequence[Item]) -> dict[str, str]:
    """For the ids of `a` that have a partner in `b`: the partner's id. Items come after their sources.

    Partners have the same op. Those with the same id come first, then those with the same name, in order; then those
    that are computed in the same way from partners; at last those that partners use as the same source, and those that
    stand at the same place between partners.
    """
    pairs = _Pairs(a, b)
    pairs.by(lambda t: (t.id, t.op) if t.is_named else None)
    pairs.by(lambda t: (t.name, t.op) if t.is_named else None)
    pairs.by_use()
    pairs.by(lambda t: (t.id, t.shape) if t.is_leaf else None)
    pairs.by(lambda t: t.shape if t.is_leaf and not t.is_named else None)
    pairs.by(lambda t: t.id if t.is_leaf else None)
    for with_shape in (True, False):
        pairs.by_sources(with_shape)
    pairs.by_use()
    pairs.by_place()
    pairs.by_use()
    return pairs.partner


def partners(a: DiffSide, b: DiffSide) -> dict[str, str]:
    """The same of two sides, of which one may be a log: names and ops are cut then, and nobody knows a shape."""
    if not (a.is_log or b.is_log):
        return match(_items(a, False), _items(b, False))
    items = _items(a, True), _items(b, True)
    if any(item.op in _FAMILIES.values() for item in (*items[0], *items[1])):
        # An older ggml prints UNARY for SILU, and so do both then.
        mine, theirs = ([item._replace(op=_FAMILIES.get(item.op, item.op)) for item in of] for of in items)
        return match(mine, theirs)
    return match(*items)


class _Pairs:
    def __init__(self, a: Sequence[Item], b: Sequence[Item]) -> None:
        self.a = a
        self.b = b
        self.partner: dict[str, str] = {}
        self.taken: set[str] = set()

    def join(self, a: Item, b: Item) -> None:
        self.partner[a.id] = b.id
        self.taken.add(b.id)

    def by(self, key: Key, other_key: Key | None = None) -> None:
        """Pair what is left and has the same key, in order; nothing whose key is None."""
        there: dict[Hashable, deque[Item]] = defaultdict(deque)
        for item in self.b:
            if item.id not in self.taken and (k := (other_key or key)(item)) is not None:
                there[k].append(item)
        for item in self.a:
            if item.id not in self.partner and (k := key(item)) is not None and there.get(k):
                self.join(item, there[k].popleft())

    def by_sources(self, with_shape: bool) -> None:
        """Pair nodes with the same op and the same sources, partners or themselves alike in this way."""
        known: dict[Hashable, int] = {}
        shared = {id: -1 - n for n, id in enumerate(self.partner)}
        mine = _numbers(self.a, shared, known, with_shape)
        theirs = _numbers(self.b, {self.partner[id]: n for id, n in shared.items()}, known, with_shape)
        self.by(lambda t: None if t.is_leaf else mine[t.id], lambda t: None if t.is_leaf else theirs[t.id])

    def by_use(self) -> None:
        """Pair tensors with the same op that are the same source of partners, users before what they use."""
        mine, theirs = ({item.id: item for item in items} for items in (self.a, self.b))
        for user in reversed(self.a):
            if user.id not in self.partner:
                continue
            for s, t in zip(user.src, theirs[self.partner[user.id]].src, strict=False):
                if s not in mine or t not in theirs or s in self.partner or t in self.taken:
                    continue
                if mine[s].op == theirs[t].op:
                    self.join(mine[s], theirs[t])

    def by_place(self) -> None:
        """Pair nodes with the same op that follow the same partner."""
        before_a = _before(self.a, {id: n for n, id in enumerate(self.partner)})
        before_b = _before(self.b, {id: n for n, id in enumerate(self.partner.values())})
        self.by(
            lambda t: None if t.is_leaf else (before_a[t.id], t.op),
            lambda t: None if t.is_leaf else (before_b[t.id], t.op),
        )


def _numbers(
    items: Sequence[Item], shared: Mapping[str, int], known: dict[Hashable, int], with_shape: bool
) -> dict[str, int]:
    """A number per item: that of its pair, else one that items with the same op and sources have too."""
    numbers: dict[str, int] = {}
    for item in items:
        if item.id in shared:
            numbers[item.id] = shared[item.id]
            continue
        sources = tuple(None if s is None else numbers.get(s) for s in item.src)
        key = (id(items), item.id) if item.is_leaf else (item.op, sources, item.shape if with_shape else None)
        numbers[item.id] = known.setdefault(key, len(known))
    return numbers


def _before(items: Sequence[Item], number: Mapping[str, int]) -> dict[str, int]:
    """Per node that has no partner: the number of the last node before it that has one, -1 if none has."""
    out: dict[str, int] = {}
    last = -1
    for item in items:
        if item.id in number and not item.is_leaf:
            last = number[item.id]
        else:
            out[item.id] = last
    return out


def in_order(values: Sequence[int]) -> set[int]:
    """The places of a longest rising subsequence: what need not be moved to put distinct values in order.

    >>> sorted(in_order([0, 4, 1, 2, 3]))
    [0, 2, 3, 4]
    """
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for place, value in enumerate(values):
        n = bisect_left(ends, value)
        before.append(at[n - 1] if n else -1)
        ends[n : n + 1] = [value]
        at[n : n + 1] = [place]
    kept: set[int] = set()
    place = at[-1] if at else -1
    while place >= 0:
        kept.add(place)
        place = before[place]
    return kept


def pair_splits(a: DiffSide, b: DiffSide, partner: Mapping[str, str]) -> tuple[SplitPair, ...]:
    """All splits of both plans in order; partners are those that have most nodes in common."""
    mine, theirs = _sides(a), _sides(b)
    joined = _joined(a.plan, b.plan, partner)
    out: list[SplitPair] = []
    next_b = 0
    for i, side in enumerate(mine):
        j = joined.get(i)
        if j is None:
            out.append(SplitPair(side, None, ("gone",)))
            continue
        out += (SplitPair(None, new, ("new",)) for new in theirs[next_b:j])
        other = theirs[j]
        split, split_b = a.plan.splits[i], b.plan.splits[j]
        nodes, nodes_b = (of.plan.nodes[s.i_start : s.i_end] for of, s in ((a, split), (b, split_b)))
        changes = {
            "backend": side.backend != other.backend,
            "nodes": [partner.get(n.id) for n in nodes] != [n.id for n in nodes_b],
            "inputs": [partner.get(t) for t in split.inputs] != list(split_b.inputs),
            "bytes": not side.copied.same(other.copied),
        }
        out.append(SplitPair(side, other, tuple(name for name, differs in changes.items() if differs)))
        next_b = j + 1
    return (*out, *(SplitPair(None, other, ("new",)) for other in theirs[next_b:]))


def _sides(of: DiffSide) -> list[SplitSide]:
    plan, tensors, starts = of.plan, of.tensors, of.starts
    out = []
    for place, split in enumerate(plan.splits):
        nodes = plan.nodes[split.i_start : split.i_end]
        index, first = (nodes[0].index, nodes[0].id) if nodes else (split.i_start, "")
        infos = [tensors[i] for i in split.inputs if i in tensors]
        copied = sum((Amount.between(1, t.nbytes, t.nbytes + t.slack) for t in infos), Amount.between())
        reason = said(starts[place] if place < len(starts) else None)
        out.append(SplitSide(split.id, split.backend, index, first, len(nodes), copied, reason))
    return out


def said(event: Assigned | SplitStarted | None) -> str:
    """Why a node has its backend, or a split begins; "" where that is not known."""
    return "" if event is None else words(event)


def _joined(a: Plan, b: Plan, partner: Mapping[str, str]) -> dict[int, int]:
    """Which split of `a` is which of `b`, in rising order: greedily the most nodes in common, on one backend first."""
    of_b = _split_of_nodes(b)
    common = Counter((split, of_b[partner[id]]) for id, split in _split_of_nodes(a).items() if partner.get(id) in of_b)

    def rank(pair: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
        return a.splits[pair[0]].backend != b.splits[pair[1]].backend, -common[pair], pair

    taken_a: dict[int, int] = {}
    taken_b: set[int] = set()
    for i, j in sorted(common, key=rank):
        if i not in taken_a and j not in taken_b:
            taken_a[i] = j
            taken_b.add(j)
    ordered = sorted(taken_a.items())
    kept = in_order([j for _, j in ordered])
    return {i: j for place, (i, j) in enumerate(ordered) if place in kept}


def _split_of_nodes(plan: Plan) -> dict[str, int]:
    return {n.id: place for place, split in enumerate(plan.splits) for n in plan.nodes[split.i_start : split.i_end]}


def copies_of(mine: Sequence[CopiedInput], theirs: Sequence[CopiedInput]) -> tuple[CopiesPair, ...]:
    """Per pair of backends between which a plan copies."""
    sums: dict[tuple[str, str], list[Amount]] = {}
    for side, inputs in enumerate((mine, theirs)):
        for i in inputs:
            sums.setdefault((i.src, i.dst), [Amount.between(), Amount.between()])[side] += _bytes(i)
    return tuple(CopiesPair(*pair, *both) for pair, both in sums.items())


def inputs_of(a: DiffSide, b: DiffSide) -> tuple[Sequence[CopiedInput], Sequence[CopiedInput]]:
    """What either plan copies. A log does not say where leafs are, which can be guessed where it names all backends."""
    both = copied_inputs(a.plan, a.tensors), copied_inputs(b.plan, b.tensors)
    guessed = len(a.plan.backends) == len(b.plan.backends) and not any(i.src == "?" for inputs in both for i in inputs)
    if guessed or not (a.is_log or b.is_log):
        return both
    mine, theirs = ([i if i.what == "node" else i._replace(src="?") for i in inputs] for inputs in both)
    return mine, theirs


def pair_inputs(
    mine: Sequence[CopiedInput], theirs: Sequence[CopiedInput], partner: Mapping[str, str]
) -> tuple[CopyPair, ...]:
    """What only one of the plans copies to a backend, or from elsewhere, or with other bytes; most bytes first."""
    there: dict[tuple[str, str], deque[CopiedInput]] = defaultdict(deque)
    for i in theirs:
        there[i.tensor, i.dst].append(i)
    found: list[CopyPair] = []
    for i in mine:
        others = there.get((partner.get(i.tensor, ""), i.dst))
        if not others:
            found.append(CopyPair(i.tensor, None, i.what, i.src, i.dst, _bytes(i), None))
            continue
        other = others.popleft()
        if i.src != other.src or not _bytes(i).same(_bytes(other)):
            src = i.src if i.src == other.src else f"{i.src} → {other.src}"
            found.append(CopyPair(i.tensor, other.tensor, i.what, src, i.dst, _bytes(i), _bytes(other)))
    for left in there.values():
        found += (CopyPair(None, i.tensor, i.what, i.src, i.dst, None, _bytes(i)) for i in left)
    return tuple(sorted(found, key=lambda pair: -pair.change))


def _bytes(i: CopiedInput) -> Amount:
    return Amount.between(1, i.nbytes, i.nbytes + i.slack)
