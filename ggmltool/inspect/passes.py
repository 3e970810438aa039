"""The scheduler's passes one by one: what is assigned after each, and what each announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.events import Assigned, Event, InputAdded, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.tensor import op_desc

if TYPE_CHECKING:
    from collections.abc import Callable

    from ggmltool.ggml.sched.scheduler import Scheduler


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


class PassRecorder:
    """Listens to a scheduler's events (`heard`) and to its passes (`after`); `records` are those of the last split."""

    def __init__(self, graph: Callable[[], CGraph]) -> None:
        self.graph = graph
        self.records: list[PassRecord] = []
        self._events: list[Event] = []

    def heard(self, event: Event) -> None:
        """A listener of the scheduler."""
        if isinstance(event, (Assigned, SplitStarted, InputAdded)):
            self._events.append(event)

    def after(self, number: int, s: Scheduler) -> None:
        """The scheduler's `on_pass`."""
        events, self._events = self._events, []
        assigned = tuple(e for e in events if isinstance(e, Assigned))
        if number == 1:
            self.records = []
            user = tuple(e for e in assigned if e.rule == 0)
            assigned = assigned[len(user) :]
            self.records.append(PassRecord(0, self._user_choices(user), user, (), ()))
        self.records.append(
            PassRecord(
                number,
                self._assignments(s),
                assigned,
                tuple(e for e in events if isinstance(e, SplitStarted)),
                tuple(e for e in events if isinstance(e, InputAdded)),
            )
        )

    def _assignments(self, s: Scheduler) -> tuple[Assignment, ...]:
        graph = self.graph()
        out = []
        for is_leaf, tensors in ((False, graph.nodes), (True, graph.leafs)):
            for i, t in enumerate(tensors):
                b = s.ids[t.index]
                backend = s.names[b] if b != -1 else None
                out.append(Assignment(i, is_leaf, t.id, op_desc(t), backend, s.causes[t.index]))
        return tuple(out)

    def _user_choices(self, user: tuple[Assigned, ...]) -> tuple[Assignment, ...]:
        chosen = {e.tensor: e.backend for e in user}
        graph = self.graph()
        return tuple(
            Assignment(i, is_leaf, t.id, op_desc(t), chosen.get(t.id), "usr" if t.id in chosen else None)
            for is_leaf, tensors in ((False, graph.nodes), (True, graph.leafs))
            for i, t in enumerate(tensors)
        )
