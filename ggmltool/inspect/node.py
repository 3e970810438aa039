"""What the engine said of one tensor while a graph was scheduled, and what would move it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.events import Assigned
from ggmltool.ggml.tensor import Tensor, dims, op_desc
from ggmltool.inspect.answers import answer
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.reasons import Reason, Said
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watched, watch
from ggmltool.inspect.what_if import Asker, Change, Outcome, backend_of, outcome, to_another_backend, try_changes
from ggmltool.scenario.errors import nearest, quoted

if TYPE_CHECKING:
    from ggmltool.ggml.device import Device
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.plan import Plan


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


def changes(opened: Opened, graph: str, name: str, chain: Sequence[str], now: str | None = None) -> Iterator[Change]:
    """What might move a tensor to another backend than `now`."""
    if len(opened.model.backends) == 1:
        return
    run = opened.scenario.start()
    built = run.build(graph)
    t = next(t for t in (*built.nodes, *built.leafs) if t.id == name)
    able = [b.name for b in run.backends if b.device.supports_op(t)]
    askers = [
        Asker(b.name, b.device.batch_size(t), least)
        for b in run.backends
        if b.name in able and (least := b.device.offloads_from(t)) is not None and 0 < b.device.batch_size(t) < least
    ]
    yield from to_another_backend(opened.model, graph, name, chain, able, askers, now)


def outcomes(tried: Iterable[Change], graph: str, node: str, wanted: Callable[[Plan], bool]) -> tuple[Outcome, ...]:
    """The changes that were planned and came out as wanted."""
    return tuple(try_changes(tried, graph, node, wanted))
