"""What the engine said of one tensor while a graph was scheduled, and what would move it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ggmltool.ask.words import reason_sentence, words
from ggmltool.ggml.device import Device
from ggmltool.ggml.events import Assigned, Said
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import Tensor, dims, op_desc
from ggmltool.inspect.built import no_tensor
from ggmltool.inspect.decisions import Reason, TurnedDownRow, answer
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, Watched, watch
from ggmltool.inspect.what_if import OutcomeRow, backend_of, changes, outcome, outcomes
from ggmltool.show.document import Row, StepDocument, head
from ggmltool.state.errors import InspectError


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
        id, s, down, text = reason.tensor, reason.settled, list(reason.turned_down), reason_sentence(reason)
        if s is None:
            return cls(id, None, None, None, None, None, "", down, text)
        return cls(id, s.backend, s.rule, s.cause, s.why, words(s), s.by, down, text)


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
    def of(cls, name: str, device: Device, t: Tensor) -> AnswerRow:
        """What a backend's device answers for a node."""
        given = answer(device, t)
        copies = [Unreadable(c.id, c.why) for c in given.copies]
        no = given.op is None, given.op, given.memory is None, given.memory
        return cls(name, *no, copies, device.batch_size(t), device.offloads_from(t))


class ExplainedNode(StepDocument, kw_only=True):
    """`explain node --json`: why a node is on its backend, rule by rule, and what would move it.

    `chain` are the reasons of the tensors that settled it, nearest first; `moves` were each planned, `now` is without.
    """

    view = "node"
    tells_refusal = ("json", "csv")
    main_table = "rules"
    beside = ("plan", "asked")
    """The plan, and the scheduler's rules that were asked, in order, with what they decided."""
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
    plan: Plan
    asked: tuple[Said, ...]

    def rows(self) -> tuple[Said, ...]:
        """The rules that were asked."""
        return self.asked


def explain_node(opened: Opened, moment: Moment, name: str) -> tuple[Watched, ExplainedNode]:
    """Why a tensor is where it is. Raises InspectError if the graph has no such tensor."""
    if moment.graph is None and moment.after is None:
        # Where no graph was named and the first does not have the node, the first that has it.
        graphs = opened.model.graphs.items()
        with_it = next((graph for graph, spec in graphs if any(n.id == name for n in spec.nodes)), None)
        moment = moment._replace(graph=with_it)
    state = watch(opened, moment, Record(Keep.DECISIONS))
    heard, graph, plan = state.record.decisions, state.graph, state.plan
    fresh = opened.scenario.start()
    built = fresh.build(graph)
    tensors = [*built.nodes, *built.leafs]
    t = next((t for t in tensors if t.id == name), None)
    if t is None:
        raise _not_there(name, state, tensors)
    node = next((n for n in plan.nodes if n.id == name), None)
    chain = heard.deciders(name)
    names = [b.name for b in fresh.backends]
    reason = heard.reason(name, built, names)
    settled, asked = reason.settled, tuple(heard.said.get(name, ()))
    kind, own = ("node", built.nodes) if t in built.nodes else ("leaf", built.leafs)
    now = backend_of(plan, name) if plan.ok else None
    return state, ExplainedNode(
        **head(plan),
        tensor=name,
        op=op_desc(t) if t.op else None,
        shape=f"{t.type.name}{dims(t.ne)}",
        place=f"{kind} {own.index(t)} of {len(own)}",
        split=node.split if node is not None and plan.splits else None,
        backend=settled.backend if settled is not None else None,
        cause=settled.cause if settled is not None else None,
        decided_by=(settled.by or None) if settled is not None else None,
        rules=[RuleRow.of(said) for said in asked],
        reason=ReasonRow.of(reason),
        chain=[ReasonRow.of(heard.reason(i, built, names)) for i in chain if i in heard.settled],
        sources=list(_sources(t, plan)),
        answers=[AnswerRow.of(b.name, b.device, t) for b in fresh.backends] if t.op else [],
        now=outcome("now" if plan.ok else "now: ggml fails", plan, opened.model, name),
        moves=outcomes(changes(opened, graph, name, chain), graph, name, lambda p: backend_of(p, name) != now),
        plan=plan,
        asked=asked,
    )


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
        return no_tensor(state.graph, name, [t.id for t in tensors])
    text = f"graph {state.graph} does not reach {name}: no node that it expands uses it, so it gets no backend"
    if home is not None and home.buft is not None:
        return InspectError(f"{text}; it keeps the memory of its context in {home.buft}", refused=True)
    told = f'{text} and no memory; to write to it is ggml\'s "tensor buffer not set"'
    return InspectError(f"{told}. Use it in the graph, or give its context a buft", refused=True)


def _sources(t: Tensor, plan: Plan) -> Iterator[SourceRow]:
    """The sources as the graph has them: where each lies, and on which backend it is."""
    rewritten = next((n.src for n in plan.nodes if n.id == t.id), ())
    for slot, s in enumerate(t.src):
        if s is None:
            continue
        buffer = (s.view_src or s).buffer
        lies_in, weights = ("", False) if buffer is None else (buffer.buft.name, buffer.usage == 1)
        copied = slot < len(rewritten) and rewritten[slot] not in (None, s.id)
        yield SourceRow(slot, s.id, f"{s.type.name}{dims(s.ne)}", lies_in, weights, backend_of(plan, s.id), copied)
