"""What the scheduler announced while it split a graph, why a tensor is on its backend, and what devices answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ggmltool.ggml import events
from ggmltool.ggml.device import Backend, Device
from ggmltool.ggml.events import SPLIT_GRAPH, Event, Said
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.show.document import Row

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler


class Part:
    """A part of a record: it hears the events of the kinds in `hears`, and looks at a scheduler if it wants to."""

    hears: ClassVar[frozenset[type]] = frozenset()
    looks_at_passes: ClassVar[bool] = False

    def hear(self, event: Any) -> None:
        """An event of one of the kinds in `hears`."""

    def attach(self, sched: AnyScheduler) -> None:
        """A scheduler was made."""

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        """The scheduler's `on_pass`, where `looks_at_passes`."""


class TurnedDownRow(Row):
    """A backend that does not support the op, and `why`; `lacks`: it has no such op at all, whatever the operands."""

    backend: str
    op: str
    why: str
    lacks: bool


class Reason(NamedTuple):
    """Why `tensor` is where it is.

    `settled` is the last rule that gave it a backend, None if none did. `turned_down` are the backends of higher
    priority (all, if there is no backend) that were asked and do not support its op, `passed_over` what else the rule
    that settled it says of backends of higher priority. `is_next`: every backend of higher priority was turned down.
    """

    tensor: str
    settled: events.Assigned | None
    turned_down: tuple[TurnedDownRow, ...]
    passed_over: tuple[events.PassedOver, ...]
    is_next: bool


def reason_of(tensor: str, op: str, said: Sequence[Said], backends: Sequence[str]) -> Reason:
    """Put together what was `said` of a tensor with this op; `backends` are all names, highest priority first."""
    settled = next((e for e in reversed(said) if isinstance(e, events.Assigned)), None)
    higher = backends if settled is None else backends[: backends.index(settled.backend)]
    refusals = {e.backend: e for e in said if isinstance(e, events.Refused)}
    down = tuple(TurnedDownRow(b, op, refusals[b].condition, refusals[b].lacks) for b in higher if b in refusals)
    rule = 1 if settled is None else settled.rule
    passed = (e for e in said if isinstance(e, events.PassedOver) and e.rule == rule)
    over = tuple(e for e in passed if e.backend in higher or not e.backend)
    return Reason(tensor, settled, down, over, bool(higher) and len(down) == len(higher))


def unsupported(
    backends: Sequence[Backend], nodes: Iterable[Tensor], on: Mapping[str, str | None]
) -> Counter[tuple[TurnedDownRow, str]]:
    """How many nodes run on no GPU (on the second of the pair) since one does not support their op, by reason.

    `on` is the backend of each node. To be asked of a graph that has no memory yet. A GPU is not asked for nodes with
    a source in the memory of another one: they belong there.
    """
    names = [b.name for b in backends]
    gpus = [b for b in backends if b.device.type in ("gpu", "igpu")]
    memory = {b.device.buft: b.name for b in gpus}
    found: Counter[tuple[TurnedDownRow, str]] = Counter()
    for node in nodes:
        there = on.get(node.id)
        if there is None or node.is_view_op or any(there == b.name for b in gpus):
            continue
        belongs = {memory.get(src.buffer.buft) for src in node.src if src is not None and src.buffer is not None}
        for backend in gpus:
            if names.index(backend.name) > names.index(there) or belongs - {None, backend.name}:
                continue
            refusal = backend.device.refusal(node)
            if refusal is not None:
                found[TurnedDownRow(backend.name, op_desc(node), *refusal), there] += 1
    return found


_CHAIN = 4
"""Decisions that are followed back: the node's own, then those of the tensors that settled it."""


class Decisions(Part):
    """The decisions for the graph that was split last.

    `said` is all that was said of each tensor, `settled` what gave it its backend; `started` is where splits begin,
    `inputs` what they copy. `order` are the ids of the nodes before devices put them into an order of their own.
    """

    hears = frozenset({
        events.Entered, events.Left, events.Assigned, events.PassedOver, events.Refused, events.SplitStarted,
        events.InputAdded,
    })  # fmt: skip
    looks_at_passes = True

    def __init__(self) -> None:
        self.said: dict[str, list[Said]] = {}
        self.settled: dict[str, events.Assigned] = {}
        self.started: list[events.SplitStarted] = []
        self.inputs: list[events.InputAdded] = []
        self.order: list[str] = []
        self._is_over = False

    def hear(self, event: Event) -> None:
        match event:
            case events.Assigned() | events.PassedOver() | events.Refused():
                # What the program says of its tensors comes before the graph is split, and belongs to it.
                if self._is_over:
                    self.said, self.settled, self._is_over = {}, {}, False
                if isinstance(event, events.Assigned):
                    self.settled[event.tensor] = event
                self.said.setdefault(event.tensor, []).append(event)
            case events.SplitStarted():
                self.started.append(event)
            case events.InputAdded():
                self.inputs.append(event)
            case events.Entered(function) if function in SPLIT_GRAPH:
                self.started, self.inputs = [], []
            case events.Left(function) if function in SPLIT_GRAPH:
                self._is_over = True
            case _:
                pass

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        if number == len(sched.passes) - 1:
            self.order = [n.id for n in sched.seen_graphs[-1].nodes]

    def reason(self, tensor: str, built: CGraph, backends: Sequence[str]) -> Reason:
        """Why a tensor of the graph is where it is."""
        op = next((op_desc(t) for t in built.nodes if t.id == tensor), "")
        return reason_of(tensor, op, self.said.get(tensor, ()), backends)

    def deciders(self, tensor: str) -> list[str]:
        """The tensor that settled this one, the one that settled that one, and so on."""
        out: list[str] = []
        at = tensor
        while len(out) < _CHAIN:
            event = self.settled.get(at)
            if event is None or not event.by or event.by in (tensor, at, *out):
                break
            at = event.by
            out.append(at)
        return out


class MissingSource(Row):
    """A source in memory that the device cannot use, so that it would have to be copied before, and why."""

    slot: int
    id: str
    why: str


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """A device's answers for one node; a reason that is None is a yes.

    `op` is the answer of supports_op, `lacks` whether it has no such op at all, `memory` the answer of supports_buft
    for the memory the node has already (that of its root, for a view), `copies` the sources whose memory the device
    cannot use.
    """

    op: str | None
    memory: str | None
    copies: tuple[MissingSource, ...]
    lacks: bool = False

    @property
    def runs(self) -> bool:
        """Whether the scheduler may give it the node: ggml copies sources, but never a node's own memory."""
        return self.op is None and self.memory is None

    @property
    def why_not(self) -> str | None:
        """The reason of a no: the op's rule before the memory, as a device that lacks the op needs no memory for it."""
        return self.op if self.op is not None else self.memory


def answer(device: Device, node: Tensor) -> DeviceAnswer:
    """Ask a device about a node and the memory that node and sources have now; views have that of their roots."""

    def why_not(t: Tensor) -> str | None:
        buffer = t.view_src.buffer if t.view_src is not None else t.buffer
        return None if buffer is None else device.why_not_buft(buffer.buft)

    memory = why_not(node)
    text, lacks = device.refusal(node) or (None, False)
    sources = [(slot, source.id, why_not(source)) for slot, source in enumerate(node.src) if source is not None]
    copies = tuple(MissingSource(slot, id, why) for slot, id, why in sources if why is not None)
    return DeviceAnswer(text, None if memory is None else f"it is pre-allocated: {memory}", copies, lacks)


class Assignment(NamedTuple):
    """A tensor of the graph after a pass. `index` counts nodes and leafs of their own; None: nothing is assigned."""

    index: int  # type: ignore[assignment]
    is_leaf: bool
    tensor: str
    op: str
    backend: str | None
    cause: str | None


class PassRecord(NamedTuple):
    """The state after pass `number`: all nodes, then all leafs; what was announced in the pass, in order."""

    number: int
    assignments: tuple[Assignment, ...]
    assigned: tuple[events.Assigned, ...]
    splits: tuple[events.SplitStarted, ...]
    inputs: tuple[events.InputAdded, ...]
    graph_inputs: tuple[events.GraphInputCopied, ...] = ()


class PassRecorder(Part):
    """What every pass did for the graph that was split last."""

    hears = frozenset({events.Assigned, events.SplitStarted, events.InputAdded, events.GraphInputCopied})
    looks_at_passes = True

    def __init__(self) -> None:
        self.records: list[PassRecord] = []
        self._events: list[Event] = []

    def hear(self, event: Event) -> None:
        self._events.append(event)

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        graph = sched.seen_graphs[-1]
        said, self._events = self._events, []
        assigned = tuple(e for e in said if isinstance(e, events.Assigned))
        rows = [
            (Assignment(i, is_leaf, t.id, op_desc(t), None, None), t.index)
            for is_leaf, tensors in ((False, graph.nodes), (True, graph.leafs))
            for i, t in enumerate(tensors)
        ]
        if number == 1:
            user = tuple(e for e in assigned if e.rule == 0)
            assigned = assigned[len(user) :]
            chosen = {e.tensor: e.backend for e in user}
            choices = (row._replace(backend=chosen.get(row.tensor)) for row, _ in rows)
            before = tuple(row._replace(cause="usr") if row.backend else row for row in choices)
            self.records = [PassRecord(0, before, user, (), ())]
        ids, causes = sched.ids, sched.causes
        names = {-1: None, **dict(enumerate(sched.names))}
        self.records.append(
            PassRecord(
                number,
                tuple(row._replace(backend=names[ids[i]], cause=causes[i] or None) for row, i in rows),
                assigned,
                tuple(e for e in said if isinstance(e, events.SplitStarted)),
                tuple(e for e in said if isinstance(e, events.InputAdded)),
                tuple(e for e in said if isinstance(e, events.GraphInputCopied)),
            )
        )
