"""What is compared: a plan with what is known beside it; beside a log, a scenario as a log would tell of it. And which
switch makes a difference between two releases: the newer one plans again with each rule turned back alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from shlex import join
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace as replace_row

from ggmltool.ask.diff.record import Held
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Assigned, Refused, SplitStarted
from ggmltool.ggml.plan import CopyPlan, LeafPlan, Plan, PlanError, SplitPlan
from ggmltool.ggml.releases.release import Release
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.sources.sched_log.records import LogGraph

SWITCHES = {
    "ignores_weights": "attention-weights",
    "takes_first_able": "rest",
    "max_split_inputs": "split-inputs-30",
    "inputs_grow": "inputs-grow",
    "refuses_second_graph": "alloc-once",
    "copies_turn_at_alloc": "next-copy",
    "copies_used_experts": "used-experts",
    "max_chunks": "chunks",
    "records_every_split": "event-per-split",
    "inplace_ops": "clamp",
    "expanding_ops": "alloc-size",
    "full_split_ends": "full-splits",
    "copies_leafs_last": "inputs-last",
    "weights_last": "weights-last",
    "keeps_for_devices": "kept",
}
"""The rules (fields of `Rules`) whose changes are in the list of changes, with the key there."""

WITH = {"max_split_inputs": ("full_split_ends",)}
"""Rules that say something only where another one is as it was at that time."""

Place = tuple[str, ...]
"""A place in a plan at which two plans can differ: its kind, and the names that tell it apart."""


def turned_plans(opened: Opened, moment: Moment, other_release: Release) -> dict[str, Plan] | None:
    """The plans at a moment with one rule at a time as another release has it, by the change's key, where that changes
    any.

    None where the other release has another scheduler, in which rules are no switches.
    """
    release = opened.model.release
    if not (release.reserves and other_release.reserves):
        return None
    plan = _plan(opened, moment, release)
    out = {}
    for name, key in SWITCHES.items():
        if getattr(release.rules, name) == getattr(other_release.rules, name):
            continue
        names = (name, *WITH.get(name, ()))
        turned = replace(release.rules, **{each: getattr(other_release.rules, each) for each in names})
        other = _plan(opened, moment, replace(release, rules=turned))
        if other is not None and other != plan:
            out[key] = other
    return out


def _plan(opened: Opened, moment: Moment, release: Release) -> Plan | None:
    scenario = LoadedScenario(replace(opened.model, release=release))
    try:
        return watch(replace(opened, scenario=scenario, log=None), moment).plan
    except InspectError:
        return None


class Switches:
    """Asks turned plans what makes a difference: the rule that, turned back alone, gives at a place what was there.

    `turned` None: between these releases rules are no switches. `ahead` are plans of the older release with one rule as
    the newer has it: a graph that the older one refuses may need one of several.
    """

    def __init__(
        self, older: Plan, newer: Plan, turned: Mapping[str, Plan] | None, ahead: Mapping[str, Plan] | None = None
    ) -> None:
        self.are_known = turned is not None
        self._lets_pass = frozenset(key for key, plan in (ahead or {}).items() if plan.ok)
        self._older, self._newer = (dict(_facts(plan)) if turned else {} for plan in (older, newer))
        self._turned = {key: dict(_facts(plan)) for key, plan in (turned or {}).items()}

    def behind(self, *place: str) -> str:
        """The key of the rule behind what differs at a place; "" if it is none of the switches."""
        return self.behind_all([place])

    def behind_all(self, places: Sequence[Place]) -> str:
        """The key of the rule behind all that differs at some places."""
        for key, facts in self._turned.items():
            if all(self._newer.get(at) != self._older.get(at) == facts.get(at) for at in places):
                return key
        return ""

    def confirmed(self, key: str) -> str:
        """The key, if nothing speaks against it: a switch that changes nothing when it is turned is behind nothing."""
        is_idle = self.are_known and key in SWITCHES.values() and key not in self._turned and key not in self._lets_pass
        return "" if is_idle else key


def copies_in_use(plan: Plan) -> str:
    """The numbers of the pipeline copies that nodes read."""
    number = {c.name: c.copy for c in plan.copies}
    return ", ".join(map(str, sorted({number[t] for n in plan.nodes for t in n.src if t in number})))


def copies_by_tensor(plan: Plan) -> dict[str, list[CopyPlan]]:
    """The copies of each tensor that has some."""
    out: dict[str, list[CopyPlan]] = {}
    for copy in plan.copies:
        out.setdefault(copy.of, []).append(copy)
    return out


def copy_place(copy: CopyPlan) -> str:
    """What the place of a copy is called."""
    return f"the copy of {copy.of}"


def condition(error: PlanError) -> str:
    """What a refusal is known by: ggml's condition, else its message."""
    fields = dict(error)
    return fields.get("condition") or fields.get("message") or ""


def _facts(plan: Plan) -> Iterator[tuple[Place, object]]:
    """What two plans can differ in, by place."""
    yield ("refused",), None if plan.error is None else condition(plan.error)
    yield ("copies in use",), copies_in_use(plan)
    for n in plan.nodes:
        yield ("node", n.id), (n.backend, n.cause)
        yield ("place", n.id), (n.buffer, n.chunk, n.offset)
    for leaf in plan.leafs:
        yield ("place", leaf.id), (leaf.buffer, leaf.chunk, leaf.offset)
    for split in plan.splits:
        first = plan.nodes[split.i_start].id if split.i_start < len(plan.nodes) else ""
        yield ("split", first), (split.backend, split.i_end - split.i_start, split.inputs)
        for t in split.inputs:
            yield ("copy", t, split.backend), True
    for t, copies in copies_by_tensor(plan).items():
        yield ("copies", t), len(copies)
        yield ("place", copy_place(copies[0])), [(copy.buffer, copy.chunk, copy.offset) for copy in copies]


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
