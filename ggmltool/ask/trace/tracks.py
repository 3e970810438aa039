"""Batches of a graph on tracks: the host's calls, splits with their nodes, copies with flows to who reads them, and the
bytes alive; how long nodes and copies take by the rates of the devices, or by a unit for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from ggmltool.estimate.forecast import SOME_HOST, nodes_of, rates_of_devices, splits_of
from ggmltool.estimate.records import Estimate, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork, node_seconds
from ggmltool.estimate.timeline import LIKELY, Doing, Stretch, TimelineStep, Way, time_table
from ggmltool.estimate.work import NodeWork
from ggmltool.ggml import events
from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.ggml.sched.callbacks import USED_EXPERTS
from ggmltool.inspect.memory import MemoryRecorder
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.perfetto import (
    COMPUTE,
    COPIES,
    SECOND,
    TICK,
    Clock,
    Counter,
    DeviceTracks,
    Flow,
    HostTrack,
    PerfettoTrace,
    TraceSlice,
    inside,
)
from ggmltool.state.story.calls import calls_of

_UNIT = TICK / SECOND


class BatchTimes(NamedTuple):
    """When what is done in one batch of a graph: the `table` of its splits and copies, in seconds; of each node by its
    id the work and the nanoseconds, of each copy before a split the bytes and how it is made."""

    table: Sequence[Stretch]
    steps: Sequence[TimelineStep]
    works: Mapping[str, NodeWork]
    node_ns: Mapping[str, int]
    copied: Sequence[Sequence[int]]


class PlanTimes:
    """The times of a model's graphs: estimates where the rates of its devices are known, else a unit for each node and
    each copy. `cached` tokens are in the caches before.
    """

    def __init__(self, model: ScenarioSpec, cached: int = 0) -> None:
        self.model = model
        self.cached = cached
        rates = rates_of_devices(model.backends)
        self.clock = Clock.ORDER if rates is None else Clock.ESTIMATED
        self.rates = rates or {b.name: Rates(b.name, 1.0, 1.0, 1.0, 1.0, 1.0, family=b.family) for b in model.backends}
        self._compiled = Compiled(model)
        self._estimators: dict[str, tuple[Estimator, dict[str, NodeWork]]] = {}

    @property
    def about(self) -> str:
        """Whose times these are."""
        if self.clock is Clock.ORDER:
            return "program order: each node and each copy takes 1 µs, for how fast the devices are is not known"
        named = ", ".join(f"{name} is {rates.name}" for name, rates in self.rates.items() if rates is not SOME_HOST)
        assumed = [name for name, rates in self.rates.items() if rates is SOME_HOST]
        unnamed = f"; {' and '.join(assumed)} not named, taken for {SOME_HOST.name}" if assumed else ""
        return f"estimated, the likely case: {named}{unnamed}; calls of the host take 1 µs each"

    def batch(self, plan: Plan, copies: int) -> BatchTimes:
        """The times of computing a plan once, with so many pipeline copies."""
        estimator, works = self._estimator(plan.graph or "")
        splits = splits_of(plan)
        steps = estimator.steps(splits)
        if self.clock is Clock.ORDER:
            unit = Estimate(_UNIT, _UNIT, _UNIT)
            steps = [
                step._replace(
                    seconds=unit.times(split.i_end - split.i_start),
                    copies=tuple(c._replace(seconds=unit) for c in step.copies),
                )
                for step, split in zip(steps, splits, strict=True)
            ]
            node_ns = {n.id: TICK for n in plan.nodes}
        else:
            node_ns = {n.id: self._ns(works[n.id], n.backend) for n in plan.nodes if n.id in works}
        copied = [[round(estimator.copied_nbytes(c, split)) for c in split.inputs] for split in splits]
        return BatchTimes(time_table(steps, copies), steps, works, node_ns, copied)

    def works(self, graph: str) -> Mapping[str, NodeWork]:
        """The work of each node of a graph, by its id."""
        return self._estimator(graph)[1]

    def _ns(self, work: NodeWork, backend: str | None) -> int:
        return 0 if backend is None else round(node_seconds(work, self.rates[backend])[LIKELY] * SECOND)

    def _estimator(self, graph: str) -> tuple[Estimator, dict[str, NodeWork]]:
        if graph not in self._estimators:
            model = self.model
            nodes = nodes_of(self._compiled, graph)
            work = GraphWork(nodes, self.cached)
            experts = model.release.rules.copies_used_experts or model.scheduler.copy_callback == USED_EXPERTS
            estimator = Estimator(work, self.rates, copies_experts=experts)
            works = {n.id: w for n, w in zip(nodes, work.works, strict=True)}
            self._estimators[graph] = estimator, works
        return self._estimators[graph]


def waiting(backend: str, n_copies: int) -> str:
    """The call by which the host waits for a backend."""
    return f"ggml_backend_event_synchronize({backend})" if n_copies > 1 else f"ggml_backend_synchronize({backend})"


@dataclass(eq=False)
class DrawnBatch:
    """What was drawn of a batch: the slice of each node, of each split, and of each copy by split and tensor."""

    plan: Plan
    tensors: Tensors
    nodes: dict[str, TraceSlice] = field(default_factory=dict)
    splits: dict[int, TraceSlice] = field(default_factory=dict)
    copies: dict[tuple[int, str], TraceSlice] = field(default_factory=dict)

    def flows(self) -> Iterator[Flow]:
        """Of every copy: from the node that made the tensor, by the copy, to the first node that reads it."""
        names: dict[tuple[str, str], set[str]] = {}
        for c in self.plan.copies:
            names.setdefault((c.of, c.backend), set()).add(c.name)
        by_id = {n.id: n for n in self.plan.nodes}
        for (number, id), copy in self.copies.items():
            split = self.plan.splits[number]
            made = self._maker(id, number, by_id)
            copied = names.get((id, split.backend), set())
            reader = next((n for n in self.plan.nodes[split.i_start : split.i_end] if copied & set(n.src)), None)
            before = self._stop(made, made.split) if made is not None else None
            stops = [before] if before is not None and before.start < copy.start else []
            after = self._stop(reader, number)
            yield Flow(id, (*stops, copy, *([after] if after is not None else [])))

    def _maker(self, id: str | None, split: int, by_id: Mapping[str, NodePlan]) -> NodePlan | None:
        """The node of an earlier split that made a tensor: of a later view, the one whose memory it views."""
        while id is not None:
            n, info = by_id.get(id), self.tensors.get(id)
            if n is not None and n.split < split:
                return n
            id = info.view_src if info is not None else None
        return None

    def _stop(self, n: NodePlan | None, split: int) -> TraceSlice | None:
        """A node's slice, or that of its split where the node takes no time."""
        made = self.nodes.get(n.id) if n is not None else None
        return made if made is not None and made.end > made.start else self.splits.get(split)


class TraceDrawing:
    """A trace while the steps of a scenario are drawn: the tracks of the host and of the devices, and the memory."""

    def __init__(self, opened: Opened, times: PlanTimes, clock: Clock, about: str) -> None:
        self.opened = opened
        self.times = times
        names = tuple(b.name for b in opened.model.backends)
        self.trace = PerfettoTrace(opened.title, opened.model.ggml, names, clock, about)
        self.calls = calls_of(opened.model.release.name)
        self.host = HostTrack(self.trace)
        self.compute = {name: DeviceTracks(self.trace, name, COMPUTE) for name in names}
        self.copies = {name: DeviceTracks(self.trace, name, COPIES) for name in names}
        self.memory = MemoryRecorder()

    def refused(self, error: Mapping[str, str | None]) -> None:
        """ggml refused a step."""
        self.trace.error = error
        self.host.mark(error.get("message") or "ggml failed", {"function": error.get("function")})

    def host_event(self, event: events.Event, at: int | None = None, end: int | None = None) -> None:
        """Draw what the host does, from `at` to `end` where that was measured."""
        match event:
            case events.TensorWritten(tensor, buft, offset, nbytes, get):
                args = {"bytes": nbytes, "offset": offset, "buffer": buft}
                self.host.call(f"ggml_backend_tensor_{'get' if get else 'set'}({tensor})", args, at, end)
            case events.Synchronized(backend):
                self.host.mark(f"ggml_backend_synchronize({backend})")
            case events.Logged(level, text):
                self.host.mark(f"{level}: {text.rstrip()}")
            case _:
                pass

    def batch(self, plan: Plan, n_copies: int) -> DrawnBatch:
        """Draw a batch from now on: what the host does and waits for, what devices compute, and the copies."""
        host = self.host
        start = host.now
        batch = self.times.batch(plan, n_copies)
        drawn = DrawnBatch(plan, self.opened.tensors(plan.graph or ""))
        for stretch in batch.table:
            at = start + round(stretch.start * SECOND), start + round(stretch.end * SECOND)
            split = plan.splits[stretch.step]
            match stretch.doing:
                case Doing.WAIT:
                    host.call(waiting(stretch.backend, n_copies), {"waits_for": stretch.backend}, *at)
                case Doing.COPY:
                    self._copy(batch, split, stretch, at, drawn)
                case Doing.COMPUTE:
                    self._split(batch, split, at, drawn)
                    # A device is given its nodes; the host itself computes them.
                    call, made = f"{self.calls.compute}({split.backend})", drawn.splits[split.id]
                    if batch.steps[stretch.step].waits:
                        host.call(call, {"split": split.id}, made.start, made.end)
                    else:
                        host.mark(call, {"split": split.id})
        self.trace.flows += drawn.flows()
        return drawn

    def _copy(
        self, batch: BatchTimes, split: SplitPlan, stretch: Stretch, at: tuple[int, int], drawn: DrawnBatch
    ) -> None:
        id, made = split.inputs[stretch.copy], batch.steps[stretch.step].copies[stretch.copy]
        args = {
            "tensor": id,
            "from": made.source or None,
            "to": split.backend,
            "bytes": batch.copied[stretch.step][stretch.copy],
            "way": made.way.value,
            "split": split.id,
        }
        drawn.copies[split.id, id] = self.copies[split.backend].add(id, "copy", *at, args)
        if made.way in (Way.QUEUED, Way.EXPERTS_QUEUED):
            self.host.mark(f"ggml_backend_tensor_copy_async({id})", {"to": split.backend})
        else:
            self.host.call(f"{self.calls.copy}({id})", {"to": split.backend}, *at)

    def _split(self, batch: BatchTimes, split: SplitPlan, at: tuple[int, int], drawn: DrawnBatch) -> None:
        nodes = drawn.plan.nodes[split.i_start : split.i_end]
        args = {"backend": split.backend, "nodes": len(nodes), "inputs": list(split.inputs)}
        outer = self.compute[split.backend].add(f"split {split.id}", "split", *at, args, alone=True)
        drawn.splits[split.id] = outer
        for n, (start, end) in zip(nodes, inside(outer, (batch.node_ns.get(n.id, 0) for n in nodes)), strict=True):
            self.node(n, outer, start, end, batch.works, drawn)

    def node(
        self, n: NodePlan, outer: TraceSlice, start: int, end: int, works: Mapping[str, NodeWork], drawn: DrawnBatch
    ) -> None:
        """Draw a node within its split."""
        info, work = drawn.tensors.get(n.id), works.get(n.id)
        args: dict[str, Any] = {
            "op": n.op_desc,
            "type": n.type,
            "shape": list(n.ne),
            "src": list(n.src),
            "result_bytes": info.nbytes if info is not None else None,
            "touched_bytes": round(work.nbytes) if work is not None else None,
            "flops": round(work.operations) if work is not None else None,
            "node": n.index,
            "split": n.split,
            "cause": n.cause,
            "buffer": n.buffer,
            "chunk": n.chunk,
            "offset": n.offset,
        }
        drawn.nodes[n.id] = TraceSlice(outer.track, n.id, "node", start, end, args, 1)
        self.trace.slices.append(drawn.nodes[n.id])

    def alive(self, walked: Sequence[str], drawn: DrawnBatch, span: tuple[int, int]) -> None:
        """Count the bytes that are alive in each buffer while the batch is computed, in program order.

        `walked` are the nodes that the allocator walks. What is freed by a node is gone when the next one begins.
        """
        plan, memory = drawn.plan, self.memory.plan
        times = _times(drawn, walked, span[0])
        process = {buft: name for name, buft in reversed(plan.backends)}
        sizes = dict(plan.buffer_sizes)
        for buft in dict.fromkeys(life.buft for life in memory.lifetimes):
            backend = process.get(buft)
            if backend is None:
                continue
            left = sum(life.size for life in memory.of(buft) if life.end is None)
            counted = [*zip([span[0], *times], memory.alive(buft), strict=False), (span[1], left)]
            last: int | None = None
            for at, nbytes in counted:
                if nbytes != last:
                    values = {"live": nbytes, "size": sizes.get(backend, 0)}
                    self.trace.counters.append(Counter(backend, f"{buft} compute buffer", at, values))
                last = nbytes


def _times(drawn: DrawnBatch, walked: Sequence[str], start: int) -> list[int]:
    """When each node that the allocator walks is come to; what nobody computes, when the one behind it is."""
    at: dict[str, int] = {id: made.start for id, made in drawn.nodes.items()}
    for c in drawn.plan.copies:
        for split in drawn.plan.splits:
            made = drawn.copies.get((split.id, c.of)) if split.backend == c.backend else None
            if made is not None:
                at.setdefault(c.name, made.start)
    found: list[int] = []
    following = 0
    for name in reversed(walked):
        following = at.get(name, following)
        found.append(following)
    return list(accumulate(reversed(found), max, initial=start))[1:]
