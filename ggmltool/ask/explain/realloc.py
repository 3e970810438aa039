"""Whether the plan that was reserved for one graph serves another, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ggmltool.ask.events import EventRow, event_row
from ggmltool.ggml.events import Event, Grown, IdsChanged, Logged, ReallocNeeded
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.run.run import Run
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.state.errors import InspectError, StepRefused


class ReallocGraph(Row):
    """A graph as the scheduler gives it to the allocator, with copies and dependencies, and the bytes per backend."""

    called: str
    nodes: int
    leafs: int
    splits: int
    inputs: int
    size: int
    buffers: dict[str, int]


class PartingRow(Row):
    """Node `at` is the first with another op: what it is in each graph, "" beyond the end."""

    at: int
    first: str
    second: str


class ExplainedRealloc(ReleaseDocument, kw_only=True):
    """`explain realloc --json`: whether the memory planned for one graph serves another.

    `why` is what ggml finds first (null: it serves), `outgrown` all that has too little; `alone` are the bytes that the
    second graph needs by itself; `log` is what a debug build logs; `unexpected`: GGML_SCHED_DEBUG_REALLOC=1 aborts.
    """

    view = "realloc"
    main_table = ""
    beside = ("found", "outgrown_at", "grew", "n_buffers", "debug_realloc")
    """What became of the plan, with what ggml announced: `found` is why it does not serve, `outgrown_at` all nodes and
    sources for which it has too little where the two graphs have as many nodes, `grew` the buffers that are made anew.
    `debug_realloc`: this ggml has GGML_SCHED_DEBUG_REALLOC."""
    kind: Literal["explain_realloc"] = "explain_realloc"
    serves: bool
    first: ReallocGraph
    second: ReallocGraph
    alone: dict[str, int]
    why: EventRow | None
    backend_ids_changed: bool
    outgrown: list[EventRow]
    parting: PartingRow | None
    grown: list[EventRow]
    serves_back: bool
    unexpected: bool
    log: list[str]
    found: ReallocNeeded | IdsChanged | None
    outgrown_at: tuple[ReallocNeeded, ...]
    grew: tuple[Grown, ...]
    n_buffers: int
    debug_realloc: bool

    def rows(self) -> tuple[ReallocNeeded, ...]:
        """What has too little memory in the plan."""
        return self.outgrown_at


class Side(NamedTuple):
    """A graph of a scenario, and what it is called."""

    opened: Opened
    graph: str
    called: str


@dataclass(slots=True)
class ReallocListener:
    """A listener: why the plan does not serve, with all that has outgrown it then, and which buffers are made anew."""

    sched: Scheduler | None = None
    why: ReallocNeeded | IdsChanged | None = None
    outgrown: list[ReallocNeeded] = field(default_factory=list)
    grown: list[Grown] = field(default_factory=list)
    parting: PartingRow | None = None
    log: list[str] = field(default_factory=list)

    def listen(self, sched: Scheduler) -> None:
        """Hear from now on, as if of a debug build of ggml."""
        self.sched = sched
        if sched.gallocr.debug_log is None:
            sched.gallocr.debug_log = self.log.append

    def __call__(self, event: Event) -> None:
        if self.sched is None:
            return
        if isinstance(event, Logged) and event.level == "debug":
            self.log.append(event.text)
        elif isinstance(event, Grown):
            self.grown.append(event)
        elif isinstance(event, (ReallocNeeded, IdsChanged)) and self.why is None:
            # The old plan still stands, and the new graph is there.
            self.why = event
            gallocr, nodes = self.sched.gallocr, self.sched.nodes
            if len(gallocr.planned_nodes) == len(nodes):
                self.outgrown = list(gallocr.outgrown(nodes))
            self.parting = _parting(gallocr.planned_nodes, nodes)


def _parting(old: list[Tensor], new: list[Tensor]) -> PartingRow | None:
    """The first place where two graphs have different ops."""
    for i in range(max(len(old), len(new))):
        a, b = (f"{nodes[i].label} ({op_desc(nodes[i])})" if i < len(nodes) else "" for nodes in (old, new))
        if not a or not b or op_desc(old[i]) != op_desc(new[i]):
            return PartingRow(i, a, b)
    return None


def explain_realloc(first: Side, second: Side) -> ExplainedRealloc:
    """Reserve one graph, allocate the other, as a program would do on one scheduler.

    Raises InspectError if the two have different devices, or ggml fails on one of them.
    """
    for side in (first, second):
        release = side.opened.model.release
        if not release.reserves:
            raise InspectError(
                f"ggml {release.name} keeps no plan that could serve another graph (that came on 2024-02-11). The "
                "measured memory is all there is: `check` shows how full it is"
            )
    model = first.opened.model
    before, after, sched = _both(first, second, heard := ReallocListener())
    alone, reverse, _ = _both(second, first, other := ReallocListener())
    why, n_buffers, debug_realloc = heard.why, len(sched.gallocr.buffers), model.release.debug_realloc
    again = debug_realloc and isinstance(why, ReallocNeeded) and n_buffers > 1
    return ExplainedRealloc(
        ggml=model.ggml,
        serves=why is None,
        first=before,
        second=after,
        alone=alone.buffers,
        why=None if why is None else event_row(why),
        backend_ids_changed=isinstance(why, IdsChanged),
        outgrown=[event_row(o) for o in heard.outgrown],
        parting=heard.parting,
        grown=[event_row(g) for g in heard.grown],
        serves_back=other.why is None and reverse.size > 0,
        unexpected=again and before.size == after.size,
        log=heard.log,
        found=why,
        outgrown_at=tuple(heard.outgrown),
        grew=tuple(heard.grown),
        n_buffers=n_buffers,
        debug_realloc=debug_realloc,
    )


def _both(first: Side, second: Side, heard: ReallocListener) -> tuple[ReallocGraph, ReallocGraph, Scheduler]:
    run = behind = ReservingRun(first.opened.scenario.compiled, heard)
    plan = run.reserve(first.graph)
    sched = _went_on(run, plan, first)
    before = _graph(sched, first, run)
    if second.opened is not first.opened:
        one, other = first.opened.model, second.opened.model
        if (one.backends, one.buffer_types) != (other.backends, other.buffer_types):
            raise InspectError(f"{first.called} and {second.called} have different backends; one scheduler serves both")
        behind = ReservingRun(second.opened.scenario.compiled)
        behind.start_behind(run)
    heard.listen(sched)
    plan = behind.alloc(second.graph)
    _went_on(behind, plan, second)
    return before, _graph(sched, second, behind), sched


def _went_on(run: ReservingRun, plan: Plan, side: Side) -> Scheduler:
    side.opened.logged(plan.log)
    if run.sched is None or plan.error is not None:
        raise StepRefused(dict(plan.error or ()), f"{side.called}: ")
    return run.sched


def _graph(sched: Scheduler, side: Side, run: Run) -> ReallocGraph:
    graph, _ = run.newest[side.graph]
    splits = sched.splits[: sched.n_splits]
    return ReallocGraph(
        side.called, len(sched.nodes), len(sched.leafs), len(splits),
        len(sched.graph_inputs) + sum(len(s.inputs) for s in splits), sched.own_graph_size(graph),
        {name: sched.get_buffer_size(b) for b, name in enumerate(sched.names)},
    )  # fmt: skip
