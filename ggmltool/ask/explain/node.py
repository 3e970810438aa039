"""What the engine said of one tensor while a graph was scheduled, and what would move it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggmltool.ask.words import reason_sentence, words
from ggmltool.ggml.events import Assigned, Said
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import Tensor, dims, op_desc
from ggmltool.inspect.decisions import Reason, answer
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watched, watch
from ggmltool.inspect.what_if import Outcome, backend_of, changes, outcome, outcomes
from ggmltool.scenario.errors import nearest, quoted
from ggmltool.show.document import Row, StepDocument, head, part
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ggml.device import Device
    from ggmltool.ggml.graph import CGraph


class SourceFacts(NamedTuple):
    """A source: the buffer type it lies in ("" before the graph is allocated), its backend, whether it is copied."""

    slot: int
    id: str
    shape: str
    buffer: str
    weights: bool
    backend: str | None
    copied: bool


class BackendAnswer(NamedTuple):
    """What a backend says before anything is scheduled: supports_op, supports_buft for the tensor's own memory, the
    sources it cannot read where they lie, and the batch that offload_op looks at with the least it asks for.
    """

    backend: str
    op: str | None
    memory: str | None
    copies: tuple[tuple[str, str], ...]
    batch: int
    least: int | None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A tensor; `asked` are the rules of the scheduler that were asked for it, in order, with what they decided.

    `reason` is why it is where it is, `chain` why the tensors that settled it are, nearest first.

    `moves` are changes that were planned and that move it, `now` is the plan without one.
    """

    id: str
    op: str
    shape: str
    place: str
    split: int | None
    asked: tuple[Said, ...]
    reason: Reason
    chain: tuple[Reason, ...]
    sources: tuple[SourceFacts, ...]
    answers: tuple[BackendAnswer, ...]
    now: Outcome
    moves: tuple[Outcome, ...]

    @property
    def verdict(self) -> Assigned | None:
        """What settled it last."""
        return self.reason.settled


def explain_node(opened: Opened, moment: Moment, name: str) -> tuple[Watched, NodeFacts]:
    """Why a tensor is where it is. Raises InspectError if the graph has no such tensor."""
    moment = _in_a_graph_that_has_it(opened, moment, name)
    state = watch(opened, moment, Record(Keep.DECISIONS))
    heard = state.record.decisions
    graph = state.graph
    fresh = opened.scenario.start()
    built = fresh.build(graph)
    tensors = [*built.nodes, *built.leafs]
    found = next((t for t in tensors if t.id == name), None)
    if found is None:
        raise _not_there(name, state, tensors)
    plan = state.plan
    node = next((n for n in plan.nodes if n.id == name), None)
    chain = heard.deciders(name)
    names = [b.name for b in fresh.backends]
    now = backend_of(plan, name) if plan.ok else None
    facts = NodeFacts(
        id=name,
        op=op_desc(found) if found.op else "",
        shape=f"{found.type.name}{dims(found.ne)}",
        place=_place(found, built),
        split=node.split if node is not None and plan.splits else None,
        asked=tuple(heard.said.get(name, ())),
        reason=heard.reason(name, built, names),
        chain=tuple(heard.reason(i, built, names) for i in chain if i in heard.settled),
        sources=tuple(_sources(found, plan)),
        answers=tuple(_answered(b.device, b.name, found) for b in fresh.backends) if found.op else (),
        now=outcome("now" if plan.ok else "now: ggml fails", plan, opened.model, name),
        moves=outcomes(changes(opened, graph, name, chain), graph, name, lambda p: backend_of(p, name) != now),
    )
    return state, facts


def _place(t: Tensor, graph: CGraph) -> str:
    if t in graph.nodes:
        return f"node {graph.nodes.index(t)} of {len(graph.nodes)}"
    return f"leaf {graph.leafs.index(t)} of {len(graph.leafs)}"


def _in_a_graph_that_has_it(opened: Opened, moment: Moment, name: str) -> Moment:
    """Where no graph was named and the first does not have the node, the first that has it."""
    graphs = opened.model.graphs
    if moment.graph is not None or moment.after is not None:
        return moment
    with_it = next((graph for graph, spec in graphs.items() if any(n.id == name for n in spec.nodes)), None)
    return moment if with_it is None else moment._replace(graph=with_it)


def _not_there(name: str, state: Watched, tensors: list[Tensor]) -> InspectError:
    """What to say of a name that is not one of the graph's tensors."""
    copy = next((c for c in state.plan.copies if c.name == name), None)
    if copy is not None:
        return InspectError(
            f"{name} is the copy of {copy.of} for {copy.backend}; `explain split` shows which node needs it"
        )
    model = state.run.model
    home = next((c for c in model.contexts if any(t.id == name for t in c.tensors)), None)
    if home is None and all(n.id != name for n in model.graphs[state.graph].nodes):
        near = nearest(name, [t.id for t in tensors])
        return InspectError(
            f"graph {state.graph} has no tensor {quoted(name)}" + (f"; did you mean {quoted(near)}?" if near else "")
        )
    text = f"graph {state.graph} does not reach {name}: no node that it expands uses it, so it gets no backend"
    if home is not None and home.buft is not None:
        return InspectError(f"{text}; it keeps the memory of its context in {home.buft}", refused=True)
    told = f'{text} and no memory; to write to it is ggml\'s "tensor buffer not set"'
    return InspectError(f"{told}. Use it in the graph, or give its context a buft", refused=True)


def _sources(t: Tensor, plan: Plan) -> list[SourceFacts]:
    """The sources as the graph has them: where each lies, and on which backend it is."""
    rewritten = next((n.src for n in plan.nodes if n.id == t.id), ())
    out = []
    for slot, s in enumerate(t.src):
        if s is None:
            continue
        buffer = (s.view_src or s).buffer
        copied = slot < len(rewritten) and rewritten[slot] not in (None, s.id)
        out.append(
            SourceFacts(
                slot,
                s.id,
                f"{s.type.name}{dims(s.ne)}",
                "" if buffer is None else buffer.buft.name,
                buffer is not None and buffer.usage == 1,
                backend_of(plan, s.id),
                copied,
            )
        )
    return out


def _answered(device: Device, name: str, t: Tensor) -> BackendAnswer:
    given = answer(device, t)
    copies = tuple((c.id, c.why) for c in given.copies)
    least = device.offloads_from(t)
    return BackendAnswer(name, given.op, given.memory, copies, device.batch_size(t), least)


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


class ExplainedNode(StepDocument, kw_only=True):
    """`explain node --json`: why a node is on its backend, rule by rule, and what would move it.

    `chain` are the reasons of the tensors that settled it, nearest first; `moves` were each planned, `now` is without.
    """

    view = "node"
    tells_refusal = ("json", "csv")
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


class ExplainedNodeShown(ExplainedNode, kw_only=True):
    """What was found out about a tensor, with the plan."""

    plan: Plan
    facts: NodeFacts

    def document(self) -> ExplainedNode:
        """Without the plan."""
        return part(self, ExplainedNode)

    def rows(self) -> tuple[Said, ...]:
        """The rules that were asked."""
        return self.facts.asked

    @classmethod
    def of(cls, plan: Plan, facts: NodeFacts) -> ExplainedNodeShown:
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
            plan=plan,
            facts=facts,
        )
