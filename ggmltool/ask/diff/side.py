"""What is compared: a plan with what is known beside it; beside a log, a scenario as a log would tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from shlex import join
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace as replace_row

from ggmltool.ask.diff.record import Held
from ggmltool.ask.diff.switches import turned_plans
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Assigned, Refused, SplitStarted
from ggmltool.ggml.plan import LeafPlan, Plan, SplitPlan
from ggmltool.ggml.releases.release import Release
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import watch
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.sources.sched_log.records import LogGraph

_VIEWS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Ops that a log has no line for."""


class Titles(NamedTuple):
    """What the two plans are called."""

    a: str
    b: str


class HeldBuffer(NamedTuple):
    """A buffer of tensors that have memory before any graph."""

    buft: str
    usage: str
    size: int


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One of two plans to compare, and what is known beside it.

    `memory` is None and `is_log` true for a graph of a log. `settled` is why a node has its backend, `starts` why each
    split begins. `refused` are the pairs of a node and a backend that does not support it, `tails` the tensors that
    gave back what the node in their place does not need. `turned` plans it with one rule at a time as a release has it,
    by the key of the change (None: that release decides by no such rules). `order` are the ids of the nodes before
    devices put them into an order of their own, if they do. `again` is how the command line names the side, behind a
    command; "" if it cannot.
    """

    plan: Plan
    tensors: Tensors
    memory: MemoryPlan | None = None
    settled: Mapping[str, Assigned] = field(default_factory=dict)
    starts: Sequence[SplitStarted] = ()
    held: Sequence[Held] = ()
    held_buffers: Sequence[HeldBuffer] = ()
    order: Sequence[str] = ()
    again: str = ""
    is_log: bool = False
    refused: frozenset[tuple[str, str]] = frozenset()
    tails: frozenset[str] = frozenset()
    turned: Callable[[Release], Mapping[str, Plan] | None] = lambda _: None


def as_a_log(side: DiffSide) -> DiffSide:
    """The side in the order that ggml prints; nodes that are views are not printed, and so they are leafs."""
    if side.is_log:
        return side
    plan = side.plan
    printed = {id: place for place, id in enumerate(side.order)}
    nodes = sorted(plan.nodes, key=lambda n: printed.get(n.id, n.index))
    views = [n for n in nodes if n.op in _VIEWS]
    leafs = tuple(LeafPlan(len(plan.leafs) + i, n.id, n.backend, None, None, None, None) for i, n in enumerate(views))
    before = [0]
    for node in nodes:
        before.append(before[-1] + (node.op not in _VIEWS))
    splits = tuple(SplitPlan(s.id, s.backend, before[s.i_start], before[s.i_end], s.inputs) for s in plan.splits)
    told = tuple(replace_row(n, index=i) for i, n in enumerate(nodes) if n.op not in _VIEWS)
    return replace(side, plan=replace(plan, nodes=told, leafs=(*plan.leafs, *leafs), splits=splits))


def scenario_side(opened: Opened, moment: Moment) -> DiffSide:
    """A scenario at a moment, with the reasons and the memory of its plan. Raises ScenarioError and InspectError."""
    watched = watch(opened, moment, Record(Keep.DECISIONS | Keep.MEMORY))
    decisions, memory = watched.record.decisions, watched.record.memory
    buffers = [HeldBuffer(b.buft.name, USAGE_NAMES[b.usage], b.size) for b in watched.run.buffers]
    return DiffSide(
        watched.plan, opened.tensors(watched.graph), memory, decisions.settled, decisions.started,
        _held(opened.model), buffers, decisions.order, _again(opened, moment),
        refused=frozenset((e.tensor, e.backend) for e in chain(*decisions.said.values()) if isinstance(e, Refused)),
        tails=frozenset(memory.tails), turned=partial(turned_plans, opened, moment),
    )  # fmt: skip


def _again(opened: Opened, moment: Moment) -> str:
    """How to name it behind a command that knows of graphs and steps, but not of other options of the scheduler."""
    if opened.options or opened.argument == "-":
        return ""
    words = [] if moment.graph is None else ["--graph", moment.graph]
    words += [] if moment.after is None else ["--after", str(moment.after)]
    words += ["--step", moment.step] if moment.after is None and moment.step != "alloc" else []
    return join([*words, opened.argument])


def _held(model: ScenarioSpec) -> list[Held]:
    """The tensors of the contexts that are allocated at once, without views."""
    from ggmltool.ggml.tensor import nbytes_of

    return [
        Held(t.id, context.buft, context.usage, nbytes_of(t.type, t.ne, t.nb))
        for context in model.contexts
        if context.buft is not None
        for t in context.tensors
        if t.view_src is None
    ]


def log_side(graph: LogGraph) -> DiffSide:
    """A graph of a log. Raises InspectError for one without nodes."""
    from ggmltool.sources.sched_log.plan import log_plan

    if graph.level == 1:
        raise InspectError("this graph was printed with GGML_SCHED_DEBUG=1, which leaves out the nodes; 2 prints them")
    plan, tensors = log_plan(graph)
    return DiffSide(plan, tensors, is_log=True)
