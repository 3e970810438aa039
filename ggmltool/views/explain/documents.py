"""The JSON of explanations: of a node, a split, a reallocation, a message; limits; who supports what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from ggmltool.show.document import Error, ReleaseDocument, Row, error_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.supports import Answered, Asked


class MissingRow(Row):
    """A source that has to be copied before the backend can run the node, and why."""

    slot: int
    id: str
    why: str


class MeasuredRow(Row):
    """What an answer of a real device rests on: how many of the cases that were tested it supports."""

    basis: str
    yes: int
    of: int


class SupportsAnswer(Row, kw_only=True):
    """yes, copy, offload or no, and why not; the sources to copy first; what a real device's answer rests on."""

    answer: str
    why_not: str | UnsetType = UNSET
    copies: list[MissingRow] | UnsetType = UNSET
    measured: MeasuredRow | UnsetType = UNSET

    @classmethod
    def of(cls, a: Answered) -> SupportsAnswer:
        """What a backend answers."""
        measured = a.measured
        return cls(
            answer=a.state,
            why_not=UNSET if a.why_not is None else a.why_not,
            copies=[MissingRow(*copy) for copy in a.copies] or UNSET,
            measured=UNSET if measured is None else MeasuredRow(measured.basis, measured.yes, measured.of),
        )


class SupportsNode(Row):
    """A node with the answers of all backends; `backend` is the one that gets it."""

    index: int
    id: str
    op: str
    op_desc: str
    type: str
    ne: list[int]
    src_types: list[str]
    backend: str | None
    answers: dict[str, SupportsAnswer]


class SupportsDocument(ReleaseDocument, kw_only=True):
    """`supports --json`: which backend supports which node of a graph, and why not."""

    kind: Literal["supports"] = "supports"
    graph: str | None
    ok: bool
    backends: list[str]
    nodes: list[SupportsNode]
    error: Error | UnsetType = UNSET

    @classmethod
    def of(cls, plan: Plan, nodes: Sequence[Asked], backends: Sequence[str]) -> SupportsDocument:
        """Nodes that were asked for, and whether the plan came about."""
        rows = [
            SupportsNode(
                n.index,
                n.id,
                n.op,
                n.op,
                n.type,
                list(n.ne),
                list(n.src),
                n.backend,
                {b: SupportsAnswer.of(a) for b, a in zip(backends, n.answers, strict=True)},
            )
            for n in nodes
        ]
        return cls(
            ggml=plan.ggml,
            graph=plan.graph,
            ok=plan.ok,
            backends=list(backends),
            nodes=rows,
            error=error_of(plan.error),
        )
