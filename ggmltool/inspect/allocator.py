"""The allocator at one moment: its record, and which tensors its tables are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.alloc.common import AnyGallocr, TensorAlloc, hash_keys, hash_keys_so_far
from ggmltool.ggml.events import AllocationStarted
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.sched.reader import chunk_states
from ggmltool.ggml.state import ChunkState
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.inspect.built import graph_numbers
from ggmltool.inspect.memory import AllocMoment, AllocRecorder
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, Watch, Watched
from ggmltool.scenario.errors import nearest, quoted
from ggmltool.scenario.tensor_info import addresses, arenas
from ggmltool.state.errors import InspectError


class AllocRow(NamedTuple):
    """A node_alloc or (without sources) a leaf_alloc, with its number in the graph; copies have none."""

    tensor: str
    place: TensorAlloc
    sources: tuple[tuple[str, TensorAlloc], ...] = ()
    number: int | None = None


class NodeLabel(NamedTuple):
    """What the story says of a node: its op, its sources, and its number in the graph, if it is in it."""

    op: str
    sources: tuple[str, ...]
    number: int | None


class HashKey(NamedTuple):
    """A tensor in the allocator's hash set, as it was called when the plan was made, and its hash node's index."""

    label: str
    address: int
    node: int


@dataclass(frozen=True, slots=True)
class Planned:
    """What the allocator's tables are of: the graph that was planned last, which need not be the one placed last.

    Tensors are called as they were then: the scheduler makes its copies anew in the same memory.
    """

    heading: str
    number: int | None
    keys: tuple[HashKey, ...] = ()
    nodes: tuple[NodeLabel, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchedAllocator:
    """The allocator's tables at a moment, with the record of how the plan in them was made.

    `nodes` and `leafs` are node_allocs and leaf_allocs with the tensors of the graph that they served last.
    """

    at: Watched
    record: AllocRecorder
    planned: Planned
    nodes: list[AllocRow]
    leafs: list[AllocRow]

    @property
    def gallocr(self) -> AnyGallocr:
        """The allocator."""
        return self.at.sched.gallocr

    @property
    def chunks(self) -> Sequence[tuple[ChunkState, ...]]:
        """The chunks of each buffer id's planner, as they are now."""
        return [chunk_states(planner) for planner in self.gallocr.buf_tallocs]

    @property
    def heading(self) -> str:
        """The moment, and the step whose plan still holds, where that is another."""
        if self.planned.number == self.at.number:
            return self.at.heading
        return f"{self.at.heading}, by the plan of step {self.planned.number}, {self.planned.heading}"

    def moment(self) -> AllocMoment:
        """The moment that was asked for. Raises InspectError if the allocator turned to no tensor of that name."""
        if self.record.moment is None:
            at = self.record.at or ""
            near = nearest(at, self.planned.names)
            if at in self.planned.names and self.record.before:
                hint = "; it is not a node"
            elif at in self.planned.names:
                hint = "; it is pre-allocated, so the allocator does not plan it"
                hint = "; ggml failed before that" if self.at.plan.error is not None else hint
            else:
                hint = f"; did you mean {quoted(near)}?" if near else ""
            raise InspectError(f"the allocator never came to {quoted(at)} in {self.heading}{hint}")
        return self.record.moment


def watch_allocator(opened: Opened, moment: Moment, at: str | None = None, before: bool = False) -> WatchedAllocator:
    """The allocator at a moment, with what it did for its last plan; `at` a tensor whose turn is to be kept, as it was
    when that had got its memory or, with `before`, when it came to that node.

    Raises InspectError with ggml's words where it was never given a graph.
    """
    kept = Record(Keep.ALLOCATIONS, at, before)
    record = kept.allocations
    planned: Planned | None = None
    of: list[Tensor] = []
    nodes: list[AllocRow] = []
    leafs: list[AllocRow] = []
    for state in Watch(opened, moment, kept).each():
        sched = state.run.sched
        if sched is None:
            continue
        if sched.gallocr.planned_nodes is not of and sched.gallocr.planned_nodes:
            of = sched.gallocr.planned_nodes
            planned = _planned(state, record, graph_numbers(opened.scenario, state.graph))
        if state.is_split and state.plan.error is None:
            nodes, leafs = _rows(sched, graph_numbers(opened.scenario, state.graph))
    if planned is None:
        if state.plan.error is not None:
            raise state.refusal()
        planned = Planned(state.heading, state.number)
    return WatchedAllocator(state, record, planned, nodes, leafs)


def _planned(state: Watched, record: AllocRecorder, numbers: Mapping[str, int]) -> Planned:
    gallocr = state.sched.gallocr
    built = state.built()
    where = addresses(arenas(state.run, built.name, built.table), state.run)
    if state.plan.error is not None and gallocr.refused is not None:
        # The node that the allocator came to last, -1 before the first.
        turns = (step.event.at for step in reversed(record.steps) if isinstance(step.event, AllocationStarted))
        keys = hash_keys_so_far(gallocr, next(turns, -1))
    else:
        keys = hash_keys(gallocr.planned_nodes, gallocr.planned_leafs)
    nodes, leafs = gallocr.planned_nodes, gallocr.planned_leafs
    sources = (tuple(s.label for s in n.src if s is not None) for n in nodes)
    labels = (NodeLabel(op_desc(n), of, numbers.get(n.id)) for n, of in zip(nodes, sources, strict=True))
    names = tuple(t.label for t in (*nodes, *leafs))
    known = tuple(HashKey(t.label, where[t.index], t.index) for t in keys)
    return Planned(state.heading, state.number, known, tuple(labels), names)


def _rows(sched: AnyScheduler, numbers: Mapping[str, int]) -> tuple[list[AllocRow], list[AllocRow]]:
    gallocr = sched.gallocr
    nodes = []
    for n, (dst, srcs) in zip(sched.nodes, gallocr.node_allocs, strict=True):
        # The graph that was planned may have had other sources; what it had none for, ggml keeps no place for.
        sources = tuple((s.label, alloc) for s, alloc in zip(n.src, srcs, strict=False) if s is not None)
        nodes.append(AllocRow(n.label, dst, sources, numbers.get(n.id)))
    leafs = zip(sched.leafs, gallocr.leaf_allocs, strict=True)
    return nodes, [AllocRow(t.label, alloc, number=i) for i, (t, alloc) in enumerate(leafs)]
