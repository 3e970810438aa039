"""The scheduler's passes one by one: what is assigned after each, and what each announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.events import Assigned, Event, GraphInputCopied, InputAdded, SplitStarted
from ggmltool.ggml.tensor import op_desc
from ggmltool.inspect.part import Part

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler


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
    assigned: tuple[Assigned, ...]
    splits: tuple[SplitStarted, ...]
    inputs: tuple[InputAdded, ...]
    graph_inputs: tuple[GraphInputCopied, ...] = ()


class PassRecorder(Part):
    """What every pass did for the graph that was split last."""

    hears = frozenset({Assigned, SplitStarted, InputAdded, GraphInputCopied})
    looks_at_passes = True

    def __init__(self) -> None:
        self.records: list[PassRecord] = []
        self._events: list[Event] = []

    def hear(self, event: Event) -> None:
        self._events.append(event)

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        graph = sched.seen_graphs[-1]
        events, self._events = self._events, []
        assigned = tuple(e for e in events if isinstance(e, Assigned))
        if number == 1:
            self.records = []
            user = tuple(e for e in assigned if e.rule == 0)
            assigned = assigned[len(user) :]
            self.records.append(PassRecord(0, _user_choices(graph, user), user, (), ()))
        self.records.append(
            PassRecord(
                number,
                _assignments(graph, sched),
                assigned,
                tuple(e for e in events if isinstance(e, SplitStarted)),
                tuple(e for e in events if isinstance(e, InputAdded)),
                tuple(e for e in events if isinstance(e, GraphInputCopied)),
            )
        )


def _assignments(graph: CGraph, s: AnyScheduler) -> tuple[Assignment, ...]:
    out = []
    for is_leaf, tensors in ((False, graph.nodes), (True, graph.leafs)):
        for i, t in enumerate(tensors):
            b = s.ids[t.index]
            backend = s.names[b] if b != -1 else None
            out.append(Assignment(i, is_leaf, t.id, op_desc(t), backend, s.causes[t.index] or None))
    return tuple(out)


def _user_choices(graph: CGraph, user: tuple[Assigned, ...]) -> tuple[Assignment, ...]:
    chosen = {e.tensor: e.backend for e in user}
    return tuple(
        Assignment(i, is_leaf, t.id, op_desc(t), chosen.get(t.id), "usr" if t.id in chosen else None)
        for is_leaf, tensors in ((False, graph.nodes), (True, graph.leafs))
        for i, t in enumerate(tensors)
    )
