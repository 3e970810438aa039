"""Why a split begins where it does, what it copies and for whom, and what would save it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggmltool.ask.explain.node import OutcomeRow, ReasonRow
from ggmltool.ask.words import words
from ggmltool.ggml.events import SplitStarted
from ggmltool.ggml.why import Why
from ggmltool.inspect.copied import copied_inputs
from ggmltool.inspect.decisions import Reason
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watched, watch
from ggmltool.inspect.what_if import Change, Outcome, backend_of, changes, outcome, outcomes
from ggmltool.show.document import Row, StepDocument, head, part
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ggmltool.ggml.plan import Plan, SplitPlan
    from ggmltool.inspect.decisions import Decisions


class InputFacts(NamedTuple):
    """A tensor that the split copies: for node `made_for` first; `users` are all nodes that read the copy, with their
    splits.
    """

    id: str
    what: str
    src: str
    nbytes: int
    shape: str
    made_for: str
    users: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """A split: `nodes` from the first to the one behind the last, on `backend`, behind a split on `before`; `start` is
    why it begins.

    `why_first` is why that node is on its backend, then the same of the tensors that settled it, nearest first;
    `read_again` are copies of earlier splits (the copied tensor, and the node here that reads it first); `merges`
    changes that were planned and with which there are fewer splits.
    """

    number: int
    of: int
    backend: str
    nodes: tuple[int, int]
    start: SplitStarted
    before: str | None
    last_before: str
    why_first: tuple[Reason, ...]
    inputs: tuple[InputFacts, ...]
    read_again: tuple[tuple[str, str], ...]
    now: Outcome
    merges: tuple[Outcome, ...]


def explain_split(opened: Opened, moment: Moment, number: int) -> tuple[Watched, SplitFacts]:
    """Why split `number` began. Raises InspectError if the plan has no such split."""
    state = watch(opened, moment, Record(Keep.DECISIONS))
    heard = state.record.decisions
    plan = state.plan
    if not plan.splits:
        raise state.refusal()
    if not plan.nodes:
        raise InspectError(f"graph {state.graph} has no node")
    if number >= len(plan.splits):
        there = "split #0 alone" if len(plan.splits) == 1 else f"splits #0 to #{len(plan.splits) - 1}"
        raise InspectError(f"there is no split {number} in {state.heading}, which has {there}")
    split = plan.splits[number]
    of_views = SplitStarted(number, split.backend, split.i_start, plan.nodes[split.i_start].id, Why.VIEWS_ONLY)
    start = next((e for e in heard.started if e.split == number), of_views)
    before = plan.splits[number - 1] if number else None
    facts = SplitFacts(
        number=number,
        of=len(plan.splits),
        backend=split.backend,
        nodes=(split.i_start, split.i_end),
        start=start,
        before=None if before is None else before.backend,
        last_before=plan.nodes[split.i_start - 1].id if before is not None else "",
        why_first=tuple(_why_first(opened, state, heard, start.node)),
        inputs=tuple(_inputs(opened, plan, state, heard, number)),
        read_again=tuple(_read_again(plan, split)),
        now=outcome("now", plan, opened.model, start.node),
        merges=_merges(opened, state, heard, number),
    )
    return state, facts


def _why_first(opened: Opened, state: Watched, heard: Decisions, node: str) -> Iterator[Reason]:
    """Why the split's first node is on its backend, and those that settled it on theirs."""
    fresh = opened.scenario.start()
    built, names = fresh.build(state.graph), [b.name for b in fresh.backends]
    for tensor in (node, *heard.deciders(node)):
        if tensor in heard.settled:
            yield heard.reason(tensor, built, names)


def _inputs(opened: Opened, plan: Plan, state: Watched, heard: Decisions, number: int) -> Iterator[InputFacts]:
    made = {e.tensor: e for e in heard.inputs if e.split == number}
    for i in copied_inputs(plan, opened.tensors(state.graph)):
        if i.split == number:
            copies = made[i.tensor].copies
            users = tuple((n.id, n.split) for n in plan.nodes if any(s in copies for s in n.src))
            yield InputFacts(i.tensor, i.what, i.src, i.nbytes, i.shape, made[i.tensor].node, users)


def _read_again(plan: Plan, split: SplitPlan) -> Iterator[tuple[str, str]]:
    """Copies that earlier splits made and nodes of this one read."""
    copies = {c.name: c.of for c in plan.copies if c.of not in split.inputs}
    seen: set[str] = set()
    for node in plan.nodes[split.i_start : split.i_end]:
        for s in node.src:
            if s is not None and s in copies and s not in seen:
                seen.add(s)
                yield copies[s], node.id


def _merges(opened: Opened, state: Watched, heard: Decisions, number: int) -> tuple[Outcome, ...]:
    """Changes that were planned, and with which the graph has fewer splits."""
    plan = state.plan
    if number == 0 or not plan.ok:
        return ()
    first = [e.node for e in heard.started if e.split in (number, number - 1)]

    def all_changes() -> Iterator[Change]:
        for node in reversed(first):
            for change in changes(opened, state.graph, node, heard.deciders(node), backend_of(plan, node)):
                yield change._replace(text=f"{change.text} for {node}") if change.of_node else change

    return outcomes(all_changes(), state.graph, first[-1], lambda p: len(p.splits) < len(plan.splits))


class UserRow(Row):
    """A node that reads a copy, and its split."""

    node: str
    split: int


class InputRow(Row, rename={"src": "from"}):
    """A tensor that the split copies: a weight, an input or a node, its bytes, the node it was made for first."""

    id: str
    what: str
    src: str
    nbytes: int
    made_for: str
    users: list[UserRow]

    @classmethod
    def of(cls, i: InputFacts) -> InputRow:
        """An input and who reads it."""
        return cls(i.id, i.what, i.src, i.nbytes, i.made_for, [UserRow(*user) for user in i.users])


class ReadAgain(Row):
    """A copy of an earlier split, of the tensor `id`, that a node of this one reads."""

    id: str
    node: str


class ExplainedSplit(StepDocument, kw_only=True):
    """`explain split --json`: why a split begins where it does, what it copies and for whom.

    `reason` says it in words, `why` is its code; `why_first` is why the first node is on its backend. With each of
    `merges` there are fewer splits than `now`.
    """

    view = "split"
    tells_refusal = ("json", "csv")
    main_table = "inputs"
    kind: Literal["explain_split"] = "explain_split"
    split: int
    splits: int
    backend: str
    i_start: int
    i_end: int
    first: str
    reason: str
    why: str
    why_first: list[ReasonRow]
    behind: str | None
    inputs: list[InputRow]
    read_again: list[ReadAgain]
    now: OutcomeRow
    merges: list[OutcomeRow]


class ExplainedSplitShown(ExplainedSplit, kw_only=True):
    """What was found out about a split, with the plan."""

    plan: Plan
    facts: SplitFacts

    def document(self) -> ExplainedSplit:
        """Without the plan."""
        return part(self, ExplainedSplit)

    def rows(self) -> tuple[InputFacts, ...]:
        """What is copied before it."""
        return self.facts.inputs

    @classmethod
    def of(cls, plan: Plan, facts: SplitFacts) -> ExplainedSplitShown:
        """What was found out about a split of a plan."""
        return cls(
            **head(plan),
            split=facts.number,
            splits=facts.of,
            backend=facts.backend,
            i_start=facts.nodes[0],
            i_end=facts.nodes[1],
            first=facts.start.node,
            reason=words(facts.start),
            why=facts.start.why,
            why_first=[ReasonRow.of(reason) for reason in facts.why_first],
            behind=facts.before,
            inputs=[InputRow.of(i) for i in facts.inputs],
            read_again=[ReadAgain(*again) for again in facts.read_again],
            now=OutcomeRow(*facts.now),
            merges=[OutcomeRow(*merge) for merge in facts.merges],
            plan=plan,
            facts=facts,
        )
