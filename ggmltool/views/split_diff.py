"""The splits of two plans side by side, and what is copied for them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.views.copied import CopiedInput, copied_inputs
from ggmltool.views.matching import in_order
from ggmltool.views.tensors import Tensors


class SplitSide(NamedTuple):
    """A split: its first node and how many there are, what it copies, and why it begins."""

    id: int
    backend: str
    index: int  # type: ignore[assignment]
    first: str
    n_nodes: int
    n_inputs: int
    nbytes: int
    reason: str


class SplitPair(NamedTuple):
    """A split of both plans, or of one; `changes` names the fields that differ, or says that it is gone or new."""

    a: SplitSide | None
    b: SplitSide | None
    changes: tuple[str, ...]


class Copies(NamedTuple):
    """Tensors and bytes copied from one backend to another, as (tensors, bytes) of either plan."""

    src: str
    dst: str
    a: tuple[int, int]
    b: tuple[int, int]


class CopiedPair(NamedTuple):
    """A tensor that is copied to a backend: its ids and its bytes in A and in B; None where it is not copied there."""

    id: str | None
    id_b: str | None
    what: str
    src: str
    dst: str
    a: int | None
    b: int | None


def pair_splits(
    a: Plan,
    tensors_a: Tensors,
    starts_a: Sequence[str],
    b: Plan,
    tensors_b: Tensors,
    starts_b: Sequence[str],
    partner: Mapping[str, str],
) -> tuple[SplitPair, ...]:
    """All splits of both plans in order; partners are those that have most nodes in common."""
    mine, theirs = _sides(a, tensors_a, starts_a), _sides(b, tensors_b, starts_b)
    joined = _joined(a, b, partner)
    out: list[SplitPair] = []
    next_b = 0
    for i, side in enumerate(mine):
        j = joined.get(i)
        if j is None:
            out.append(SplitPair(side, None, ("gone",)))
            continue
        out += (SplitPair(None, other, ("new",)) for other in theirs[next_b:j])
        out.append(SplitPair(side, theirs[j], _changes(side, theirs[j], _names(a, b, i, j, partner))))
        next_b = j + 1
    return (*out, *(SplitPair(None, other, ("new",)) for other in theirs[next_b:]))


def _sides(plan: Plan, tensors: Tensors, starts: Sequence[str]) -> list[SplitSide]:
    out = []
    for place, split in enumerate(plan.splits):
        nodes = plan.nodes[split.i_start : split.i_end]
        index, first = (nodes[0].index, nodes[0].id) if nodes else (split.i_start, "")
        nbytes = sum(tensors[i].nbytes for i in split.inputs if i in tensors)
        reason = starts[place] if place < len(starts) else ""
        out.append(SplitSide(split.id, split.backend, index, first, len(nodes), len(split.inputs), nbytes, reason))
    return out


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


def _names(a: Plan, b: Plan, i: int, j: int, partner: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether the inputs are partners, and whether the nodes are."""
    mine, theirs = a.splits[i], b.splits[j]
    inputs = [partner.get(t) for t in mine.inputs] == list(theirs.inputs)
    nodes_a, nodes_b = a.nodes[mine.i_start : mine.i_end], b.nodes[theirs.i_start : theirs.i_end]
    return inputs, [partner.get(n.id) for n in nodes_a] == [n.id for n in nodes_b]


def _changes(a: SplitSide, b: SplitSide, same: tuple[bool, bool]) -> tuple[str, ...]:
    inputs, nodes = same
    found = {"backend": a.backend != b.backend, "nodes": not nodes, "inputs": not inputs, "bytes": a.nbytes != b.nbytes}
    return tuple(name for name, differs in found.items() if differs)


def copies_of(a: Plan, tensors_a: Tensors, b: Plan, tensors_b: Tensors) -> tuple[Copies, ...]:
    """Per pair of backends between which a plan copies."""
    sums: list[dict[tuple[str, str], tuple[int, int]]] = []
    for plan, tensors in ((a, tensors_a), (b, tensors_b)):
        total: dict[tuple[str, str], tuple[int, int]] = {}
        for i in copied_inputs(plan, tensors):
            n, nbytes = total.get((i.src, i.dst), (0, 0))
            total[i.src, i.dst] = n + 1, nbytes + i.nbytes
        sums.append(total)
    mine, theirs = sums
    return tuple(
        Copies(src, dst, mine.get((src, dst), (0, 0)), theirs.get((src, dst), (0, 0)))
        for src, dst in dict.fromkeys((*mine, *theirs))
    )


def pair_inputs(
    a: Plan, tensors_a: Tensors, b: Plan, tensors_b: Tensors, partner: Mapping[str, str]
) -> tuple[CopiedPair, ...]:
    """What only one of the plans copies to a backend, or from elsewhere, or with other bytes; most bytes first."""
    theirs: dict[tuple[str, str], deque[CopiedInput]] = defaultdict(deque)
    for i in copied_inputs(b, tensors_b):
        theirs[i.tensor, i.dst].append(i)
    found: list[CopiedPair] = []
    for i in copied_inputs(a, tensors_a):
        there = theirs.get((partner.get(i.tensor, ""), i.dst))
        other = there.popleft() if there else None
        if other is None or (i.src, i.nbytes) != (other.src, other.nbytes):
            src = i.src if other is None or i.src == other.src else f"{i.src} → {other.src}"
            id_b, nbytes = (other.tensor, other.nbytes) if other is not None else (None, None)
            found.append(CopiedPair(i.tensor, id_b, i.what, src, i.dst, i.nbytes, nbytes))
    for left in theirs.values():
        found += (CopiedPair(None, i.tensor, i.what, i.src, i.dst, None, i.nbytes) for i in left)
    return tuple(sorted(found, key=lambda pair: -abs((pair.b or 0) - (pair.a or 0))))
