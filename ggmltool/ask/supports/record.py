"""Which backend could run which node of a graph, and why not: every answer before anything is scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from msgspec import UNSET, UnsetType

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cases import CaseAnswer
from ggmltool.ggml.devices.recorded import AnswerBasis, RecordedDevice
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import Tensor
from ggmltool.inspect.decisions import MissingSource, answer
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.spec import BackendSpec
from ggmltool.show.document import Error, ReleaseDocument, Row, error_of

State = Literal["yes", "no", "copy", "offload"]
STATES: tuple[State, ...] = get_args(State)


class SupportFacts(NamedTuple):
    """What one backend answers: `why_not` for a no, `copies` for sources it cannot read where they lie.

    `lacks`: it has no such op at all, whatever the operands. `measured` is what the answer rests on where it is that of
    a real device, or of one in a process, None elsewhere.
    """

    state: State
    why_not: str | None
    copies: tuple[MissingSource, ...]
    lacks: bool = False
    measured: CaseAnswer | AnswerBasis | None = None


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """A node with the answers of all backends in order; `backend` is the one that gets it, None without a plan."""

    index: int
    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[str, ...]
    backend: str | None
    answers: tuple[SupportFacts, ...]

    @property
    def types(self) -> str:
        """`q4_0, f32 → f32`."""
        return f"{', '.join(self.src)} → {self.type}" if self.src else self.type


def asked(run: Run, graph: str, plan: Plan) -> list[NodeAnswers]:
    """Every node of a graph that was just built, with the answers of all backends."""
    planned = {n.id: (n.backend, n.cause) for n in plan.nodes} if plan.ok else {}
    nodes = []
    for i, t in enumerate(run.build(graph).nodes):
        backend, cause = planned.get(t.id, (None, None))
        answers = []
        for spec, b in zip(run.model.backends, run.backends, strict=True):
            a = answer(b.device, t)
            state: State = "no" if not a.runs else "copy" if a.copies else "yes"
            if a.runs and cause == "1.off" and b.name == backend:
                state = "offload"
            answers.append(SupportFacts(state, a.why_not, a.copies, a.lacks, _measured(spec, b.device, t)))
        sources = tuple(s.type.name if s is not None else "–" for s in t.src)
        op = KEY_NAMES[t.key].upper()
        nodes.append(NodeAnswers(i, t.id, op, t.type.name, t.ne, sources, backend, tuple(answers)))
    return nodes


def _measured(spec: BackendSpec, device: Device, t: Tensor) -> CaseAnswer | AnswerBasis | None:
    """What the answer rests on where a real device's cases decide, or its answers in a process."""
    supports = spec.supports
    if isinstance(device, RecordedDevice) and t.op not in EMPTY_OPS:
        return device.basis(t)
    if supports is None or supports.cases is None or t.op in EMPTY_OPS:
        return None
    has_rule = any(rule.keys is not None and t.key in rule.keys for rule in supports.rules)
    return None if has_rule else supports.cases.answer(t)


class MeasuredRow(Row):
    """What an answer of a real device rests on: how many of the cases that were tested it supports."""

    basis: str
    yes: int
    of: int


class SupportsAnswer(Row, kw_only=True):
    """yes, copy, offload or no, and why not; the sources to copy first; what a real device's answer rests on."""

    answer: str
    why_not: str | UnsetType = UNSET
    copies: tuple[MissingSource, ...] | UnsetType = UNSET
    measured: MeasuredRow | UnsetType = UNSET

    @classmethod
    def of(cls, a: SupportFacts) -> SupportsAnswer:
        """What a backend answers."""
        measured = a.measured
        return cls(
            answer=a.state,
            why_not=UNSET if a.why_not is None else a.why_not,
            copies=a.copies or UNSET,
            measured=UNSET if measured is None else MeasuredRow(measured.basis, measured.yes, measured.of),
        )


class SupportsNode(Row):
    """A node with the answers of all backends; `backend` is the one that gets it."""

    index: int
    id: str
    op: str
    op_desc: str
    type: str
    ne: tuple[int, ...]
    src_types: tuple[str, ...]
    backend: str | None
    answers: dict[str, SupportsAnswer]


class SupportsDocument(ReleaseDocument, kw_only=True):
    """`supports --json`: which backend supports which node of a graph, and why not."""

    view = "supports"
    tells_refusal = ("json", "csv")
    kind: Literal["supports"] = "supports"
    graph: str | None
    ok: bool
    backends: list[str]
    nodes: list[SupportsNode]
    error: Error | UnsetType = UNSET


class SupportMatrix(SupportsDocument, kw_only=True):
    """The nodes that are shown, out of `total`, with the answers of its `backends` as they were given; a row for every
    node, or for all of a kind."""

    plan: Plan
    asked: tuple[NodeAnswers, ...]
    total: int
    by_node: bool


def supports(opened: Opened, graph: str, by_node: bool, state: State | None) -> SupportMatrix:
    """The nodes of a graph to which some backend gives this answer; all of them for None."""
    plan = opened.scenario.plan(graph)
    run = opened.scenario.start()
    nodes = asked(run, graph, plan)
    chosen = tuple(n for n in nodes if state is None or any(a.state == state for a in n.answers))
    backends = [b.name for b in run.backends]
    rows = []
    for n in chosen:
        answers = {b: SupportsAnswer.of(a) for b, a in zip(backends, n.answers, strict=True)}
        rows.append(SupportsNode(n.index, n.id, n.op, n.op, n.type, n.ne, n.src, n.backend, answers))
    return SupportMatrix(
        ggml=plan.ggml,
        graph=plan.graph,
        ok=plan.ok,
        backends=backends,
        nodes=rows,
        error=error_of(plan.error),
        plan=plan,
        asked=chosen,
        total=len(nodes),
        by_node=by_node,
    )
