"""The JSON of explanations: of a node, a split, a reallocation, a message; limits; who supports what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ggmltool.ggml.events import Assigned, IdsChanged
from ggmltool.inspect.messages.explain import explained
from ggmltool.show.document import Document, Error, ReleaseDocument, Row, StepDocument, error_of, head
from ggmltool.views.explain.check import all_is_fine, status
from ggmltool.views.explain.events import EventRow, event_row
from ggmltool.views.explain.reasons import reason_sentence
from ggmltool.views.explain.words import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.gauges import Gauge
    from ggmltool.inspect.limits import Checkup
    from ggmltool.inspect.messages.match import Match
    from ggmltool.inspect.node import BackendAnswer, NodeFacts
    from ggmltool.inspect.realloc import GraphFacts, ReallocFacts
    from ggmltool.inspect.reasons import Reason, Said
    from ggmltool.inspect.split import InputFacts, SplitFacts
    from ggmltool.inspect.supports import Answered, Asked


class TurnedDownRow(Row):
    """A backend that does not support the op, and `why`; `lacks`: it has no such op at all, whatever the operands."""

    backend: str
    op: str
    why: str
    lacks: bool


class ReasonRow(Row):
    """Why a tensor is on its backend: the pass (`rule`) and the cause that settled it, the reason as a code (`why`) and
    in words, the tensor `by` which; backends of higher priority that were `turned_down`; all of it as a sentence."""

    tensor: str
    backend: str | None
    rule: int | None
    cause: str | None
    why: str | None
    reason: str | None
    by: str
    turned_down: list[TurnedDownRow]
    text: str

    @classmethod
    def of(cls, reason: Reason) -> ReasonRow:
        """A reason as codes and facts, and in words."""
        settled, turned_down = reason.settled, [TurnedDownRow(*refused) for refused in reason.turned_down]
        text = reason_sentence(reason)
        if settled is None:
            return cls(reason.tensor, None, None, None, None, None, "", turned_down, text)
        return cls(
            reason.tensor,
            settled.backend,
            settled.rule,
            settled.cause,
            settled.why,
            words(settled),
            settled.by,
            turned_down,
            text,
        )


class RuleRow(Row, rename={"number": "pass"}):
    """A rule of the scheduler that was asked: of which pass, whether it settled the backend, and why."""

    number: int
    cause: str
    backend: str | None
    settled: bool
    why: str

    @classmethod
    def of(cls, said: Said) -> RuleRow:
        """What was said when the rule was asked."""
        return cls(said.rule, said.cause, said.backend or None, isinstance(said, Assigned), words(said))


class SourceRow(Row):
    """A source: the buffer that it lies in ("" before the graph is allocated), its backend, whether it is copied."""

    slot: int
    id: str
    shape: str
    buffer: str
    weights: bool
    backend: str | None
    copied: bool


class Unreadable(Row):
    """A source that a backend cannot read where it lies, and why."""

    id: str
    why: str


class AnswerRow(Row):
    """What a backend answers before anything is scheduled, with the reason of a no; the batch that offload_op looks at,
    and the least that it asks for."""

    backend: str
    supports_op: bool
    why_not_op: str | None
    supports_buft: bool
    why_not_buft: str | None
    copies: list[Unreadable]
    batch: int
    offload_min_batch: int | None

    @classmethod
    def of(cls, a: BackendAnswer) -> AnswerRow:
        """A backend's answer."""
        copies = [Unreadable(*copy) for copy in a.copies]
        return cls(a.backend, a.op is None, a.op, a.memory is None, a.memory, copies, a.batch, a.least)


class OutcomeRow(Row):
    """What a plan comes to: the backend (null: ggml refuses), the splits, the bytes they copy; `text` says what was
    changed for it."""

    text: str
    backend: str | None
    splits: int
    copied: int


class ExplainNodeDocument(StepDocument, kw_only=True):
    """`explain node --json`: why a node is on its backend, rule by rule, and what would move it.

    `chain` are the reasons of the tensors that settled it, nearest first; `moves` were each planned, `now` is without.
    """

    main_table = "rules"
    kind: Literal["explain_node"] = "explain_node"
    tensor: str
    op: str | None
    shape: str
    place: str
    split: int | None
    backend: str | None
    cause: str | None
    decided_by: str | None
    rules: list[RuleRow]
    reason: ReasonRow
    chain: list[ReasonRow]
    sources: list[SourceRow]
    answers: list[AnswerRow]
    now: OutcomeRow
    moves: list[OutcomeRow]

    @classmethod
    def of(cls, plan: Plan, facts: NodeFacts) -> ExplainNodeDocument:
        """What was found out about a tensor of a plan."""
        verdict = facts.verdict
        return cls(
            **head(plan),
            tensor=facts.id,
            op=facts.op or None,
            shape=facts.shape,
            place=facts.place,
            split=facts.split,
            backend=verdict.backend if verdict is not None else None,
            cause=verdict.cause if verdict is not None else None,
            decided_by=(verdict.by or None) if verdict is not None else None,
            rules=[RuleRow.of(said) for said in facts.asked],
            reason=ReasonRow.of(facts.reason),
            chain=[ReasonRow.of(reason) for reason in facts.chain],
            sources=[SourceRow(*source) for source in facts.sources],
            answers=[AnswerRow.of(answer) for answer in facts.answers],
            now=OutcomeRow(*facts.now),
            moves=[OutcomeRow(*move) for move in facts.moves],
        )


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


class ExplainSplitDocument(StepDocument, kw_only=True):
    """`explain split --json`: why a split begins where it does, what it copies and for whom.

    `reason` says it in words, `why` is its code; `why_first` is why the first node is on its backend. With each of
    `merges` there are fewer splits than `now`.
    """

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

    @classmethod
    def of(cls, plan: Plan, facts: SplitFacts) -> ExplainSplitDocument:
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
        )


class ReallocGraph(Row):
    """A graph as the scheduler gives it to the allocator, with copies and dependencies, and the bytes per backend."""

    called: str
    nodes: int
    leafs: int
    splits: int
    inputs: int
    size: int
    buffers: dict[str, int]

    @classmethod
    def of(cls, g: GraphFacts, backends: Sequence[str]) -> ReallocGraph:
        """A graph, with the names of the backends."""
        return cls(*g[:-1], dict(zip(backends, g.buffers, strict=True)))


class PartingRow(Row):
    """Node `at` is the first with another op: what it is in each graph, "" beyond the end."""

    at: int
    first: str
    second: str


class ExplainReallocDocument(ReleaseDocument, kw_only=True):
    """`explain realloc --json`: whether the memory planned for one graph serves another.

    `why` is what ggml finds first (null: it serves), `outgrown` all that has too little; `alone` are the bytes that the
    second graph needs by itself; `log` is what a debug build logs; `unexpected`: GGML_SCHED_DEBUG_REALLOC=1 aborts.
    """

    main_table = ""
    kind: Literal["explain_realloc"] = "explain_realloc"
    serves: bool
    first: ReallocGraph
    second: ReallocGraph
    alone: dict[str, int]
    why: EventRow | None
    backend_ids_changed: bool
    outgrown: list[EventRow]
    parting: PartingRow | None
    grown: list[EventRow]
    serves_back: bool
    unexpected: bool
    log: list[str]

    @classmethod
    def of(cls, f: ReallocFacts) -> ExplainReallocDocument:
        """What became of the plan."""
        return cls(
            ggml=f.ggml,
            serves=f.why is None,
            first=ReallocGraph.of(f.first, f.backends),
            second=ReallocGraph.of(f.second, f.backends),
            alone=dict(zip(f.backends, f.alone, strict=True)),
            why=None if f.why is None else event_row(f.why),
            backend_ids_changed=isinstance(f.why, IdsChanged),
            outgrown=[event_row(o) for o in f.outgrown],
            parting=None if f.parting is None else PartingRow(*f.parting),
            grown=[event_row(g) for g in f.grown],
            serves_back=f.serves_back,
            unexpected=f.unexpected,
            log=list(f.log),
        )


class OtherMessage(Row):
    """Another message in the same text."""

    key: str
    text: str
    line: int
    title: str


class ExplainErrorDocument(Document, kw_only=True):
    """`explain error --json`: what a message of ggml or llama.cpp means, what brings it about, what to do.

    `score` says how near the text is (1: every word of the message is there), `values` what printf filled in, `ask`
    which command shows more, `era` when ggml printed it, if it no longer does.
    """

    main_table = ""
    kind: Literal["explain_error"] = "explain_error"
    found: Literal[True] = True
    key: str
    text: str
    score: float
    title: str
    line: int
    values: dict[str, str]
    texts: list[str]
    functions: list[str]
    means: str
    shapes: str
    remedy: str
    ask: str
    era: str
    others: list[OtherMessage]

    @classmethod
    def of(cls, found: Match, others: Sequence[Match] = ()) -> ExplainErrorDocument:
        """A message, and the others in the text."""
        said = explained(found)
        return cls(
            key=found.key,
            text=found.text,
            score=found.score,
            title=said.title,
            line=found.line,
            values=said.values,
            texts=list(said.texts),
            functions=list(said.functions),
            **said.told._asdict(),
            era=said.era,
            others=[OtherMessage(m.key, m.text, m.line, explained(m).title) for m in others],
        )


class NearMessage(Row):
    """A message that is near to a text."""

    key: str
    text: str
    score: float


class NoMessage(Document, kw_only=True):
    """`explain error --json` of a text that is no known message: those that are nearest."""

    kind: Literal["explain_error"] = "explain_error"
    found: Literal[False] = False
    nearest: list[NearMessage]

    @classmethod
    def of(cls, nearest: Sequence[Match]) -> NoMessage:
        """The nearest messages."""
        return cls(nearest=[NearMessage(m.key, m.text, m.score) for m in nearest])


class GaugeRow(Row):
    """A limit and how near the graph is to it: `used` of `of`, null where ggml did not get so far; what is counted
    in `parts`, and what ggml does `beyond` it."""

    key: str
    group: str
    limit: str
    constant: str
    used: int | None
    of_: int = msgspec.field(name="of")
    unit: str
    status: str
    where: str
    parts: dict[str, int]
    beyond: str

    @classmethod
    def of(cls, g: Gauge) -> GaugeRow:
        """A gauge, with what its limit is called."""
        about, unit = g.about, "bytes" if g.about.nbytes else "count"
        return cls(
            g.key, about.group, about.text, about.constant, g.used, g.limit, unit, status(g), g.where, dict(g.of),
            about.beyond,
        )  # fmt: skip


class BreachRow(Row):
    """The limit that stopped ggml, and how much was asked of it."""

    key: str
    used: int | None


class CheckedGraph(Row, kw_only=True):
    """A graph with all gauges; where ggml refused it, its error and the limit that was breached, if it was one."""

    graph: str
    ok: bool
    gauges: list[GaugeRow]
    error: Error | UnsetType = UNSET
    breach: BreachRow | UnsetType | None = UNSET

    @classmethod
    def of(cls, one: Checkup) -> CheckedGraph:
        """A graph that was checked."""
        breach = None if one.breach is None else BreachRow(one.breach.limit, one.breach.used)
        return cls(
            graph=one.graph,
            ok=one.plan.ok,
            gauges=[GaugeRow.of(g) for g in one.gauges],
            error=error_of(one.plan.error),
            breach=UNSET if one.plan.error is None else breach,
        )


class CheckDocument(ReleaseDocument, kw_only=True):
    """`check --json`: every limit of ggml with its gauge, graph by graph; `ok` unless one is breached."""

    main_table = "graphs.gauges"
    kind: Literal["check"] = "check"
    step: str
    ok: bool
    graphs: list[CheckedGraph]
    after: int | UnsetType = UNSET

    @classmethod
    def of(cls, found: Sequence[Checkup], after: int | None) -> CheckDocument:
        """The graphs that were checked; `after` is the step's number where one was named."""
        plan, graphs = found[0].plan, [CheckedGraph.of(one) for one in found]
        return cls(
            ggml=plan.ggml,
            step=plan.step,
            ok=all_is_fine(found),
            graphs=graphs,
            after=UNSET if after is None else after,
        )


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
