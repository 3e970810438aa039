"""Whether the plan that was reserved for one graph serves another, and what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
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
from ggmltool.show.document import ReleaseDocument, Row, part
from ggmltool.state.errors import InspectError, StepRefused


class GraphFacts(NamedTuple):
    """A graph as the scheduler gives it to the allocator, with copies and dependencies.

    `size` is what GGML_SCHED_DEBUG_REALLOC compares, `buffers` bytes per backend once it has its memory.
    """

    called: str
    nodes: int
    leafs: int
    splits: int
    inputs: int
    size: int
    buffers: tuple[int, ...]


class Parting(NamedTuple):
    """Node `at` of the scheduler's graphs, the first with another op: what it is in each, "" beyond the end."""

    at: int
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class ReallocFacts:
    """The plan of `first` and the graph `second`. `why` is what ggml found first, None where the plan serves.

    `outgrown` are all nodes and sources for which the plan has too little, where the two have as many nodes; `alone`
    are the bytes that `second` needs per backend by itself; `log` what a debug build of this ggml logs; `serves_back`
    whether the plan of `second` serves `first`; `debug_realloc` whether this `ggml` has GGML_SCHED_DEBUG_REALLOC.
    """

    first: GraphFacts
    second: GraphFacts
    alone: tuple[int, ...]
    why: ReallocNeeded | IdsChanged | None
    outgrown: tuple[ReallocNeeded, ...]
    parting: Parting | None
    grown: tuple[Grown, ...]
    log: tuple[str, ...]
    backends: tuple[str, ...]
    n_buffers: int
    serves_back: bool
    debug_realloc: bool = True
    ggml: str = ""

    @property
    def unexpected(self) -> bool:
        """Whether GGML_SCHED_DEBUG_REALLOC=1 would abort: a reallocation for a graph of the same size."""
        if not self.debug_realloc:
            return False
        return isinstance(self.why, ReallocNeeded) and self.n_buffers > 1 and self.first.size == self.second.size


class Side(NamedTuple):
    """A graph of a scenario, and what it is called."""

    opened: Opened
    graph: str
    called: str


@dataclass(slots=True)
class Heard:
    """A listener: why the plan does not serve, with all that has outgrown it then, and which buffers are made anew."""

    sched: Scheduler | None = None
    why: ReallocNeeded | IdsChanged | None = None
    outgrown: list[ReallocNeeded] = field(default_factory=list)
    grown: list[Grown] = field(default_factory=list)
    parting: Parting | None = None
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
            self.why = event
            self._look(self.sched)

    def _look(self, sched: Scheduler) -> None:
        """The old plan still stands, and the new graph is there."""
        gallocr = sched.gallocr
        if len(gallocr.planned_nodes) == len(sched.nodes):
            self.outgrown = list(gallocr.outgrown(sched.nodes))
        self.parting = _parting(gallocr.planned_nodes, sched.nodes)


def _parting(old: list[Tensor], new: list[Tensor]) -> Parting | None:
    """The first place where two graphs have different ops."""
    for i in range(max(len(old), len(new))):
        a, b = (f"{nodes[i].label} ({op_desc(nodes[i])})" if i < len(nodes) else "" for nodes in (old, new))
        if not a or not b or op_desc(old[i]) != op_desc(new[i]):
            return Parting(i, a, b)
    return None


def explain_realloc(first: Side, second: Side) -> ReallocFacts:
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
    heard = Heard()
    before, after, sched = _both(first, second, heard)
    alone, reverse, _ = _both(second, first, other := Heard())
    return ReallocFacts(
        first=before,
        second=after,
        alone=alone.buffers,
        why=heard.why,
        outgrown=tuple(heard.outgrown),
        parting=heard.parting,
        grown=tuple(heard.grown),
        log=tuple(heard.log),
        debug_realloc=first.opened.model.release.debug_realloc,
        backends=tuple(sched.names),
        n_buffers=len(sched.gallocr.buffers),
        serves_back=other.why is None and reverse.size > 0,
        ggml=first.opened.model.ggml,
    )


def _both(first: Side, second: Side, heard: Heard) -> tuple[GraphFacts, GraphFacts, Scheduler]:
    run = ReservingRun(first.opened.scenario.compiled, heard)
    plan = run.reserve(first.graph)
    sched = _went_on(run, plan, first)
    before = _facts(sched, first, run)
    behind = run
    if second.opened is not first.opened:
        _check_same_devices(first, second)
        behind = ReservingRun(second.opened.scenario.compiled)
        behind.start_behind(run)
    heard.listen(sched)
    plan = behind.alloc(second.graph)
    _went_on(behind, plan, second)
    return before, _facts(sched, second, behind), sched


def _went_on(run: ReservingRun, plan: Plan, side: Side) -> Scheduler:
    side.opened.logged(plan.log)
    if run.sched is None or plan.error is not None:
        raise StepRefused(dict(plan.error or ()), f"{side.called}: ")
    return run.sched


def _check_same_devices(first: Side, second: Side) -> None:
    one, other = first.opened.model, second.opened.model
    if (one.backends, one.buffer_types) != (other.backends, other.buffer_types):
        raise InspectError(f"{first.called} and {second.called} have different backends; one scheduler serves both")


def _facts(sched: Scheduler, side: Side, run: Run) -> GraphFacts:
    """The scheduler's graph, with copies and dependencies."""
    graph, _ = run.newest[side.graph]
    splits = sched.splits[: sched.n_splits]
    inputs = len(sched.graph_inputs) + sum(len(s.inputs) for s in splits)
    size = sched.own_graph_size(graph)
    sizes = tuple(sched.get_buffer_size(b) for b in range(len(sched.backends)))
    return GraphFacts(side.called, len(sched.nodes), len(sched.leafs), len(splits), inputs, size, sizes)


class ReallocGraph(Row):
    """A graph as the scheduler gives it to the allocator, with copies and dependencies, and the bytes per backend."""

    called: str
    nodes: int
    leafs: int
    splits: int
    inputs: int
    size: int
    buffers: dict[str, int]

    @classmethod
    def of(cls, g: GraphFacts, backends: Sequence[str]) -> ReallocGraph:
        """A graph, with the names of the backends."""
        return cls(*g[:-1], dict(zip(backends, g.buffers, strict=True)))


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


class ExplainedReallocShown(ExplainedRealloc, kw_only=True):
    """What became of the plan, with all that was found out."""

    facts: ReallocFacts

    def document(self) -> ExplainedRealloc:
        """Without what only the text tells."""
        return part(self, ExplainedRealloc)

    def rows(self) -> tuple[ReallocNeeded, ...]:
        """What has too little memory in the plan."""
        return tuple(self.facts.outgrown)

    @classmethod
    def of(cls, f: ReallocFacts) -> ExplainedReallocShown:
        """What became of the plan."""
        return cls(
            ggml=f.ggml,
            serves=f.why is None,
            first=ReallocGraph.of(f.first, f.backends),
            second=ReallocGraph.of(f.second, f.backends),
            alone=dict(zip(f.backends, f.alone, strict=True)),
            why=None if f.why is None else event_row(f.why),
            backend_ids_changed=isinstance(f.why, IdsChanged),
            outgrown=[event_row(o) for o in f.outgrown],
            parting=None if f.parting is None else PartingRow(*f.parting),
            grown=[event_row(g) for g in f.grown],
            serves_back=f.serves_back,
            unexpected=f.unexpected,
            log=list(f.log),
            facts=f,
        )
