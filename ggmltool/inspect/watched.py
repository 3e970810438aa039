"""The engine's state at one moment: after one step on a fresh scheduler, after a step of the scenario's own, or where
ggml refused to go on; and what the run announced until then, kept by what it is of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TYPE_CHECKING, NamedTuple, cast

from ggmltool.ggml.events import AllocationStarted
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.decisions import Decisions, PassRecorder
from ggmltool.inspect.gauges import LimitWatch
from ggmltool.inspect.memory import AllocRecorder, MemoryPlan, MemoryRecorder, PlacedAt
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.spec import Step
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, translated
from ggmltool.show.text import count, shortened
from ggmltool.state.errors import InspectError, StepRefused

if TYPE_CHECKING:
    from ggmltool.ggml.alloc.gallocr import Gallocr
    from ggmltool.ggml.events import Event, Listener
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.sched.past import Past
    from ggmltool.ggml.sched.state import SchedulerState
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.inspect.decisions import Part


class Keep(Flag):
    """The parts of a record. What is not asked for is not kept, and if nothing is, the engine announces nothing."""

    NOTHING = 0
    DECISIONS = auto()
    """Of the graph that was split last: what was said of each tensor, where splits begin, what they copy."""
    MEMORY = auto()
    """The lifetimes of the allocator's last plan."""
    ALLOCATIONS = auto()
    """Each step of the allocator's last plan with the free blocks it leaves; the lifetimes too."""
    PASSES = auto()
    """The assignments after each pass over the graph that was split last."""
    LIMITS = auto()
    """What gauges read and a finished plan no longer has."""


class Record:
    """A listener for one run. `at` and `before` say which moment of the allocator is kept (see `AllocRecorder`)."""

    def __init__(self, keep: Keep = Keep.NOTHING, at: str | None = None, before: bool = False) -> None:
        self.decisions = Decisions()
        self.allocations = AllocRecorder(at, before)
        self.passes = PassRecorder()
        self.limits = LimitWatch()
        whole = Keep.ALLOCATIONS in keep
        self.lifetimes = self.allocations.lifetimes if whole else MemoryRecorder()
        parts: dict[Keep, Part] = {
            Keep.DECISIONS: self.decisions,
            Keep.ALLOCATIONS if whole else Keep.MEMORY: self.allocations if whole else self.lifetimes,
            Keep.PASSES: self.passes,
            Keep.LIMITS: self.limits,
        }
        self._parts = [part for name, part in parts.items() if name in keep]
        kinds = {kind for part in self._parts for kind in part.hears}
        self.hearers = {kind: [part for part in self._parts if kind in part.hears] for kind in kinds}

    @property
    def memory(self) -> MemoryPlan:
        """The lifetimes of the allocator's last plan."""
        return self.lifetimes.plan

    @property
    def listener(self) -> Listener | None:
        """Itself, None if nothing is to be kept."""
        return self if self._parts else None

    def attach(self, sched: AnyScheduler) -> None:
        """Look at this scheduler, which has not planned anything yet."""
        for part in self._parts:
            part.attach(sched)
        if any(part.looks_at_passes for part in self._parts):
            sched.on_pass = self._after_pass

    def __call__(self, event: Event) -> None:
        for part in self.hearers.get(type(event), ()):
            part.hear(event)

    def _after_pass(self, number: int, sched: AnyScheduler) -> None:
        for part in self._parts:
            part.after_pass(number, sched)


def rehearse(run: Run, record: Record, step: Step) -> None:
    """Before the first step: reserve its graph, for the record to hear who has which bytes when, and go back to the
    past, which has the tensors where they lie. Where its plan does not serve, ggml plans anew, and that is heard.
    """
    from ggmltool.ggml.sched.past import go_on_from

    past = run.model.scheduler.past
    if past is None or step.kind != "alloc" or AllocationStarted not in record.hearers:
        return
    run.step(replace(step, kind="reserve"))
    run.plans.clear()
    run.debug_records.clear()
    sched = cast("SchedulerState", run.start())
    sched.gallocr.settle()
    record.lifetimes.put(dict(_moves(sched.gallocr, past)))
    go_on_from(past, sched)


def _moves(gallocr: Gallocr, past: Past) -> Iterator[tuple[PlacedAt, PlacedAt]]:
    """Where each tensor of the plan lies, and where the past has it; nothing if that is of another graph."""
    sizes = len(gallocr.node_allocs), len(gallocr.leaf_allocs)
    planned = len(gallocr.planned_nodes), len(gallocr.planned_leafs)
    if not sizes == planned == (len(past.nodes), len(past.leafs)):
        return
    pairs = []
    for node, (dst, srcs), (past_dst, past_srcs) in zip(
        gallocr.planned_nodes, gallocr.node_allocs, past.nodes, strict=True
    ):
        pairs.append((node, dst, past_dst))
        pairs += [(s, a, b) for s, a, b in zip(node.src, srcs, past_srcs, strict=False) if s is not None]
    pairs += zip(gallocr.planned_leafs, gallocr.leaf_allocs, past.leafs, strict=True)
    for t, now, then in pairs:
        if now.buffer_id >= 0 and now.buffer_id == then.buffer_id:
            at = PlacedAt(t.label, gallocr.bufts[now.buffer_id].name, now.chunk, now.offset)
            yield at, at._replace(chunk=then.chunk, offset=then.offset)


class Built(NamedTuple):
    """A build of a graph: its name, the cgraph, and the tensors of the contexts and of the nodes."""

    name: str
    graph: CGraph
    table: list[Tensor]


@dataclass(frozen=True, slots=True)
class Watched:
    """A run after one step of one graph.

    `name` is what headings call the scenario; `plan` is the plan then. Where ggml refused the step, `plan.error` says
    why, and the plan has the splits if it came that far. `number` is the step's in the scenario, None for a step on a
    fresh scheduler; `stands` the build that the scheduler's state is of, None if it never came to one. `is_split` says
    that the graph of this step was split. `record` has what was asked for of what the run announced.
    """

    name: str
    run: Run
    step: Step
    plan: Plan
    number: int | None
    stands: Built | None
    is_split: bool
    record: Record

    @property
    def graph(self) -> str:
        """The name of the graph that the state is of. Raises StepRefused with ggml's words where it is of none."""
        if self.stands is not None:
            return self.stands.name
        if self.step.graph is None:
            raise self.refusal()
        return self.step.graph

    @property
    def kind(self) -> str:
        """reserve, alloc or compute; where ggml refused, whatever step it was."""
        return self.step.kind

    @property
    def heading(self) -> str:
        """`alloc main`, and whether ggml refused it."""
        refused = ", where ggml fails" if self.plan.error is not None else ""
        return f"{self.step}{refused}"

    @property
    def title(self) -> str:
        """What headings call the scenario, with the step's number where one was named."""
        return self.name if self.number is None else f"{self.name}, step {self.number}"

    @property
    def sched(self) -> AnyScheduler:
        """The scheduler. Raises StepRefused with ggml's words where it was never made."""
        if self.run.sched is None:
            raise self.refusal()
        return self.run.sched

    def built(self) -> Built:
        """The build that the state is of. Raises StepRefused with ggml's words if there is none."""
        if self.stands is None:
            raise self.refusal()
        return self.stands

    def assignment(self, t: Tensor) -> tuple[int, str, list[Tensor]]:
        """The scheduler's entry for a tensor: its backend's number (-1 for none), the cause, the copies of it.

        Where a reserve has reset the scheduler those before it, after a step `reset` none.
        """
        s = self.sched
        if self.plan.error is None and self.kind != "reset":
            ids, causes, copies = s.assigned, s.assigned_causes, s.made_copies
        else:
            ids, causes, copies = s.ids, s.causes, s.copies
        if t.index >= len(ids):
            return -1, "", []
        made = [copy for of in copies[t.index] or [] for copy in of or ()]
        return ids[t.index], causes[t.index] or "", made

    def check_pass(self, number: int) -> None:
        """Raises InspectError if this ggml's scheduler has no pass of the number."""
        last = len(self.sched.passes) - 1
        if number > last:
            raise InspectError(f"the scheduler of ggml {self.sched.release.name} has {last} passes, no pass {number}")

    def refusal(self, lead: str = "") -> StepRefused:
        """ggml's error, for whoever has nothing to show without a plan."""
        return StepRefused(dict(self.plan.error or ()), lead)


class Watch:
    """Does the steps up to a moment, on one scheduler. `record` keeps what it was made to keep of each."""

    def __init__(
        self,
        opened: Opened,
        moment: Moment,
        record: Record | None = None,
        debug: bool = False,
    ) -> None:
        self.opened = opened
        self.record = record or Record()
        self.run = opened.scenario.start(opened.listener(self.record.listener), debug)
        self.number = moment.after
        self.steps = _steps(opened, moment)
        self.stands: Built | None = None

    def watched(self) -> Watched:
        """The state at the moment, or where ggml refused to go on."""
        *_, last = self.each()
        return last

    def each(self) -> Iterator[Watched]:
        """The state after every step up to the moment, or up to the one that ggml refused."""
        for number, step in enumerate(self.steps, 1):
            watched = self._do(step, None if self.number is None else number)
            yield watched
            if watched.plan.error is not None:
                return

    def _do(self, step: Step, number: int | None) -> Watched:
        from ggmltool.ggml.errors import GgmlError

        run = self.run
        if run.sched is None:
            with suppress(GgmlError):  # the step meets it again
                self.record.attach(run.start())
                rehearse(run, self.record, step)
        nodes = run.sched.nodes if run.sched is not None else None
        done = run.step(step, number)
        is_split = run.sched is not None and run.sched.nodes is not nodes
        plan = done if isinstance(done, Plan) else None
        if run.sched is not None and step.graph in run.newest:
            # The newest build is what the state is of, unless the scheduler was never given it.
            graph, table = run.newest[step.graph]
            reserved = step.kind in ("reserve", "measure") and (plan is None or plan.ok)
            if reserved or any(seen is graph for seen in run.sched.seen_graphs):
                self.stands = Built(step.graph, graph, table)
        plan = self._plan(step, plan, is_split)
        self.opened.logged(plan.log)
        return Watched(self.opened.title, run, step, plan, number, self.stands, is_split, self.record)

    def _plan(self, step: Step, done: Plan | None, is_split: bool) -> Plan:
        """The plan after a step; where ggml refused it, what stands: the splits of this graph, or of the one before."""
        run, stands = self.run, self.stands
        if done is not None and (done.ok or run.sched is None):
            return done
        if run.sched is None or stands is None:
            return done or Plan(step.graph, step.kind, True, (), ggml=run.model.ggml)
        newest = run.newest.get(step.graph or "")
        if done is not None and not is_split and newest is not None and newest[0] is stands.graph:
            sizes = ((name, run.sched.get_buffer_size(b)) for b, name in enumerate(run.sched.names))
            return replace(done, buffer_sizes=tuple(sizes))  # the graph was being split
        return run.plan_of(stands.graph, stands.name, step.kind, done.error if done else None)


def watch(opened: Opened, moment: Moment, record: Record | None = None) -> Watched:
    """The state at a moment. Raises InspectError for a step that is not there, ScenarioError for such a graph."""
    return Watch(opened, moment, record).watched()


def graph_at(opened: Opened, moment: Moment) -> str:
    """The name of the graph that is looked at, for views of the graph as the scenario has it."""
    return next((step.graph for step in reversed(_steps(opened, moment)) if step.graph is not None), "")


def _steps(opened: Opened, moment: Moment) -> list[Step]:
    """The steps to do. Raises InspectError for a number that no step has, or one before the first graph."""
    if moment.after is None:
        name = opened.scenario.graph_name(moment.graph)
        step = Step("reserve" if moment.step == "reserve" else "alloc", name)
        return translated([step], opened.model.release.steps)
    steps = opened.model.steps
    number = moment.after
    with_graph = [f"{n} ({step})" for n, step in enumerate(steps, 1) if step.kind in ALL_GRAPH_STEPS]
    planned = any(step.kind in ALL_GRAPH_STEPS for step in steps[:number])
    there = f"the steps with a graph are {shortened(with_graph, 8)}" if with_graph else "no step has a graph"
    if not 1 <= number <= len(steps):
        raise InspectError(f"there is no step {number}, the scenario has {count(len(steps), 'step')}; {there}")
    if not planned:
        raise InspectError(f"step {number} ({steps[number - 1]}) comes before the first graph; {there}")
    return steps[:number]
