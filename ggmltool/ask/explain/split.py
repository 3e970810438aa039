"""Why a split begins where it does, what it copies and for whom, and what would save it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ggmltool.ask.explain.node import ReasonRow
from ggmltool.ask.words import words
from ggmltool.ggml.events import SplitStarted
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.why import Why
from ggmltool.inspect.copied import copied_inputs
from ggmltool.inspect.decisions import Decisions
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, Watched, watch
from ggmltool.inspect.what_if import Change, OutcomeRow, backend_of, changes, outcome, outcomes
from ggmltool.show.document import Row, StepDocument, head
from ggmltool.state.errors import InspectError


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
    beside = ("plan", "last_before", "shapes")
    """The plan, the last node of the split before it, and the shapes of the inputs."""
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
    plan: Plan
    last_before: str
    shapes: tuple[str, ...]


def explain_split(opened: Opened, moment: Moment, number: int) -> tuple[Watched, ExplainedSplit]:
    """Why split `number` began. Raises InspectError if the plan has no such split."""
    state = watch(opened, moment, Record(Keep.DECISIONS))
    heard, plan = state.record.decisions, state.plan
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
    fresh = opened.scenario.start()
    built, names = fresh.build(state.graph), [b.name for b in fresh.backends]
    settlers = (start.node, *heard.deciders(start.node))
    made = {e.tensor: e for e in heard.inputs if e.split == number}
    inputs = [i for i in copied_inputs(plan, opened.tensors(state.graph)) if i.split == number]

    def users(tensor: str) -> list[UserRow]:
        copies = made[tensor].copies
        return [UserRow(n.id, n.split) for n in plan.nodes if any(s in copies for s in n.src)]

    return state, ExplainedSplit(
        **head(plan),
        split=number,
        splits=len(plan.splits),
        backend=split.backend,
        i_start=split.i_start,
        i_end=split.i_end,
        first=start.node,
        reason=words(start),
        why=start.why,
        why_first=[ReasonRow.of(heard.reason(t, built, names)) for t in settlers if t in heard.settled],
        behind=plan.splits[number - 1].backend if number else None,
        inputs=[InputRow(i.tensor, i.what, i.src, i.nbytes, made[i.tensor].node, users(i.tensor)) for i in inputs],
        read_again=list(_read_again(plan, number)),
        now=outcome("now", plan, opened.model, start.node),
        merges=_merges(opened, state, heard, number),
        plan=plan,
        last_before=plan.nodes[split.i_start - 1].id if number else "",
        shapes=tuple(i.shape for i in inputs),
    )


def _read_again(plan: Plan, number: int) -> Iterator[ReadAgain]:
    """Copies that earlier splits made and nodes of this one read."""
    split = plan.splits[number]
    copies = {c.name: c.of for c in plan.copies if c.of not in split.inputs}
    for node in plan.nodes[split.i_start : split.i_end]:
        for s in node.src:
            if s in copies:
                yield ReadAgain(copies.pop(s), node.id)


def _merges(opened: Opened, state: Watched, heard: Decisions, number: int) -> list[OutcomeRow]:
    """Changes that were planned, and with which the graph has fewer splits."""
    plan = state.plan
    if number == 0 or not plan.ok:
        return []
    first = [e.node for e in heard.started if e.split in (number, number - 1)]

    def all_changes() -> Iterator[Change]:
        for node in reversed(first):
            for change in changes(opened, state.graph, node, heard.deciders(node), backend_of(plan, node)):
                yield change._replace(text=f"{change.text} for {node}") if change.of_node else change

    return outcomes(all_changes(), state.graph, first[-1], lambda p: len(p.splits) < len(plan.splits))
