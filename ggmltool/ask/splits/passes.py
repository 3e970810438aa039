"""The assignments after one of the scheduler's passes, what the pass changed, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, UnsetType, field

from ggmltool.ask.answer import Answer
from ggmltool.ask.words import words
from ggmltool.ggml.events import GraphInputCopied, SplitStarted
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.decisions import Assignment, PassRecord
from ggmltool.show.colors import term_colors
from ggmltool.show.document import Row, StepDocument, head
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, shortened


class PassTensor(Row):
    """A node or leaf after a pass; `changed` where this pass assigned it, for `reason`."""

    index: int
    leaf: bool
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None
    changed: bool
    reason: str | None


class PassSplit(Row):
    """A split that the last pass began, at the node `at`, for `reason`."""

    split: int
    backend: str
    at: int
    node: str
    reason: str


class PassInput(Row):
    """A tensor that the last pass decided to copy before a split."""

    split: int
    id: str
    backend: str


class PassGraphInput(Row):
    """An input of the graph, with its pipeline copies on its own backend."""

    tensor: str
    backend: str
    copies: list[str]


class PassState(StepDocument, kw_only=True):
    """`splits --pass N --json`: what is assigned after one pass of the scheduler, and what the pass changed.

    `complete` is false, and the rest is missing, where ggml stopped before the end of the pass.
    """

    view = "passes:shown"
    main_table = "tensors"
    beside = ("plan", "records", "passes")
    """The state after a pass, with the records of all passes and what each does."""
    kind: Literal["pass"] = "pass"
    number: int = field(name="pass")
    complete: bool
    tensors: list[PassTensor] | UnsetType = UNSET
    splits: list[PassSplit] | UnsetType = UNSET
    inputs: list[PassInput] | UnsetType = UNSET
    graph_inputs: list[PassGraphInput] | UnsetType = UNSET
    plan: Plan
    records: Sequence[PassRecord]
    passes: Sequence[str]

    @classmethod
    def of(cls, plan: Plan, records: Sequence[PassRecord], number: int, passes: Sequence[str]) -> PassState:
        """The state after pass `number`, of which there is a record unless ggml stopped before."""
        known = {**head(plan), "number": number, "plan": plan, "records": tuple(records), "passes": tuple(passes)}
        record = next((r for r in records if r.number == number), None)
        if record is None:
            return cls(**known, complete=False)
        reasons = changes(record)
        return cls(
            **known,
            complete=True,
            tensors=[
                PassTensor(
                    a.index, a.is_leaf, a.tensor, a.op, a.op, a.backend, a.cause, a.tensor in reasons,
                    reasons.get(a.tensor),
                )
                for a in record.assignments
            ],
            splits=[PassSplit(s.split, s.backend, s.at, s.node, words(s)) for s in record.splits],
            inputs=[PassInput(i.split, i.tensor, i.backend) for i in record.inputs],
            graph_inputs=[PassGraphInput(i.tensor, i.backend, list(i.copies)) for i in record.graph_inputs],
        )  # fmt: skip

    def rows(self) -> tuple[Assignment, ...]:
        """Nodes and leafs after the pass."""
        return next((record.assignments for record in self.records if record.number == self.number), ())


def shown(answer: Answer[PassState], style: Style) -> str:
    """Counts after every pass up to this one, then the nodes and leafs after it; `+` marks what it set anew.

    The records may end before where ggml did not go on.
    """
    plan, number, passes = answer.facts.plan, answer.facts.number, answer.facts.passes
    inks = term_colors(name for name, _ in plan.backends)
    parts = [heading(answer.title, [answer.heading, f"after pass {number}: {passes[number]}"], style), "\n"]
    upto = [r for r in answer.facts.records if r.number <= number]
    parts += [_counts(plan, upto, inks, style, passes)]
    if upto and upto[-1].number == number:
        record = upto[-1]
        if record.splits:
            parts += ["\n", _split_table(record, inks, style)]
        if record.graph_inputs:
            table = Table[GraphInputCopied](
                Column("input", lambda i: i.tensor, cut=True),
                Column("backend", lambda i: Cell(i.backend, inks.get(i.backend, ""))),
                Column("pipeline copies", lambda i: shortened(i.copies, 4), cut=True, drop=1),
            )
            line = f"{count(len(record.graph_inputs), 'input')} of the graph with pipeline copies"
            parts += ["\n", render_lines([line], style), table.render(record.graph_inputs, style)]
        parts += ["\n", _node_table(record, inks, style)]
    return "".join(parts)


def _counts(
    plan: Plan, records: Sequence[PassRecord], inks: dict[str, str], style: Style, passes: Sequence[str]
) -> str:
    """How many nodes and leafs each backend has after each pass."""

    def of(backend: str) -> Column[PassRecord]:
        def nodes(record: PassRecord) -> Cell:
            n = sum(a.backend == backend for a in record.assignments)
            return Cell(str(n), inks[backend]) if n else Cell("–", "dim")

        return Column(printable(backend), nodes, right=True)

    table = Table[PassRecord](
        Column("pass", lambda r: r.number, right=True),
        Column("what it does", lambda r: passes[r.number], cut=True, drop=1),
        *(of(name) for name, _ in plan.backends),
        Column("none yet", lambda r: sum(a.backend is None for a in r.assignments), right=True),
        Column("changed", lambda r: len(changes(r)), right=True),
    )
    return table.render(records, style) if records else ""


def changes(record: PassRecord) -> dict[str, str]:
    """Per tensor that the pass assigned: the reason (of its last assignment)."""
    there = {a.tensor for a in record.assignments}
    return {e.tensor: words(e) for e in record.assigned if e.tensor in there}


def _node_table(record: PassRecord, inks: dict[str, str], style: Style) -> str:
    reasons = changes(record)
    table = Table[Assignment](
        Column("", lambda a: Cell("+", "bold") if a.tensor in reasons else None),
        Column("#", lambda a: f"leaf {a.index}" if a.is_leaf else a.index, right=True),
        Column("op", lambda a: Cell("" if a.is_leaf else a.op, "dim"), drop=1),
        Column("tensor", lambda a: a.tensor, cut=True),
        Column(
            "backend", lambda a: Cell("–", "dim") if a.backend is None else Cell(a.backend, inks.get(a.backend, ""))
        ),
        Column("cause", lambda a: a.cause),
        Column("why", lambda a: reasons.get(a.tensor), cut=True, drop=2),
    )
    return table.render(record.assignments, style)


def _split_table(record: PassRecord, inks: dict[str, str], style: Style) -> str:
    def copied(start: SplitStarted) -> str:
        return shortened([i.tensor for i in record.inputs if i.split == start.split], 3)

    table = Table[SplitStarted](
        Column("split", lambda s: f"#{s.split}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, ""))),
        Column("from node", lambda s: s.at, right=True),
        Column("why", words, cut=True),
        Column("copied", copied, cut=True, drop=1),
    )
    lines = [f"{count(len(record.splits), 'split')}, {count(len(record.inputs), 'input')} to copy"]
    return render_lines(lines, style) + (table.render(record.splits, style) if record.splits else "")
