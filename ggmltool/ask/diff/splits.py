"""The splits of two plans side by side, and what is copied for them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from ggmltool.ask.diff.matching import in_order
from ggmltool.ask.diff.record import Amount, CopiesPair, CopyPair, SplitPair, SplitSide
from ggmltool.ask.words import words
from ggmltool.ggml.events import Assigned, SplitStarted
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.copied import CopiedInput, copied_inputs
from ggmltool.scenario.tensor_info import Tensors


def pair_splits(
    a: Plan,
    tensors_a: Tensors,
    starts_a: Sequence[SplitStarted],
    b: Plan,
    tensors_b: Tensors,
    starts_b: Sequence[SplitStarted],
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
        out += (SplitPair(None, new, ("new",)) for new in theirs[next_b:j])
        other = theirs[j]
        inputs = [partner.get(t) for t in a.splits[i].inputs] == list(b.splits[j].inputs)
        nodes, nodes_b = (plan.nodes[s.i_start : s.i_end] for plan, s in ((a, a.splits[i]), (b, b.splits[j])))
        changes = {
            "backend": side.backend != other.backend,
            "nodes": [partner.get(n.id) for n in nodes] != [n.id for n in nodes_b],
            "inputs": not inputs,
            "bytes": not side.copied.same(other.copied),
        }
        out.append(SplitPair(side, other, tuple(name for name, differs in changes.items() if differs)))
        next_b = j + 1
    return (*out, *(SplitPair(None, other, ("new",)) for other in theirs[next_b:]))


def _sides(plan: Plan, tensors: Tensors, starts: Sequence[SplitStarted]) -> list[SplitSide]:
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
    nothing = Amount.between()
    sums: list[dict[tuple[str, str], Amount]] = [{}, {}]
    for inputs, total in zip((mine, theirs), sums, strict=True):
        for i in inputs:
            total[i.src, i.dst] = total.get((i.src, i.dst), nothing) + _bytes(i)
    return tuple(
        CopiesPair(*pair, sums[0].get(pair, nothing), sums[1].get(pair, nothing))
        for pair in dict.fromkeys((*sums[0], *sums[1]))
    )


def inputs_of(
    a: Plan, tensors_a: Tensors, b: Plan, tensors_b: Tensors, has_log: bool
) -> tuple[Sequence[CopiedInput], Sequence[CopiedInput]]:
    """What either plan copies. A log does not say where leafs are, which can be guessed where it names all backends."""
    both = copied_inputs(a, tensors_a), copied_inputs(b, tensors_b)
    if has_log and (len(a.backends) != len(b.backends) or any(i.src == "?" for inputs in both for i in inputs)):
        mine, theirs = ([i if i.what == "node" else i._replace(src="?") for i in inputs] for inputs in both)
        return mine, theirs
    return both


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
