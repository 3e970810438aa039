"""What differs between two plans, as values: whatever the two graphs are, their nodes are found again first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ggmltool.ask.buffers.record import buffers_of
from ggmltool.ask.diff import record
from ggmltool.ask.diff.matching import (
    copies_of,
    in_order,
    inputs_of,
    pair_inputs,
    pair_splits,
    partners,
    said,
)
from ggmltool.ask.diff.side import DiffSide, Titles, as_a_log
from ggmltool.ggml.events import SplitStarted
from ggmltool.ggml.plan import Plan, PlanError
from ggmltool.ggml.tensor import dims
from ggmltool.inspect.memory import MemoryPlan

_UNTITLED = Titles("A", "B")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All that differs between two plans. Pairs of nodes are in the order of A; `rules` are of two releases. What is
    shown of it: the `parts`, under the `titles` of the plans, with `brief` in a line.
    """

    a: DiffSide
    b: DiffSide
    pairs: tuple[record.NodePair, ...]
    divergences: tuple[record.PlanDivergence, ...]
    only_in_a: tuple[record.NodePlace, ...]
    only_in_b: tuple[record.NodePlace, ...]
    reordered: tuple[record.NodePair, ...]
    moved: tuple[record.NodePair, ...]
    other_cause: tuple[record.NodePair, ...]
    sizes: tuple[record.ShapePair, ...]
    splits: tuple[record.SplitPair, ...]
    copies: tuple[record.CopiesPair, ...]
    copied: tuple[record.CopyPair, ...]
    buffers: tuple[record.BufferPair, ...]
    reuse: tuple[record.ReusePair, ...]
    elsewhere: int
    contexts: tuple[record.HeldPair, ...]
    context_tensors: tuple[record.HeldMove, ...]
    rules: tuple[record.RuleChange, ...] = ()
    titles: Titles = _UNTITLED
    parts: tuple[str, ...] = ()
    brief: bool = False

    @property
    def view(self) -> str:
        """What shows it."""
        return "diff_line" if self.brief else "diff"

    @property
    def has_log(self) -> bool:
        """Whether one of the plans is from a log, so that neither has views, shapes and memory."""
        return self.a.is_log or self.b.is_log

    @property
    def errors(self) -> tuple[PlanError | None, PlanError | None]:
        """What ggml refused with."""
        return self.a.plan.error, self.b.plan.error

    def differs(self, part: str) -> bool:
        """Whether a part (one of PARTS) differs, or ggml refused a plan."""
        return self.errors != (None, None) or PARTS[part](self)

    @property
    def differing(self) -> tuple[str, ...]:
        """Those of its parts that differ."""
        return tuple(part for part in PARTS if part in self.parts and self.differs(part))

    def document(self) -> record.DiffDocument:
        """Everything that differs in the parts, and what each plan is; in `splits` also those that are alike."""
        differing, rows = self.differing, {name: getattr(self, name) for part in self.parts for name in _FIELDS[part]}
        if not self.has_log and self.a.plan.ggml != self.b.plan.ggml:
            rows["rules"] = self.rules
        return record.DiffDocument(
            same=not differing,
            compared=tuple(part for part in PARTS if part in self.parts),
            differing=differing,
            a=record.PlanSide.of(self.a.plan, self.titles.a),
            b=record.PlanSide.of(self.b.plan, self.titles.b),
            divergences=self.divergences,
            **rows,
        )


_FIELDS = {
    "nodes": ("only_in_a", "only_in_b", "moved", "reordered", "other_cause"),
    "splits": ("splits",),
    "copies": ("copies", "copied"),
    "buffers": ("buffers", "reuse", "elsewhere"),
    "sizes": ("sizes",),
    "contexts": ("contexts", "context_tensors"),
}
"""The fields of each part."""

PARTS: dict[str, Callable[[PlanDiff], bool]] = {
    "nodes": lambda d: bool(d.only_in_a or d.only_in_b or d.reordered or d.moved or d.other_cause),
    "splits": lambda d: any(pair.changes for pair in d.splits),
    "copies": lambda d: bool(d.copied) or any(not c.a.same(c.b) for c in d.copies),
    "buffers": lambda d: any(pair.differs for pair in d.buffers) or bool(d.reuse or d.elsewhere),
    "sizes": lambda d: bool(d.sizes),
    "contexts": lambda d: bool(d.context_tensors) or any(pair.a != pair.b for pair in d.contexts),
}
"""What is compared, and whether it differs."""


def plan_diff(a: DiffSide, b: DiffSide) -> PlanDiff:
    """Find the nodes of `a` again in `b` and compare everything."""
    logs = a.is_log or b.is_log
    if logs:
        a, b = as_a_log(a), as_a_log(b)
    partner = partners(a, b)
    places_a, places_b = _places(a), _places(b)
    other = {place.id: place for place in places_b}
    pairs = tuple(record.NodePair(p, other[partner[p.id]]) for p in places_a if partner.get(p.id) in other)
    found = {pair.b.id for pair in pairs}
    position = {place.id: n for n, place in enumerate(places_b)}
    kept = in_order([position[pair.b.id] for pair in pairs])
    there = {pair.a.id for pair in pairs}
    copied = inputs_of(a, b)
    releases = not logs and a.plan.ggml != b.plan.ggml
    mine, theirs = _memory_places(a.plan), _memory_places(b.plan)
    return PlanDiff(
        a,
        b,
        pairs,
        _divergences(places_a, places_b, pairs),
        only_in_a=tuple(p for p in places_a if p.id not in there),
        only_in_b=tuple(p for p in places_b if p.id not in found),
        reordered=tuple(pair for i, pair in enumerate(pairs) if i not in kept),
        moved=tuple(pair for pair in pairs if pair.a.backend != pair.b.backend),
        other_cause=tuple(pair for pair in pairs if pair.a.backend == pair.b.backend and _other_cause(pair, releases)),
        sizes=() if logs else tuple(_shapes(a, b, partner, releases)),
        splits=pair_splits(a, b, partner),
        copies=copies_of(*copied),
        copied=pair_inputs(*copied, partner),
        buffers=() if logs else tuple(_buffers(a, b)),
        reuse=() if logs else tuple(_reuse(a, b, partner)),
        elsewhere=0 if logs else sum(1 for id, at in mine.items() if theirs.get(partner.get(id, ""), at) != at),
        contexts=() if logs else tuple(_held(a, b)),
        context_tensors=() if logs else tuple(_held_moves(a, b, partner)),
    )


def _other_cause(pair: record.NodePair, releases: bool) -> bool:
    """Whether another rule settled the backend; of two `releases`, whatever each of them calls the rule."""
    a, b = pair.a.cause, pair.b.cause
    if not a or not b:
        return False
    return a != b if not releases else _rule(a) != _rule(b)


def _rule(cause: str) -> str:
    """What a cause stands for in any release: passes have other numbers, and spreading had four of its own."""
    number, _, name = cause.partition(".")
    if number == "2":
        return "spread"
    return name if name in ("vsrc", "cur", "cpy") else cause


def _places(side: DiffSide) -> list[record.NodePlace]:
    plan = side.plan
    start_of: dict[str, SplitStarted | None] = {}
    for place, split in enumerate(plan.splits):
        if place and split.i_start < split.i_end:
            start_of[plan.nodes[split.i_start].id] = side.starts[place] if place < len(side.starts) else None
    return [
        record.NodePlace(
            n.index,
            n.id,
            op := side.tensors[n.id].op if n.id in side.tensors else n.op,
            op,
            n.backend,
            n.cause,
            said(side.settled.get(n.id)),
            n.split,
            said(start_of[n.id]) if n.id in start_of else None,
        )
        for n in plan.nodes
    ]


def _divergences(
    a: Sequence[record.NodePlace], b: Sequence[record.NodePlace], pairs: Iterable[record.NodePair]
) -> tuple[record.PlanDivergence, ...]:
    """The first node with another backend, the first that begins a split in only one of the plans, and where the order
    parts; whichever there are, the first one first.
    """
    ordered = {pair.a.id: pair.b.id for pair in pairs}
    found: list[record.PlanDivergence] = []
    for mine, theirs in zip_longest(a, b):
        if mine is None or theirs is None or ordered.get(mine.id) != theirs.id:
            found.append(record.PlanDivergence("order", mine, theirs))
            break
    for kind, pair in (
        ("backend", next((pair for pair in pairs if pair.a.backend != pair.b.backend), None)),
        ("split", next((pair for pair in pairs if bool(pair.a.start) != bool(pair.b.start)), None)),
    ):
        if pair is not None and record.PlanDivergence("backend", pair.a, pair.b) not in found:
            found.append(record.PlanDivergence(kind, pair.a, pair.b))
    return tuple(sorted(found, key=lambda d: d.at))


def _shapes(a: DiffSide, b: DiffSide, partner: Mapping[str, str], releases: bool) -> Iterable[record.ShapePair]:
    sizes_a, sizes_b = _sizes(a), _sizes(b)
    for id, mine in a.tensors.items():
        theirs = b.tensors.get(partner.get(id, ""))
        if theirs is None:
            continue
        nbytes = sizes_a.get(id), sizes_b.get(theirs.id)
        if releases and None in nbytes:
            # In January 2024 a node in place of another was a view of it, with no size of its own.
            nbytes = None, None
        was, now = (record.Shaped(f"{t.type}{dims(t.ne)}", n) for t, n in zip((mine, theirs), nbytes, strict=True))
        if was != now:
            yield record.ShapePair(id, theirs.id, mine.op, was, now)


def _sizes(side: DiffSide) -> dict[str, int]:
    """Bytes in compute buffers: of nodes that are no views, and of leafs that have no memory of their own."""
    sizes = {n.id: n.alloc_size for n in side.plan.nodes if n.alloc_size is not None}
    for leaf in side.plan.leafs:
        info = side.tensors.get(leaf.id)
        if info is not None and not info.has_data and info.view_src is None:
            sizes[leaf.id] = info.nbytes
    return sizes


def _buffers(a: DiffSide, b: DiffSide) -> Iterable[record.BufferPair]:
    mine, theirs = _buffers_of(a), _buffers_of(b)
    names = dict.fromkeys((*mine, *theirs) if len(mine) >= len(theirs) else (*theirs, *mine))
    return (record.BufferPair(name, mine.get(name), theirs.get(name)) for name in names)


def _buffers_of(side: DiffSide) -> dict[str, record.BufferSide]:
    """By backend; of several with the same buffer type the first one has the buffer."""
    out: dict[str, record.BufferSide] = {}
    for buffer in buffers_of(side.plan, side.memory or MemoryPlan()):
        if buffer.shared is None:
            nbytes, at = (None, "") if buffer.peak is None else (buffer.peak.nbytes, buffer.peak.node)
            out[buffer.backend] = record.BufferSide(buffer.size, tuple(buffer.chunks), nbytes, at)
    return out


def _reuse(a: DiffSide, b: DiffSide, partner: Mapping[str, str]) -> Iterable[record.ReusePair]:
    """Nodes that take over another source's memory, or that of one in only one of the plans."""
    if a.memory is None or b.memory is None:
        return
    mine, theirs = _taken(a.memory, a.plan), _taken(b.memory, b.plan)
    for id, parent in mine.items():
        other = partner.get(id)
        if other in theirs and (None if parent is None else partner.get(parent, parent)) != theirs[other]:
            yield record.ReusePair(id, parent, theirs[other])


def _taken(memory: MemoryPlan, plan: Plan) -> dict[str, str | None]:
    """Per tensor in a compute buffer the source whose memory, or whose copy's, it takes over."""
    of = {copy.name: copy.of for copy in plan.copies}
    return {life.tensor: of.get(life.reused, life.reused) if life.reused else None for life in memory.lifetimes}


def _memory_places(plan: Plan) -> dict[str, tuple[str, int | None, int | None]]:
    """Buffer type, chunk and offset of what has memory in a compute buffer or of its own."""
    nodes = {n.id: (n.buffer, n.chunk, n.offset) for n in plan.nodes if n.buffer is not None}
    return nodes | {leaf.id: (leaf.buffer, leaf.chunk, leaf.offset) for leaf in plan.leafs if leaf.buffer is not None}


def _held(a: DiffSide, b: DiffSide) -> Iterable[record.HeldPair]:
    mine, theirs = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for side, total in ((a, mine), (b, theirs)):
        for buffer in side.held_buffers:
            total[buffer.buft, buffer.usage] += buffer.size
    return (record.HeldPair(*key, mine[key], theirs[key]) for key in dict.fromkeys((*mine, *theirs)))


def _held_moves(a: DiffSide, b: DiffSide, partner: Mapping[str, str]) -> Iterable[record.HeldMove]:
    theirs = {t.id: t for t in b.held}
    for mine in a.held:
        other = theirs.pop(partner.get(mine.id, mine.id), None)
        if other is None or (mine.buft, mine.usage, mine.nbytes) != (other.buft, other.usage, other.nbytes):
            yield record.HeldMove(mine.id, mine, other)
    for other in theirs.values():
        yield record.HeldMove(other.id, None, other)
