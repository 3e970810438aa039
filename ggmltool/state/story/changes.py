"""What changes from one point of a run to the next, found where the event says that it can be.

Comparing the whole state at every point would take longer than the run by far. So an event is asked what ggml can have
written since the one before: a tensor's backend, the hash nodes of the node whose turn it is and of its sources, the
free blocks of one chunk. Where ggml goes over everything (a split begins, children are counted, memory is given) all of
that is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml import events
from ggmltool.ggml.events import SPLIT_GRAPH, Event
from ggmltool.state.story.points import Changes
from ggmltool.state.story.shadow import Shadow, context_cells

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run
    from ggmltool.state.story.points import Point

_CUT, _INPUTS_LAST, _BEHIND = 5, 6, 7
"""In place of a rule: the graph is being cut, inputs of leafs are copied behind that, devices order their nodes."""

_NODE_BY_NODE = 4
"""The pass that goes from node to node and does not tell of all that it writes."""


class Watcher:
    """A run that is watched: what changed since the last look."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.shadow: Shadow | None = None
        self._builds: list[CGraph] = []
        self._nodes: list[Tensor] | None = None
        self._begins = True
        self._fresh = False
        self._rule = 0
        self._node = 0
        self._labels: dict[str, list[Tensor]] = {}
        self._first_users: dict[int, int] = {}
        self._decided: Sequence[Tensor] = ()
        self._turn = -1
        self._touched: dict[int, Tensor] = {}
        self._n_made = 0

    def look(self, point: Point) -> Changes:
        """What changed since the point before `point`, at which the run is now."""
        if self.shadow is None:
            if self.run.sched is None:
                made, self._n_made = self.run.persistent[self._n_made :], len(self.run.persistent)
                return tuple(context_cells(made))
            self.shadow = Shadow(self.run, self.run.sched)
            self.shadow.all()
        elif point.event is not None:
            self._after(self.shadow, point.event)
            self.shadow.keys()
        elif point.ends:
            self._end_of_step(self.shadow)
        else:
            self._begins = True
        out = tuple(self.shadow.found)
        self.shadow.found = []
        return out

    def _end_of_step(self, s: Shadow) -> None:
        """After the last event of a step: a reset, or a refusal, has none."""
        self._nodes = None
        self._fresh = False
        if self.run.plans and not self.run.plans[-1].ok:
            s.all()
            return
        self._built(s)
        s.state()
        s.memory()
        s.placed()

    def _after(self, s: Shadow, event: Event) -> None:
        if self._begins or isinstance(event, events.Entered | events.TensorWritten):
            self._begins = False
            self._built(s)
        if self._fresh:
            self._split_begins(s)
        match event:
            case events.Allocated() | events.Reused() | events.NotReused() | events.Freed() | events.Kept():
                self._allocates(s, event)
            case events.Assigned() | events.PassedOver() | events.Refused():
                self._decides(s, event)
            case events.AllocationStarted(at):
                self._turns_to(s, at)
            case events.SplitStarted() | events.InputAdded() | events.GraphInputCopied():
                self._cuts(s, event)
            case events.KeptUntil() | events.Reordered():
                self._behind(s)
                if isinstance(event, events.Reordered):
                    s.graphs()
            case (
                events.Synchronized()
                | events.TensorCopied()
                | events.TensorWritten()
                | events.Computed()
                | events.EventCall()
            ):
                s.plain()
                if isinstance(event, events.TensorWritten):
                    self._by_program(s)
            case events.IdsChanged() | events.ReallocNeeded() | events.UsedAfterFree():
                s.plain()
            case events.Entered() | events.Left():
                self._calls(s, event)
            case events.Grown():
                self._ends_turn(s)
                s.memory()
            case events.Logged():
                self._logs(s, event.text)

    def _built(self, s: Shadow) -> None:
        """Where graphs were built since, their tensors are there and others may be gone."""
        builds = [graph for graph, _ in self.run.newest.values()]
        if len(builds) != len(self._builds) or any(a is not b for a, b in zip(builds, self._builds, strict=True)):
            self._builds = builds
            s.tensors()

    def _by_program(self, s: Shadow) -> None:
        """Where programs allocate tensors themselves, they may have before they write to one or assign it."""
        if not s.sched.release.reserves:
            s.memory()
            s.placed()

    def _calls(self, s: Shadow, event: events.Entered | events.Left) -> None:
        if self._turn >= 0 or isinstance(event, events.Left):
            self._ends_turn(s)
        if event.function in SPLIT_GRAPH:
            self._fresh = isinstance(event, events.Entered)
            if isinstance(event, events.Left):
                self._cut_ends(s)
                s.made(again=True)
                s.graphs()
            self._nodes = None
        elif event == events.Left("ggml_gallocr_alloc_graph"):
            s.placed()
        s.state()
        s.memory()

    def _split_begins(self, s: Shadow) -> None:
        self._fresh = False
        graph: CGraph = s.sched.seen_graphs[-1]
        self._nodes = list(graph.nodes)
        self._rule = self._node = 0
        s.state()
        s.memory()
        s.unmade()
        self._first_users, self._labels = {}, {}
        tensors = {t.index: t for t in (*graph.leafs, *graph.nodes)}
        for i, n in enumerate(graph.nodes):
            for t in n.src:
                if t is not None:
                    tensors[t.index] = t
                    if not n.is_view_op:
                        self._first_users.setdefault(t.index, i)
        for t in tensors.values():
            self._labels.setdefault(t.label, []).append(t)

    def _decides(self, s: Shadow, event: events.Assigned | events.PassedOver | events.Refused) -> None:
        if self._nodes is None:
            self._built(s)
            s.state()
            self._by_program(s)
            return
        tensors = self._labels.get(event.tensor, ())
        is_known = event.rule == self._rule and event.rule < _NODE_BY_NODE and s.sched.release.reserves
        self._rule = event.rule
        if not is_known or not tensors:
            s.ids()
        else:
            # What settles nothing may still leave a cause behind, after the last that is told of it.
            for t in (*self._decided, *tensors):
                s.id_of(t)
        self._decided = tensors

    def _cuts(self, s: Shadow, event: events.SplitStarted | events.InputAdded | events.GraphInputCopied) -> None:
        nodes = self._nodes or []
        match event:
            case events.SplitStarted():
                self._up_to(s, event.at)
            case events.InputAdded():
                at = self._node
                while at < len(nodes) - 1 and nodes[at].label != event.node:
                    at += 1
                self._up_to(s, at)
            case events.GraphInputCopied() if s.sched.rules.copies_leafs_last:
                if self._rule < _INPUTS_LAST:
                    self._cut_ends(s)
            case events.GraphInputCopied():
                users = (self._first_users.get(t.index, 0) for t in self._labels.get(event.tensor, ()))
                self._up_to(s, max(users, default=len(nodes)))
        self._rule = max(self._rule, _CUT)
        s.plain()
        s.made()
        s.ids()
        s.last_splits()
        if not isinstance(event, events.SplitStarted):
            tensors = self._labels.get(event.tensor, ())
            for t in tensors:
                s.copies_of(t)
            if not tensors:
                s.copies()

    def _up_to(self, s: Shadow, at: int) -> None:
        """The nodes have been cut up to number `at`, which may have some of its copies already."""
        for n in (self._nodes or [])[self._node : at + 1]:
            s.tensor(n)
        self._node = max(self._node, at)

    def _cut_ends(self, s: Shadow) -> None:
        """The graph is cut, or all of the split done: what was made is there, and all sources are what they will be."""
        self._up_to(s, len(self._nodes or []))
        self._rule = _INPUTS_LAST
        s.made()
        s.state()

    def _logs(self, s: Shadow, text: str) -> None:
        """A line about an assignment, about more room for inputs, or about all that is behind."""
        if self._nodes is None or "_inputs_grow" in text:
            s.all()
        elif "backend_from_buffer" in text:
            s.ids()
        else:
            self._behind(s)

    def _behind(self, s: Shadow) -> None:
        if self._rule < _BEHIND:
            self._cut_ends(s)
            self._rule = _BEHIND

    def _turns_to(self, s: Shadow, at: int) -> None:
        self._ends_turn(s)
        if at <= 0:
            s.memory()
        self._turn = at
        self._touched = {}
        if at < 0:
            return
        if at == 0:
            s.hash_nodes()
            if not s.sched.release.reserves:
                s.placed()
        node = s.sched.gallocr.planned_nodes[at]
        for t in (node, *node.src):
            if t is not None:
                self._touched[t.index] = t
                if t.view_src is not None:
                    self._touched[t.view_src.index] = t.view_src

    def _allocates(
        self, s: Shadow, event: events.Allocated | events.Reused | events.NotReused | events.Freed | events.Kept
    ) -> None:
        if self._turn < 0:
            s.hash_nodes()
        else:
            self._look_at_turn(s)
        if isinstance(event, events.Allocated | events.Freed):
            s.blocks(event.buft, event.chunk)

    def _look_at_turn(self, s: Shadow) -> None:
        s.hash_nodes_of(self._touched)
        if not s.sched.release.reserves:
            for t in self._touched.values():
                s.tensor(t)

    def _ends_turn(self, s: Shadow) -> None:
        """What the allocator does without a word when a node's turn ends: children are counted off."""
        if self._turn >= 0:
            self._look_at_turn(s)
        else:
            s.hash_nodes()
        self._turn = -1
