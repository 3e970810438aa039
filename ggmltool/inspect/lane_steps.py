"""The steps of a scenario as lanes: the host's calls in order, and every batch by the times of its nodes and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Entered, Event, Grown, Left, Logged, ReallocNeeded, Synchronized, TensorWritten
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.version import SCHED_MAX_COPIES
from ggmltool.inspect.lane_compute import Devices, draw_batch, draw_memory, waiting
from ggmltool.inspect.lane_times import LaneTimes
from ggmltool.inspect.lanes import HostLane, Lanes
from ggmltool.inspect.memory import MemoryRecorder

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.run import Run
    from ggmltool.scenario.spec import Step


def drawn_steps(opened: Opened, cached: int = 0) -> Lanes:
    """The steps of a scenario, with as many tokens in the caches; nothing is computed.

    If no step computes, every graph is drawn as if it were computed after it was allocated.
    """
    times = LaneTimes(opened.model, cached)
    names = tuple(b.name for b in opened.model.backends)
    lanes = Lanes(opened.title, opened.model.ggml, names, times.clock, times.about, opened.model.release.name)
    _Steps(opened, lanes, times).do()
    return lanes


class _Steps:
    """The steps under way."""

    def __init__(self, opened: Opened, lanes: Lanes, times: LaneTimes) -> None:
        self.opened = opened
        self.lanes = lanes
        self.times = times
        self.host = HostLane(lanes)
        self.devices = Devices(lanes)
        self.memory = MemoryRecorder()
        self.run: Run = opened.scenario.start(opened.listener(self._hear))
        self.computing = False

    def do(self) -> None:
        """All steps, up to one that ggml refuses."""
        steps = self.opened.model.steps
        computes = any(step.kind == "compute" for step in steps)
        try:
            self.run.start()
        except GgmlError as refused:
            self._refused(refused.as_dict())
            return
        for step in steps:
            self.host.enter(str(step))
            error = self._step(step, draws=step.kind == "compute" or (not computes and step.kind == "alloc"))
            self.host.leave_all()
            if error:
                return

    def _step(self, step: Step, draws: bool) -> bool:
        """One step; whether ggml refused it."""
        call = "ggml_backend_sched_graph_compute"
        self.computing = step.kind == "compute"
        if self.computing:
            self.host.enter(call)
        done = self.run.step(step)
        self.computing = False
        if isinstance(done, Plan):
            self.opened.logged(done.log)
            if done.error is not None:
                self._refused(dict(done.error))
                return True
        if draws and step.graph is not None:
            if step.kind != "compute":
                self.host.leave_all()
                self.lanes.planned.append(step.graph)
                self.host.enter(call, {"note": "no step of the scenario computes this graph"})
            self._compute(step.graph)
        return False

    def _compute(self, graph: str) -> None:
        """The batch that is allocated now."""
        run, host, lanes = self.run, self.host, self.lanes
        sched = run.start()
        graph = run.held or graph
        plan = run.plan_of(run.newest[graph][0], graph, "compute")
        n_copies = SCHED_MAX_COPIES if sched.n_copies > 1 else 1
        host.enter(self._function, {"graph": graph, "splits": len(plan.splits), "durations": lanes.clock.value})
        start = host.now
        batch = self.times.batch(plan, n_copies)
        drawn = draw_batch(host, self.devices, plan, batch, self.opened.tensors(graph), n_copies)
        host.leave()
        for name in lanes.backends:
            end = max([host.now, *(made.end for made in drawn.splits.values() if made.lane.process == name)])
            host.call(waiting(name, 1), {"waits_for": name}, host.now, end)
        walked = [t.label for t in sched.nodes]
        draw_memory(lanes, plan, self.memory.plan, walked, drawn, (start, host.now))

    @property
    def _function(self) -> str:
        reserves = self.opened.model.release.reserves
        return "ggml_backend_sched_compute_splits" if reserves else "sched_compute_splits"

    def _refused(self, error: dict[str, str | None]) -> None:
        self.lanes.error = error
        self.host.mark(error.get("message") or "ggml failed", {"function": error.get("function")})
        self.host.leave_all()

    def _hear(self, event: Event) -> None:
        if type(event) in MemoryRecorder.hears:
            self.memory.hear(event)
            return
        host = self.host
        match event:
            case Entered(function, detail) if not self._is_drawn(function):
                host.enter(f"{function}({detail})")
            case Left(function) if not self._is_drawn(function):
                host.leave()
            case Grown(buft, old, new):
                host.call(f"ggml_backend_buft_alloc_buffer({buft})", {"bytes": new, "before": old})
            case TensorWritten(tensor, buft, offset, nbytes, get):
                verb = "get" if get else "set"
                args = {"bytes": nbytes, "offset": offset, "buffer": buft}
                host.call(f"ggml_backend_tensor_{verb}({tensor})", args)
            case Synchronized(backend) if not self.computing:
                host.mark(f"ggml_backend_synchronize({backend})")
            case ReallocNeeded():
                args = {"why": event.why.value, "tensor": event.tensor, "old": event.old_size, "new": event.new_size}
                host.mark("the reserved plan does not serve", args)
            case Logged(level, text):
                host.mark(f"{level}: {text.rstrip()}")
            case _:
                pass

    def _is_drawn(self, function: str) -> bool:
        """Whether the call is one that is drawn with what it does in it."""
        return self.computing and function.endswith(("graph_compute", "graph_compute_async", "compute_splits"))
