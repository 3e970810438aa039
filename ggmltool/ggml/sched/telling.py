"""The passes where somebody listens: the same ones, which tell what they did from the state before and after.

Nothing is decided here. What a rule could not settle is asked of the same devices once more. What a pass has decided is
taken back and given again, tensor by tensor as it is told: who hears of one finds the state that ggml has then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.events import Assigned, Event, GraphInputCopied, InputAdded, PassedOver, Refused, SplitStarted
from ggmltool.ggml.sched import assign
from ggmltool.ggml.sched.split import Cut
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor, op_desc
from ggmltool.ggml.why import NO_FACTS, Facts, Sweep, Why

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.sched.state import SchedulerState


class Given(NamedTuple):
    """The backend that a pass gave a tensor, and its cause."""

    backend_id: int
    cause: str | None


def _take_back(s: SchedulerState, t: Tensor, before: Given) -> Given:
    """What a tensor has been given since, which it has no more."""
    given = Given(s.ids[t.index], s.causes[t.index])
    _give(s, t, before)
    return given


def _give(s: SchedulerState, t: Tensor, given: Given) -> None:
    s.ids[t.index], s.causes[t.index] = given


def tell(s: AnyScheduler, events: Iterator[Event]) -> None:
    """Announce, where somebody listens."""
    if s.events:
        for event in events:
            s.events(event)


def assign_from_buffers(s: SchedulerState, tensors: Sequence[Tensor]) -> None:
    """Pass 1."""
    for t in tensors:
        if s.ids[t.index] != -1:
            continue
        tell(s, _asked_of_memory(s, t))
        home = (t.view_src or t).buffer
        before = Given(-1, s.causes[t.index])
        try:
            assign.assign_from_buffers(s, [t])
        except GgmlAbort:
            if home is not None:
                tell(s, _passed_higher(s, t, "1.dst", home.buft, -1))
            raise
        given = _take_back(s, t, before)
        tell(s, _assigned_from_buffers(s, t, given))
        _give(s, t, given)


def _asked_of_memory(s: SchedulerState, t: Tensor) -> Iterator[Event]:
    """What settles nothing before weights are looked at."""
    if (t.view_src or t).buffer is not None:
        return
    yield PassedOver(t.id, 1, "1.dst", Why.NO_MEMORY)
    if t.flags & FLAG_INPUT:
        return
    yield PassedOver(t.id, 1, "1.inp", Why.NOT_INPUT)
    if t.op in s.rules.ignores_weights:
        yield PassedOver(t.id, 1, "1.wgt", Why.WEIGHTS_IGNORED, facts=Facts(op=op_desc(t)))
    elif t.op and _weight(t) is None:
        yield PassedOver(t.id, 1, "1.wgt", Why.NO_WEIGHT)


def _weight(t: Tensor) -> Tensor | None:
    sources = (src for src in t.src if src is not None)
    return next((src for src in sources if src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS), None)


def _assigned_from_buffers(s: SchedulerState, t: Tensor, given: Given) -> Iterator[Event]:
    """What settled a tensor, and what of higher priority did not get it."""
    b, cause = given.backend_id, given.cause or ""
    home = (t.view_src or t).buffer
    weight = _weight(t)
    if home is not None:
        yield from _passed_higher(s, t, cause, home.buft, b)
        yield _assigned(s, t, given, 1, Why.MEMORY, (t.view_src or t).label, Facts(buft=home.buft.name))
    elif cause == "1.inp":
        yield _assigned(s, t, given, 1, Why.INPUT, t.id)
    elif cause.startswith(("1.off", "1.wgt")) and weight is not None and weight.buffer is not None:
        yield from _by_weight(s, t, given, weight, weight.buffer.buft)


def _by_weight(s: SchedulerState, t: Tensor, given: Given, weight: Tensor, buft: BufferType) -> Iterator[Event]:
    b, cause = given.backend_id, given.cause or ""
    last = len(s.backends) - 1
    if cause == "1.off" or (b == last and buft.host):
        for higher in range((b if cause == "1.off" else last) if s.op_offload else 0):
            yield _not_offloaded(s, t, higher)
        if not s.op_offload:
            yield PassedOver(t.id, 1, "1.off", Why.OFFLOAD_OFF)
    if cause == "1.off":
        device = s.backends[b].device
        facts = Facts(buft=buft.name, batch=device.batch_size(t), min_batch=device.offloads_from(t))
        yield _assigned(s, t, given, 1, Why.OFFLOAD, weight.id, facts)
        return
    yield from _passed_higher(s, t, cause, buft, b)
    if b != -1:
        yield _assigned(s, t, given, 1, Why.WEIGHT, weight.id, Facts(buft=buft.name))


def _not_offloaded(s: SchedulerState, t: Tensor, b: int) -> Event:
    """Why a backend does not offload an op whose weight lies on the host."""
    device = s.backends[b].device
    if not device.supports_op(t):
        return _refused(s, t, b, 1, "1.off")
    batch, least = device.batch_size(t), device.offloads_from(t)
    why, facts = Why.SMALL_BATCH, Facts(batch=batch, min_batch=least)
    if least is None:
        why, facts = Why.NEVER_OFFLOADS, NO_FACTS
    elif batch <= 0:
        why, facts = Why.NEVER_OFFLOADS, Facts(op=op_desc(t))
    return PassedOver(t.id, 1, "1.off", why, s.names[b], facts)


def _passed_higher(s: SchedulerState, t: Tensor, cause: str, buft: BufferType, b: int) -> Iterator[Event]:
    """Why the backends before `b` (all of them, for -1) do not get what memory of type `buft` decides."""
    for higher, usable in enumerate(s.usable_bufts[: b if b >= 0 else None]):
        if buft in usable:
            yield _refused(s, t, higher, 1, cause)
        else:
            yield PassedOver(t.id, 1, cause, Why.BUFT, s.names[higher], Facts(buft=buft.name))


def _refused(s: SchedulerState, t: Tensor, b: int, rule: int, cause: str) -> Refused:
    refusal = s.backends[b].device.refusal(t)
    condition, lacks = ("", False) if refusal is None else refusal
    return Refused(t.id, s.names[b], rule, cause, condition, lacks)


def _assigned(
    s: SchedulerState, t: Tensor, given: Given, rule: int, why: Why, by: str = "", facts: Facts = NO_FACTS
) -> Assigned:
    """A tensor gets what it was given: what to tell of it."""
    _give(s, t, given)
    return Assigned(t.label, s.names[given.backend_id], rule, given.cause or "", why, by, facts)


def expand(s: SchedulerState, real: Sequence[Tensor]) -> None:
    """Pass 2. A device that fails where it is asked fails again where its answer is told, at the same node."""
    for sweep in assign.SWEEPS:
        before = [Given(s.ids[n.index], s.causes[n.index]) for n in real]
        try:
            assign.expand_once(s, real, sweep)
        finally:
            given = {n.index: _take_back(s, n, b) for n, b in zip(real, before, strict=True)}
            tell(s, _expanded(s, real, sweep, given))


def _expanded(s: SchedulerState, real: Sequence[Tensor], sweep: Sweep, given: Mapping[int, Given]) -> Iterator[Event]:
    """What a sweep did to each node that had no backend before it."""
    last = len(s.backends) - 1
    origin: Tensor | None = None
    for n in real if sweep.down else reversed(real):
        if s.ids[n.index] != -1:
            origin = n
        elif origin is None:
            yield PassedOver(n.id, 2, "2.sup", Why.NO_NEIGHBOR, facts=Facts(sweep=sweep))
        elif given[n.index].backend_id != -1:
            yield _assigned(s, n, given[n.index], 2, Why.NEIGHBOR, origin.label, Facts(sweep=sweep))
        elif sweep.skips_last and s.ids[origin.index] == last:
            facts = Facts(tensor=origin.label, backend=s.names[last], sweep=sweep)
            yield PassedOver(n.id, 2, "2.sup", Why.SPREADS_LAST, facts=facts)
        else:
            yield _refused(s, n, s.ids[origin.index], 2, "2.sup")


def choose_or_upgrade(s: SchedulerState, real: Sequence[Tensor]) -> None:
    """Pass 3."""
    upgrades = assign.equal_bufts(s)
    for n in real:
        b = s.ids[n.index]
        before = Given(b, s.causes[n.index])
        if b == -1:
            readable = assign.choose_best(s, n)
            tell(s, _chosen(s, n, _take_back(s, n, before), readable))
        elif upgrades[b]:
            assign.upgrade(s, n, upgrades[b])
            tell(s, _upgraded(s, n, _take_back(s, n, before), upgrades[b]))


def _chosen(s: SchedulerState, n: Tensor, given: Given, readable: dict[int, int]) -> Iterator[Event]:
    """`readable` is how many sources each backend that supports the op can read."""
    for b in range(len(s.backends)):
        if b not in readable:
            yield _refused(s, n, b, 3, "3.best")
    for b, count in readable.items():
        if b != given.backend_id:
            yield PassedOver(n.id, 3, "3.best", Why.FEWER_SOURCES, s.names[b], Facts(n_src=count))
    if len(readable) > 1:
        counts = tuple((s.names[b], count) for b, count in readable.items())
        facts = Facts(n_src=sum(src is not None for src in n.src), readable=counts)
        yield _assigned(s, n, given, 3, Why.MOST_SOURCES, facts=facts)
    elif readable:
        yield _assigned(s, n, given, 3, Why.ONLY_ONE, facts=Facts(n_backends=len(s.backends)))


def _upgraded(s: SchedulerState, n: Tensor, given: Given, candidates: Sequence[int]) -> Iterator[Event]:
    before = s.ids[n.index]
    for b in candidates:
        if b == given.backend_id:
            yield _assigned(s, n, given, 3, Why.SAME_BUFT, facts=Facts(backend=s.names[before]))
            return
        if s.backends[b].device.supports_op(n):
            yield PassedOver(n.id, 3, "3.upg", Why.SOURCES, s.names[b])
        else:
            yield _refused(s, n, b, 3, "3.upg")


def assign_sources(s: SchedulerState, nodes: Sequence[Tensor]) -> None:
    """Pass 4."""
    for n in nodes:
        unassigned = {t.index: t for t in (n, *n.src) if t is not None and s.ids[t.index] == -1}
        before = {i: Given(-1, s.causes[i]) for i in unassigned}
        try:
            assign.assign_sources(s, [n])
        finally:
            if unassigned:
                tensors = list(unassigned.values())
                tell(s, _assigned_sources(s, n, tensors, [_take_back(s, t, before[t.index]) for t in tensors]))


def _assigned_sources(
    s: SchedulerState, n: Tensor, unassigned: Sequence[Tensor], given: Sequence[Given]
) -> Iterator[Event]:
    """Which of a node and its sources, in the order they are looked at, got a backend; the node itself may be last."""
    pairs = zip(unassigned, given, strict=True)
    for t, to in sorted(pairs, key=lambda pair: pair[0] is n and pair[1].cause == "2.sup"):
        if to.backend_id == -1:
            _give(s, t, to)
        elif to.cause == "2.sup":
            yield _assigned(s, t, to, 4, Why.FIRST_ABLE)
        elif t.view_src is not None:
            yield _assigned(s, t, to, 4, Why.VIEW, t.view_src.label)
        else:
            yield _assigned(s, t, to, 4, Why.READER, n.label)


TELLING = (assign_from_buffers, expand, choose_or_upgrade, assign_sources)
"""Passes 1 to 4."""


class TellingCut(Cut):
    """Passes 5 and 6, which tell of every split and every copy as it is made."""

    def __init__(self, s: SchedulerState, tell: Callable[[Event], None]) -> None:
        super().__init__(s)
        self.tell = tell

    def begin(self, at: int, node: Tensor | None, why: Why, source: Tensor | None = None) -> None:
        super().begin(at, node, why, source)
        if node is None:
            return
        facts = NO_FACTS
        if source is not None and why is Why.NO_ROOM:
            facts = Facts(tensor=source.id, n_inputs=len(self.s.splits[self.i_split - 1].inputs))
        elif source is not None and source.buffer is not None:
            facts = Facts(tensor=source.id, buft=source.buffer.buft.name)
        backend = self.s.names[self.cur_split.backend_id]
        self.tell(SplitStarted(self.i_split, backend, at, node.id, why, facts))

    def copy_graph_input(self, t: Tensor, b: int) -> None:
        s = self.s
        n_inputs = len(s.graph_inputs)
        super().copy_graph_input(t, b)
        if len(s.graph_inputs) > n_inputs:
            self.tell(GraphInputCopied(t.id, s.names[b], self._copies(t, b)))

    def copy_for_split(self, t: Tensor, n: Tensor) -> Tensor:
        n_inputs = len(self.cur_split.inputs)
        copy = super().copy_for_split(t, n)
        if len(self.cur_split.inputs) > n_inputs:
            b = self.cur_split.backend_id
            self.tell(InputAdded(self.i_split, self.s.names[b], t.id, n.id, self._copies(t, b)))
        return copy

    def _copies(self, t: Tensor, b: int) -> tuple[str, ...]:
        of = self.s.copies[t.index]
        return tuple(copy.name for copy in (of[b] if of is not None else None) or ())
