"""A run as lanes, by the clock of this machine: what ggmltool's own engine did, one thing after the other."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Computed as ComputedEvent
from ggmltool.ggml.events import (
    Entered,
    Event,
    EventCall,
    Grown,
    Left,
    Logged,
    Synchronized,
    TensorCopied,
    TensorWritten,
)
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.history.calls import calls_of
from ggmltool.inspect.lane_compute import Computed, Devices, draw_arrows, draw_memory, node_args
from ggmltool.inspect.lane_times import LaneTimes
from ggmltool.inspect.lanes import Clock, HostLane, Lanes, Slice
from ggmltool.inspect.memory import MemoryRecorder

if TYPE_CHECKING:
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.run import Run
    from ggmltool.scenario.spec import Step

ABOUT = "measured: ggmltool's engine on this machine, one thing after the other; real devices are as fast as they are"


class _Done(NamedTuple):
    """A node that was just computed."""

    node: str


class _Heard(NamedTuple):
    """Something, and when it was told: an event before it happens, a node when it is done."""

    at: int
    what: Event | _Done


def measured_steps(
    opened: Opened,
    cached: int = 0,
    advance: Callable[[int], None] = lambda n: None,
    stepped: Callable[[Run, Step], object] = lambda run, step: None,
) -> Lanes:
    """The steps of a scenario, computed here; `advance` is told how many nodes more, `stepped` after each step."""
    names = tuple(b.name for b in opened.model.backends)
    lanes = Lanes(opened.title, opened.model.ggml, names, Clock.MEASURED, ABOUT, opened.model.release.name)
    _Measured(opened, lanes, cached, advance).do(stepped)
    return lanes


class _Measured:
    """The run under way: what was heard in a step is drawn when the step is done."""

    def __init__(self, opened: Opened, lanes: Lanes, cached: int, advance: Callable[[int], None]) -> None:
        self.opened = opened
        self.lanes = lanes
        self.times = LaneTimes(opened.model, cached)
        self.advance = advance
        self.host = HostLane(lanes)
        self.devices = Devices(lanes)
        self.memory = MemoryRecorder()
        self.heard: list[_Heard] = []
        self.began = perf_counter_ns()
        self.run: Run = opened.scenario.start(opened.listener(self._hear), values=True)

    def do(self, stepped: Callable[[Run, Step], object]) -> None:
        """All steps, up to one that ggml refuses."""
        try:
            self.run.start()
        except GgmlError as refused:
            self._refused(refused.as_dict())
            return
        self._draw("start", None)
        for step in self.opened.model.steps:
            error = self._step(step)
            stepped(self.run, step)
            self._draw(str(step), step)
            if error:
                self._refused(error)
                return

    def _step(self, step: Step) -> dict[str, str | None] | None:
        """One step; ggml's error, if it refused it."""
        self.heard = []
        self._note(Entered(str(step)))
        try:
            if step.kind == "compute":
                self.run.compute(step.graph or "", self._watch)
                done = None
            else:
                done = self.run.step(step)
        except GgmlError as refused:
            return refused.as_dict()
        if isinstance(done, Plan):
            self.opened.logged(done.log)
            return None if done.error is None else dict(done.error)
        return None

    def _note(self, what: Event | _Done) -> None:
        self.heard.append(_Heard(perf_counter_ns() - self.began, what))

    def _hear(self, event: Event) -> None:
        self._note(event)
        if isinstance(event, ComputedEvent):
            self.advance(len(event.nodes))

    def _watch(self, t: Tensor) -> None:
        self._note(_Done(t.id))

    def _refused(self, error: dict[str, str | None]) -> None:
        self.lanes.error = error
        self.host.mark(error.get("message") or "ggml failed", {"function": error.get("function")})

    def _draw(self, title: str, step: Step | None) -> None:
        """What was heard in a step."""
        heard, self.heard = self.heard, []
        end = perf_counter_ns() - self.began
        plan = None
        if step is not None and step.kind == "compute" and step.graph in self.run.newest:
            plan = self.run.plan_of(self.run.newest[step.graph][0], step.graph, "compute")
        drawn = Computed({}, {}, {})
        ends = [*(h.at for h in heard[1:]), end]
        splits: list[tuple[int, str, int, int]] = []
        for i, (at, what) in enumerate(heard):
            self.host.now = max(self.host.now, at)
            if isinstance(what, _Done):
                continue
            if type(what) in MemoryRecorder.hears:
                self.memory.hear(what)
            elif isinstance(what, ComputedEvent):
                last = next((j for j in range(i + 1, len(heard)) if not isinstance(heard[j].what, _Done)), len(heard))
                splits.append((what.split, what.backend, i, last))
            else:
                self._draw_event(what, at, ends[i], drawn, plan)
        self.host.now = max(self.host.now, end)
        self.host.leave_all()
        if plan is not None:
            self._draw_splits(heard, splits, plan, drawn)
            draw_arrows(self.lanes, plan, self.opened.tensors(plan.graph or ""), drawn)
            walked = [t.label for t in self.run.start().nodes]
            draw_memory(self.lanes, plan, self.memory.plan, walked, drawn, (heard[0].at, self.host.now))

    def _draw_event(self, event: Event, at: int, end: int, drawn: Computed, plan: Plan | None) -> None:
        host = self.host
        match event:
            case Entered(function, detail):
                host.enter(f"{function}({detail})" if detail or "_" in function else function)
            case Left():
                host.leave()
            case Grown(buft, old, new):
                host.mark(f"ggml_backend_buft_alloc_buffer({buft})", {"bytes": new, "before": old})
            case Synchronized(backend):
                host.mark(f"ggml_backend_synchronize({backend})")
            case EventCall(call, backend, copy):
                host.mark(f"ggml_backend_event_{call}({backend})", {"copy": copy})
            case Logged(level, text):
                host.mark(f"{level}: {text.rstrip()}")
            case TensorWritten(tensor, buft, offset, nbytes, get):
                args = {"bytes": nbytes, "offset": offset, "buffer": buft}
                host.call(f"ggml_backend_tensor_{'get' if get else 'set'}({tensor})", args, at, end)
            case TensorCopied():
                host.call(f"{calls_of(self.lanes.release).copy}({event.src})", {"bytes": event.nbytes}, at, end)
                self._draw_copy(event, at, end, drawn, plan)
            case _:
                pass

    def _draw_copy(self, event: TensorCopied, at: int, end: int, drawn: Computed, plan: Plan | None) -> None:
        """A copy of the engine's: of a split, if a plan says which."""
        if plan is None:
            return
        made = next((c for c in plan.copies if c.name == event.dst), None)
        if made is None:
            return
        done = {split for split, _ in drawn.copies}
        splits = [s for s in plan.splits if s.backend == made.backend and event.src in s.inputs]
        split = next(
            (s for s in splits if (s.id, event.src) not in drawn.copies and s.id >= max(done, default=0)), None
        )
        if split is None:
            return
        args = {"tensor": event.src, "to": made.backend, "bytes": event.nbytes, "how": event.how, "split": split.id}
        drawn.copies[split.id, event.src] = self.devices.copies[made.backend].add(event.src, "copy", at, end, args)

    def _draw_splits(
        self, heard: list[_Heard], splits: list[tuple[int, str, int, int]], plan: Plan, drawn: Computed
    ) -> None:
        """The splits with the nodes that were done in each, from one end to the next."""
        works = self.times.works(plan.graph or "")
        tensors = self.opened.tensors(plan.graph or "")
        by_id = {n.id: n for n in plan.nodes}
        for split, backend, first, last in splits:
            nodes = [(h.at, h.what.node) for h in heard[first + 1 : last] if isinstance(h.what, _Done)]
            start = heard[first].at
            end = nodes[-1][0] if nodes else start
            lane = self.devices.compute[backend]
            outer = lane.add(
                f"split {split}", "split", start, end, {"backend": backend, "nodes": len(nodes)}, alone=True
            )
            drawn.splits[split] = outer
            at = outer.start
            for done, id in nodes:
                node_end = min(max(done, at), outer.end)
                args = node_args(by_id[id], works.get(id), tensors)
                made = Slice(outer.lane, id, "node", at, node_end, args, 1)
                self.lanes.slices.append(made)
                drawn.nodes[id] = made
                at = node_end
