"""What differs between two plans, as rows of the JSON document: nodes, splits, copies, buffers, contexts, rules."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ggml.plan import Plan
from ggmltool.show.document import Document, Error, Row, head


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
    def of(cls, plan: Plan, title: str) -> PlanSide:
        """A plan in brief."""
        sizes = dict(plan.buffer_sizes)
        return cls(title=title, **head(plan), nodes=len(plan.nodes), splits=len(plan.splits), buffer_sizes=sizes)


class NodePlace(Row):
    """A node in a plan: its backend and why; its split, and why a split begins with it, other than the graph's first
    (null: none does; empty: the reason is not known)."""

    index: int
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None
    reason: str
    split: int
    start: str | None


class NodePair(Row):
    """The same node in both plans."""

    a: NodePlace
    b: NodePlace


class PlanDivergence(Row):
    """The first node in program order that differs in one way: its `kind` is order, backend or split.

    For order, the nodes that stand at the same place (null: the graph ended before); else the same node in both."""

    kind: str
    a: NodePlace | None
    b: NodePlace | None

    @property
    def at(self) -> int:
        return min(place.index for place in (self.a, self.b) if place is not None)


class Finding(Row):
    """What a rule changed, in a part of the plan."""

    part: str
    what: str


class RuleChange(Row, kw_only=True):
    """A rule of ggml's that changed between two releases, and what it changed here; `rule` is null for what follows
    from the others."""

    rule: str | None
    since: str | UnsetType = UNSET
    commit: str | UnsetType = UNSET
    build: str | UnsetType = UNSET
    before: str | UnsetType = UNSET
    now: str | UnsetType = UNSET
    changed: tuple[Finding, ...]


class Amount(Row, kw_only=True):
    """Tensors that are copied, and their bytes; with `nbytes_max`, as a log told them, between the two."""

    tensors: int
    nbytes: int
    nbytes_max: int | UnsetType = UNSET

    @classmethod
    def between(cls, tensors: int = 0, low: int = 0, high: int = 0) -> Amount:
        """A number of tensors that have together between `low` and `high` bytes."""
        return cls(tensors=tensors, nbytes=low, nbytes_max=UNSET if low == high else high)

    @property
    def most(self) -> int:
        """The most bytes that it can be."""
        return self.nbytes if self.nbytes_max is UNSET else self.nbytes_max

    def same(self, other: Amount) -> bool:
        """Whether both can be the same."""
        return self.tensors == other.tensors and self.nbytes <= other.most and other.nbytes <= self.most

    def __add__(self, other: Amount) -> Amount:
        return Amount.between(self.tensors + other.tensors, self.nbytes + other.nbytes, self.most + other.most)


class SplitSide(Row):
    """A split in a plan: node `index`, called `first`, is its first; what it copies, and why it begins."""

    id: int
    backend: str
    index: int
    first: str
    n_nodes: int
    copied: Amount
    reason: str


class SplitPair(Row):
    """A split of both plans, or of one; `changes` names the fields that differ, or says that it is gone or new."""

    a: SplitSide | None
    b: SplitSide | None
    changes: tuple[str, ...]


class CopiesPair(Row, rename={"src": "from", "dst": "to"}):
    """All that is copied from one backend (`?` where a log does not tell) to another, in both plans."""

    src: str
    dst: str
    a: Amount
    b: Amount


class CopyPair(Row, rename={"src": "from", "dst": "to"}):
    """A tensor that is copied in one plan only, or in both; `id_b` is what it is called in the second."""

    id: str | None
    id_b: str | None
    what: str
    src: str
    dst: str
    a: Amount | None
    b: Amount | None

    @property
    def change(self) -> int:
        """How many bytes more or fewer are copied."""
        a, b = (0 if amount is None else amount.nbytes for amount in (self.a, self.b))
        return abs(b - a)


class BufferSide(Row):
    """A compute buffer: its bytes, those of its chunks, the bytes alive at its peak and the node computed then."""

    size: int
    chunks: tuple[int, ...]
    peak: int | None
    at: str


class BufferPair(Row):
    """The compute buffers of a backend; null where a plan does not have the backend."""

    backend: str
    a: BufferSide | None
    b: BufferSide | None

    @property
    def differs(self) -> bool:
        """Whether more than the names of nodes differs."""
        return self.a is None or self.b is None or replace(self.a, at="") != replace(self.b, at="")


class ReusePair(Row):
    """A node, and the tensor in whose memory it is computed in each plan; null for memory of its own."""

    id: str
    a: str | None
    b: str | None


class Shaped(Row):
    """A tensor's type and extents, and the bytes it takes (null: it is a view or is pre-allocated)."""

    shape: str
    nbytes: int | None


class ShapePair(Row):
    """A tensor with another type, other extents or another size, by its ids; `op` is NONE for a leaf."""

    id: str
    id_b: str
    op: str
    a: Shaped
    b: Shaped

    @property
    def growth(self) -> int:
        return (self.b.nbytes or 0) - (self.a.nbytes or 0)


class HeldPair(Row):
    """Bytes that are allocated before any graph, in buffers of a type and usage, in both plans."""

    buft: str
    usage: str
    a: int
    b: int


class Held(Row):
    """A tensor that has memory before any graph: of buffer type `buft`, in a buffer of this `usage`."""

    id: str
    buft: str
    usage: str
    nbytes: int


class HeldMove(Row):
    """A tensor that lies elsewhere before any graph, or is of another size; null if it is not there."""

    id: str
    a: Held | None
    b: Held | None


class DiffDocument(Document, kw_only=True):
    """`diff --json`: what differs between two plans, part by part; parts that were not compared have no keys.

    `divergences` say where they part first; `rules`, of two releases of ggml, what changed in it and what that did.
    """

    main_table = "moved"
    kind: Literal["diff"] = "diff"
    same: bool
    compared: tuple[str, ...]
    differing: tuple[str, ...]
    a: PlanSide
    b: PlanSide
    divergences: tuple[PlanDivergence, ...]
    rules: tuple[RuleChange, ...] | UnsetType = UNSET
    only_in_a: tuple[NodePlace, ...] | UnsetType = UNSET
    only_in_b: tuple[NodePlace, ...] | UnsetType = UNSET
    moved: tuple[NodePair, ...] | UnsetType = UNSET
    reordered: tuple[NodePair, ...] | UnsetType = UNSET
    other_cause: tuple[NodePair, ...] | UnsetType = UNSET
    splits: tuple[SplitPair, ...] | UnsetType = UNSET
    copies: tuple[CopiesPair, ...] | UnsetType = UNSET
    copied: tuple[CopyPair, ...] | UnsetType = UNSET
    buffers: tuple[BufferPair, ...] | UnsetType = UNSET
    reuse: tuple[ReusePair, ...] | UnsetType = UNSET
    elsewhere: int | UnsetType = UNSET
    sizes: tuple[ShapePair, ...] | UnsetType = UNSET
    contexts: tuple[HeldPair, ...] | UnsetType = UNSET
    context_tensors: tuple[HeldMove, ...] | UnsetType = UNSET
