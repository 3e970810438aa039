"""The JSON of comparisons: what differs between two plans, and from the real library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.inspect.diff.plans import PARTS, BufferSide, HeldMove, NodePair, Place, PlanDiff, ShapePair
from ggmltool.show.document import Document, Error, Row, error_of
from ggmltool.views.diff.rules import rules_of
from ggmltool.views.explain.words import words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ggmltool.ggml.events import Assigned, SplitStarted
    from ggmltool.inspect.diff.rules import RuleChange
    from ggmltool.inspect.diff.side import Held, Side, Titles
    from ggmltool.inspect.diff.splits import Amount, SplitPair, SplitSide


class PlanSide(Row, kw_only=True):
    """One of the two plans: what it is called, and what it comes to."""

    title: str
    ggml: str
    graph: str | None
    step: str
    ok: bool
    nodes: int
    splits: int
    buffer_sizes: dict[str, int]
    error: Error | UnsetType = UNSET

    @classmethod
    def of(cls, side: Side, title: str) -> PlanSide:
        """A side in brief."""
        plan = side.plan
        return cls(
            title=title,
            ggml=plan.ggml,
            graph=plan.graph,
            step=plan.step,
            ok=plan.ok,
            nodes=len(plan.nodes),
            splits=len(plan.splits),
            buffer_sizes=dict(plan.buffer_sizes),
            error=error_of(plan.error),
        )


class PlaceRow(Row):
    """A node in a plan: its backend and why; its split, and why that begins where it begins with the node."""

    index: int
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None
    reason: str
    split: int
    start: str | None

    @classmethod
    def of(cls, p: Place) -> PlaceRow:
        """A node's place."""
        start = _said(p.start) if p.begins else None
        return cls(p.index, p.id, p.op, p.op, p.backend, p.cause, _said(p.settled), p.split, start)


class PlacePair(Row):
    """A node in both plans."""

    a: PlaceRow
    b: PlaceRow

    @classmethod
    def all(cls, pairs: Iterable[NodePair]) -> list[PlacePair]:
        """Pairs of nodes."""
        return [cls(PlaceRow.of(pair.a), PlaceRow.of(pair.b)) for pair in pairs]


class DivergenceRow(Row):
    """Where the two plans part first, by kind; null where the node is in one of them only."""

    kind: str
    a: PlaceRow | None
    b: PlaceRow | None


class FindingRow(Row):
    """What a rule changed, in a part of the plan."""

    part: str
    what: str


class RuleRow(Row, kw_only=True):
    """A rule of ggml's that changed between two releases, and what it changed here; `rule` is null for what follows
    from the others."""

    rule: str | None
    since: str | UnsetType = UNSET
    commit: str | UnsetType = UNSET
    build: str | UnsetType = UNSET
    before: str | UnsetType = UNSET
    now: str | UnsetType = UNSET
    changed: list[FindingRow]

    @classmethod
    def of(cls, rule: RuleChange) -> RuleRow:
        """A changed rule."""
        c, found = rule.change, [FindingRow(f.part, f.what) for f in rule.findings]
        if c is None:
            return cls(rule=None, changed=found)
        commit, build = c.commit or UNSET, c.build or UNSET
        return cls(rule=c.key, since=c.since, commit=commit, build=build, before=c.before, now=c.now, changed=found)


class AmountRow(Row, kw_only=True):
    """Tensors that are copied, and their bytes; with `nbytes_max` between the two."""

    tensors: int
    nbytes: int
    nbytes_max: int | UnsetType = UNSET

    @classmethod
    def of(cls, a: Amount) -> AmountRow:
        """An amount."""
        return cls(tensors=a.n, nbytes=a.low, nbytes_max=UNSET if a.low == a.high else a.high)


class SplitSideRow(Row):
    """A split in a plan: node `index`, called `first`, is its first; what it copies, and why it begins."""

    id: int
    backend: str
    index: int
    first: str
    n_nodes: int
    copied: AmountRow
    reason: str

    @classmethod
    def of(cls, s: SplitSide) -> SplitSideRow:
        """A split."""
        return cls(s.id, s.backend, s.index, s.first, s.n_nodes, AmountRow.of(s.copied), _said(s.start))


class SplitPairRow(Row):
    """Two splits that are the same one, and what changed; null where it is in one plan only."""

    a: SplitSideRow | None
    b: SplitSideRow | None
    changes: list[str]

    @classmethod
    def of(cls, pair: SplitPair) -> SplitPairRow:
        """A split in both plans."""
        a, b = (None if s is None else SplitSideRow.of(s) for s in (pair.a, pair.b))
        return cls(a, b, list(pair.changes))


class CopiesPair(Row, rename={"src": "from", "dst": "to"}):
    """All that is copied between two backends, in both plans."""

    src: str
    dst: str
    a: AmountRow
    b: AmountRow


class CopiedRow(Row, rename={"src": "from", "dst": "to"}):
    """A tensor that is copied in one plan only, or in both; `id_b` is what it is called in the second."""

    id: str | None
    id_b: str | None
    what: str
    src: str
    dst: str
    a: AmountRow | None
    b: AmountRow | None


class BufferSideRow(Row):
    """A compute buffer: its bytes, those of its chunks, the peak, and the node at which that is."""

    size: int
    chunks: list[int]
    peak: int | None
    at: str

    @classmethod
    def of(cls, b: BufferSide | None) -> BufferSideRow | None:
        """A buffer."""
        return None if b is None else cls(b.size, list(b.chunks), b.peak, b.at)


class BufferPairRow(Row):
    """The compute buffer of a backend in both plans."""

    backend: str
    a: BufferSideRow | None
    b: BufferSideRow | None


class ReuseRow(Row):
    """A node, and the tensor in whose memory it is computed in each plan; null for memory of its own."""

    id: str
    a: str | None
    b: str | None


class ShapeRow(Row):
    """Type and extents of a tensor, and its bytes."""

    shape: str
    nbytes: int | None


class ShapePairRow(Row):
    """A tensor whose shape differs."""

    id: str
    id_b: str
    op: str
    a: ShapeRow
    b: ShapeRow

    @classmethod
    def of(cls, pair: ShapePair) -> ShapePairRow:
        """A tensor in both plans."""
        return cls(pair.id, pair.id_b, pair.op, ShapeRow(*pair.a), ShapeRow(*pair.b))


class HeldPairRow(Row):
    """Bytes that are allocated before any graph, in buffers of a type and usage, in both plans."""

    buft: str
    usage: str
    a: int
    b: int


class HeldRow(Row):
    """A tensor that has memory before any graph."""

    id: str
    buft: str
    usage: str
    nbytes: int

    @classmethod
    def of(cls, held: Held | None) -> HeldRow | None:
        """A tensor of a context."""
        return None if held is None else cls(*held)


class HeldMoveRow(Row):
    """A tensor that lies elsewhere before any graph."""

    id: str
    a: HeldRow | None
    b: HeldRow | None

    @classmethod
    def of(cls, move: HeldMove) -> HeldMoveRow:
        """A tensor that moved."""
        return cls(move.id, HeldRow.of(move.a), HeldRow.of(move.b))


class DiffDocument(Document, kw_only=True):
    """`diff --json`: what differs between two plans, part by part; parts that were not compared have no keys.

    `divergences` say where they part first; `rules`, of two releases of ggml, what changed in it and what that did.
    """

    main_table = "moved"
    kind: Literal["diff"] = "diff"
    same: bool
    compared: list[str]
    differing: list[str]
    a: PlanSide
    b: PlanSide
    divergences: list[DivergenceRow]
    rules: list[RuleRow] | UnsetType = UNSET
    only_in_a: list[PlaceRow] | UnsetType = UNSET
    only_in_b: list[PlaceRow] | UnsetType = UNSET
    moved: list[PlacePair] | UnsetType = UNSET
    reordered: list[PlacePair] | UnsetType = UNSET
    other_cause: list[PlacePair] | UnsetType = UNSET
    splits: list[SplitPairRow] | UnsetType = UNSET
    copies: list[CopiesPair] | UnsetType = UNSET
    copied: list[CopiedRow] | UnsetType = UNSET
    buffers: list[BufferPairRow] | UnsetType = UNSET
    reuse: list[ReuseRow] | UnsetType = UNSET
    elsewhere: int | UnsetType = UNSET
    sizes: list[ShapePairRow] | UnsetType = UNSET
    contexts: list[HeldPairRow] | UnsetType = UNSET
    context_tensors: list[HeldMoveRow] | UnsetType = UNSET

    @classmethod
    def of(cls, diff: PlanDiff, titles: Titles, parts: Collection[str]) -> DiffDocument:
        """Everything that differs in the `parts`, and what each plan is; in `splits` also those that are alike."""
        compared = [part for part in PARTS if part in parts]
        differing = [part for part in compared if diff.differs(part)]
        document = cls(
            same=not differing,
            compared=compared,
            differing=differing,
            a=PlanSide.of(diff.a, titles.a),
            b=PlanSide.of(diff.b, titles.b),
            divergences=[DivergenceRow(d.kind, _place(d.a), _place(d.b)) for d in diff.divergences],
        )
        if not diff.has_log and diff.a.plan.ggml != diff.b.plan.ggml:
            document = replace(document, rules=[RuleRow.of(rule) for rule in rules_of(diff)])
        return replace(document, **{key: value for part in compared for key, value in _part(diff, part).items()})


def _part(diff: PlanDiff, part: str) -> dict[str, Any]:
    match part:
        case "nodes":
            return {
                "only_in_a": [PlaceRow.of(place) for place in diff.gone],
                "only_in_b": [PlaceRow.of(place) for place in diff.added],
                "moved": PlacePair.all(diff.moved),
                "reordered": PlacePair.all(diff.reordered),
                "other_cause": PlacePair.all(diff.recaused),
            }
        case "splits":
            return {"splits": [SplitPairRow.of(pair) for pair in diff.splits]}
        case "copies":
            return {
                "copies": [CopiesPair(c.src, c.dst, AmountRow.of(c.a), AmountRow.of(c.b)) for c in diff.copies],
                "copied": [CopiedRow(*pair[:-2], _amount(pair.a), _amount(pair.b)) for pair in diff.inputs],
            }
        case "buffers":
            return {
                "buffers": [
                    BufferPairRow(pair.backend, BufferSideRow.of(pair.a), BufferSideRow.of(pair.b))
                    for pair in diff.buffers
                ],
                "reuse": [ReuseRow(*pair) for pair in diff.reuse],
                "elsewhere": diff.elsewhere,
            }
        case "sizes":
            return {"sizes": [ShapePairRow.of(pair) for pair in diff.shapes]}
        case _:
            return {
                "contexts": [HeldPairRow(*pair) for pair in diff.held],
                "context_tensors": [HeldMoveRow.of(move) for move in diff.held_moves],
            }


def _place(place: Place | None) -> PlaceRow | None:
    return None if place is None else PlaceRow.of(place)


def _amount(amount: Amount | None) -> AmountRow | None:
    return None if amount is None else AmountRow.of(amount)


def _said(event: Assigned | SplitStarted | None) -> str:
    return "" if event is None else words(event)
