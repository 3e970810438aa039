"""The passes of January 2024 where somebody listens: the same ones, which tell what they did from the state before and
after. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.events import (
    Assigned,
    Event,
    InputAdded,
    PassedOver,
    SplitStarted,
)
from ggmltool.ggml.releases.january_2024 import passes as assign
from ggmltool.ggml.releases.january_2024.passes import Cut
from ggmltool.ggml.sched.telling import tell
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import NO_FACTS, Facts, Why

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.releases.january_2024.state import SchedulerState


def _assigned(s: SchedulerState, t: Tensor, rule: int, why: Why, by: Tensor, facts: Facts = NO_FACTS) -> Assigned:
    return Assigned(t.label, s.names[s.ids[t.index]], rule, s.causes[t.index] or "", why, by.label, facts)


def assign_from_buffers(s: SchedulerState, graph: CGraph) -> None:
    """Pass 1."""
    for t in assign.unassigned(s, graph):
        tell(s, _without_memory(s, t))
        s.ids[t.index] = assign.allocr_from_cur(s, t)
        tell(s, _from_buffer(s, t))


def _without_memory(s: SchedulerState, t: Tensor) -> Iterator[Event]:
    """What settles nothing before weights are looked at."""
    root = t.view_src
    if t.buffer is not None:
        return
    yield PassedOver(t.label, 1, "1.dst", Why.NO_MEMORY)
    if root is not None and root.buffer is not None:
        return
    if root is not None:
        yield PassedOver(t.label, 1, "1.vsrc", Why.NO_MEMORY, facts=Facts(tensor=root.label))
    if t.op and _weight(s, t) is None:
        yield PassedOver(t.label, 1, "1.wgt", Why.NO_WEIGHT)


def _weight(s: SchedulerState, t: Tensor) -> Tensor | None:
    return next((w for w in s.sources(t) if w.buffer is not None and w.buffer.usage == USAGE_WEIGHTS), None)


def _from_buffer(s: SchedulerState, t: Tensor) -> Iterator[Event]:
    """The memory that settled a tensor: its own, that of what it is a view of, or a weight's."""
    b = s.ids[t.index]
    by = {"1.dst": t, "1.vsrc": t.view_src}.get(s.causes[t.index] or "", _weight(s, t))
    if b != -1 and by is not None and by.buffer is not None:
        own = s.tallocs[b].buffer is by.buffer
        why = Why.MEMORY if by in (t, t.view_src) else Why.WEIGHT
        yield _assigned(s, t, 1, why, by, Facts(buft=None if own else by.buffer.buft.name))


def expand(s: SchedulerState, graph: CGraph) -> None:
    """Pass 2."""
    for number in range(1, len(assign.SWEEPS) + 1):
        before = [(n.index, s.ids[n.index], s.causes[n.index]) for n in graph.nodes]
        assign.expand_once(s, graph, number)
        given = {i: (s.ids[i], s.causes[i]) for i, _, _ in before}
        for i, b, cause in before:
            s.ids[i], s.causes[i] = b, cause
        tell(s, _expanded(s, graph, number, given))


def _expanded(
    s: SchedulerState, graph: CGraph, number: int, given: Mapping[int, tuple[int, str | None]]
) -> Iterator[Event]:
    """What a sweep did to each node that had no backend before it, done again as it is told."""
    sweep, cause = assign.SWEEPS[number - 1], f"2.{number}"
    origin: Tensor | None = None
    for n in assign.in_order(graph, sweep):
        if s.ids[n.index] != -1:
            origin = n
            continue
        s.ids[n.index], s.causes[n.index] = given[n.index]
        if origin is None:
            yield PassedOver(n.label, 2, cause, Why.NO_NEIGHBOR, facts=Facts(sweep=sweep))
        elif s.ids[n.index] != -1:
            yield _assigned(s, n, 2, Why.NEIGHBOR, origin, Facts(sweep=sweep))
        else:
            facts = Facts(tensor=origin.label, backend=s.names[s.ids[origin.index]], sweep=sweep)
            yield PassedOver(n.label, 2, cause, Why.SPREADS_LAST, facts=facts)


def assign_sources(s: SchedulerState, graph: CGraph) -> None:
    """Pass 3."""
    for n in graph.nodes:
        asked = [n] if n.view_src is not None else []
        asked = [t for t in (*asked, *s.sources(n)) if s.ids[t.index] == -1]
        causes = {t.index: s.causes[t.index] for t in asked}
        assign.assign_sources_of(s, n)
        given = {i: (s.ids[i], s.causes[i]) for i in causes}
        for i, cause in causes.items():
            s.ids[i], s.causes[i] = -1, cause
        tell(s, _from_root_or_reader(s, n, asked, given))


def _from_root_or_reader(
    s: SchedulerState, n: Tensor, asked: Sequence[Tensor], given: Mapping[int, tuple[int, str | None]]
) -> Iterator[Event]:
    """What came of a node and its sources, each as often as it was asked for; done again as it is told."""
    done: set[int] = set()
    for t in asked:
        by = t.view_src or n
        s.ids[t.index], s.causes[t.index] = given[t.index]
        if s.ids[t.index] == -1:
            cause = "3.cur" if t.view_src is None else "3.vsrc"
            yield PassedOver(t.label, 3, cause, Why.NO_BACKEND, facts=Facts(tensor=by.label))
        elif t.index not in done:
            done.add(t.index)
            yield _assigned(s, t, 3, Why.READER if t.view_src is None else Why.VIEW, by)


TELLING = (assign_from_buffers, expand, assign_sources)
"""Passes 1 to 3."""


class TellingCut(Cut):
    """Pass 4, which tells of every split and every copy as it is made."""

    def __init__(self, s: SchedulerState, tell: Callable[[Event], None]) -> None:
        super().__init__(s)
        self.tell = tell

    def begin(self, at: int, node: Tensor | None, why: Why) -> None:
        super().begin(at, node, why)
        if node is not None:
            self.tell(SplitStarted(self.i_split, self.s.names[self.cur_split.backend_id], at, node.label, why))

    def copy_for_split(self, t: Tensor, n: Tensor) -> Tensor:
        n_inputs = len(self.cur_split.inputs)
        copy = super().copy_for_split(t, n)
        if len(self.cur_split.inputs) > n_inputs:
            backend = self.s.names[self.cur_split.backend_id]
            self.tell(InputAdded(self.i_split, backend, t.label, n.label, (copy.name,)))
        return copy
