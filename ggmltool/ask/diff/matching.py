"""Which tensor of one graph is which of another: by id, else by name, else by what it is computed from.

Every step takes time in proportion to the number of tensors.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

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
