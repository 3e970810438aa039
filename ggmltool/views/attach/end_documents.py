"""What `attach --json` prints of the end of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from ggmltool.show.document import ReleaseDocument, Row

if TYPE_CHECKING:
    from ggmltool.inspect.attached.abort import AbortFacts, Meant
    from ggmltool.inspect.what_if import Outcome


class EndBackend(Row):
    """What a backend answered for a tensor: whether it supports the op, and can use the memory that the tensor lies in
    (null: not asked, or it lies nowhere)."""

    backend: str
    op: bool | None
    memory: bool | None


class EndTensor(Row):
    """A tensor that the end may be about: `buffer` is the type of its buffer (null: it has none), `node` its number in
    the graph, `known_by` how it was found (message, named, argument, register, stack), `place` and `holder` where."""

    name: str
    op: str
    type: str
    ne: list[int]
    buffer: str | None
    view_of: str | None
    node: int | None
    known_by: str
    place: str
    holder: str
    backends: list[EndBackend]

    @classmethod
    def of(cls, t: Meant) -> Self:
        """One of them."""
        return cls(
            t.name, t.op, t.type, list(t.ne), t.buffer, t.view_of, t.position, t.how, t.place, t.holder,
            [EndBackend(*a) for a in t.able],
        )  # fmt: skip


class EndMeaning(Row):
    """What the message means, what brings it about, and what to do."""

    key: str
    means: str
    shapes: str
    remedy: str


class EndPlan(Row):
    """What our plan of the same graph comes to: ggml's words where it is refused; `same`: those of the program."""

    message: str | None
    explanation: str
    same: bool


class EndChange(Row):
    """A change with which the graph is planned, and what that comes to."""

    change: str
    backend: str | None
    splits: int
    copied: int


class EndDocument(ReleaseDocument, kw_only=True):
    """The end of a program, and the graph that it was at. `crashed` is the function that a signal came in. `died` is
    false of a core dump of a program that had not; `without` says why there is no graph, `notes` what could not be
    known."""

    main_table = "tensors"
    kind: Literal["attach_end"] = "attach_end"
    name: str
    said: str
    signal: str
    crashed: str
    died: bool
    calls: list[str]
    tensors: list[EndTensor]
    meaning: EndMeaning | None
    function: str | None
    nodes: int
    leafs: int
    plan: EndPlan | None
    changes: list[EndChange]
    without: str
    notes: list[str]

    @classmethod
    def of(cls, ggml: str, name: str, facts: AbortFacts) -> Self:
        """The document of an end."""
        told = facts.explained
        return cls(
            ggml=ggml,
            name=name,
            said=facts.said,
            signal=facts.signal,
            crashed=facts.crashed,
            died=facts.died,
            calls=list(facts.calls),
            tensors=[EndTensor.of(t) for t in facts.tensors],
            meaning=EndMeaning(told.key, told.told.means, told.told.shapes, told.told.remedy) if told else None,
            function=facts.function,
            nodes=facts.nodes,
            leafs=facts.leafs,
            plan=EndPlan(*facts.planned) if facts.planned is not None else None,
            changes=[_change(c) for c in facts.changes],
            without=facts.without,
            notes=list(facts.notes),
        )


def _change(change: Outcome) -> EndChange:
    return EndChange(change.text, change.backend, change.splits, change.copied)
