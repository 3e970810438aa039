"""The steps of a scenario as a trace for Perfetto: by estimates or in program order, or measured on this machine."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ask.trace.tracks import DrawnBatch, PlanTimes, TraceDrawing, waiting
from ggmltool.ggml import events
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Event
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.version import SCHED_MAX_COPIES
from ggmltool.inspect.memory import MemoryRecorder
from ggmltool.inspect.ready import computed_graphs, tell_of_undone
from ggmltool.show.perfetto import Clock, PerfettoTrace

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Advance, Opened
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step

_MEASURED = (
    "measured: ggmltool's engine on this machine, one thing after the other; real devices are as fast as they are"
)


def planned_trace(opened: Opened, cached: int = 0) -> PerfettoTrace:
    """The steps of a scenario, with as many tokens in the caches; nothing is computed.

    If no step computes, every graph is drawn as if it were computed after it was allocated.
    """
    times = PlanTimes(opened.model, cached)
    return _Planned(opened, times, times.clock, times.about).do()


def measured_trace(opened: Opened, cached: int = 0) -> PerfettoTrace:
    """The steps of a scenario, computed here."""
    total = sum(len(opened.model.graphs[name].nodes) for name in computed_graphs(opened.model))
    with opened.work.progress("computing", total, "nodes") as advance:
        return _Measured(opened, PlanTimes(opened.model, cached), Clock.MEASURED, _MEASURED).do(advance)


class _Planned(TraceDrawing):
    """The steps under way, what the host does drawn as it is announced."""

    def do(self) -> PerfettoTrace:
        """All steps, up to one that ggml refuses."""
        self.computing = False
        self.run: Run = self.opened.scenario.start(self.opened.listener(self._hear))
        steps = self.opened.model.steps
        computes = any(step.kind == "compute" for step in steps)
        try:
            self.run.start()
        except GgmlError as refused:
            self.refused(refused.as_dict())
            self.host.leave_all()
            return self.trace
        for step in steps:
            self.host.enter(str(step))
            self._step(step, draws=step.kind == "compute" or (not computes and step.kind == "alloc"))
            self.host.leave_all()
            if self.trace.error is not None:
                break
        return self.trace

    def _step(self, step: Step, draws: bool) -> None:
        call = "ggml_backend_sched_graph_compute"
        self.computing = step.kind == "compute"
        if self.computing:
            self.host.enter(call)
        done = self.run.step(step)
        self.computing = False
        if isinstance(done, Plan):
            self.opened.logged(done.log)
            if done.error is not None:
                self.refused(dict(done.error))
                return
        if draws and step.graph is not None:
            if step.kind != "compute":
                self.host.leave_all()
                self.trace.planned.append(step.graph)
                self.host.enter(call, {"note": "no step of the scenario computes this graph"})
            self._compute(step.graph)

    def _compute(self, graph: str) -> None:
        """The batch that is allocated now."""
        run, host, trace = self.run, self.host, self.trace
        sched = run.start()
        graph = run.held or graph
        plan = run.plan_of(run.newest[graph][0], graph, "compute")
        reserves = self.opened.model.release.reserves
        function = "ggml_backend_sched_compute_splits" if reserves else "sched_compute_splits"
        host.enter(function, {"graph": graph, "splits": len(plan.splits), "durations": trace.clock.value})
        start = host.now
        drawn = self.batch(plan, SCHED_MAX_COPIES if sched.n_copies > 1 else 1)
        host.leave()
        for name in trace.backends:
            end = max([host.now, *(made.end for made in drawn.splits.values() if made.track.process == name)])
            host.call(waiting(name, 1), {"waits_for": name}, host.now, end)
        self.alive([t.label for t in sched.nodes], drawn, (start, host.now))

    def _hear(self, event: Event) -> None:
        if type(event) in MemoryRecorder.hears:
            self.memory.hear(event)
            return
        host = self.host
        match event:
            case events.Entered(function, detail) if not self._is_drawn(function):
                host.enter(f"{function}({detail})")
            case events.Left(function) if not self._is_drawn(function):
                host.leave()
            case events.Grown(buft, old, new):
                host.call(f"ggml_backend_buft_alloc_buffer({buft})", {"bytes": new, "before": old})
            case events.Synchronized() if self.computing:
                pass
            case events.ReallocNeeded():
                args = {"why": event.why.value, "tensor": event.tensor, "old": event.old_size, "new": event.new_size}
                host.mark("the reserved plan does not serve", args)
            case _:
                self.host_event(event)

    def _is_drawn(self, function: str) -> bool:
        """Whether the call is one that is drawn with what it does in it."""
        return self.computing and function.endswith(("graph_compute", "graph_compute_async", "compute_splits"))


class _Heard(NamedTuple):
    """Something, and when it was told: an event before it happens, a node (its id) when it is done."""

    at: int
    what: Event | str


class _Measured(TraceDrawing):
    """The run under way: what was heard in a step is drawn when the step is done."""

    def do(self, advance: Advance) -> PerfettoTrace:
        """All steps, up to one that ggml refuses."""
        self.heard: list[_Heard] = []
        self.advance = advance
        self.began = perf_counter_ns()
        self.run: Run = self.opened.scenario.start(self.opened.listener(self._hear), values=True)
        try:
            self.run.start()
        except GgmlError as refused:
            self.refused(refused.as_dict())
            return self.trace
        self._draw(None)
        for step in self.opened.model.steps:
            error = self._step(step)
            tell_of_undone(self.run, step, self.opened.work)
            self._draw(step)
            if error:
                self.refused(error)
                break
        return self.trace

    def _step(self, step: Step) -> dict[str, str | None] | None:
        """One step; ggml's error, if it refused it."""
        self.heard = []
        self._note(events.Entered(str(step)))
        try:
            if step.kind == "compute":
                self.run.compute(step.graph or "", lambda t: self._note(t.id))
                done = None
            else:
                done = self.run.step(step)
        except GgmlError as refused:
            return refused.as_dict()
        if isinstance(done, Plan):
            self.opened.logged(done.log)
            return None if done.error is None else dict(done.error)
        return None

    def _note(self, what: Event | str) -> None:
        self.heard.append(_Heard(perf_counter_ns() - self.began, what))

    def _hear(self, event: Event) -> None:
        self._note(event)
        if isinstance(event, events.Computed):
            self.advance(len(event.nodes))

    def _draw(self, step: Step | None) -> None:
        """What was heard in a step."""
        heard, self.heard = self.heard, []
        end = perf_counter_ns() - self.began
        drawn = None
        if step is not None and step.kind == "compute" and step.graph in self.run.newest:
            plan = self.run.plan_of(self.run.newest[step.graph][0], step.graph, "compute")
            drawn = DrawnBatch(plan, self.opened.tensors(plan.graph or ""))
        ends = [*(h.at for h in heard[1:]), end]
        splits: list[tuple[events.Computed, list[_Heard]]] = []
        for i, (at, what) in enumerate(heard):
            self.host.now = max(self.host.now, at)
            if isinstance(what, str):
                continue
            if type(what) in MemoryRecorder.hears:
                self.memory.hear(what)
            elif isinstance(what, events.Computed):
                last = next((j for j in range(i + 1, len(heard)) if not isinstance(heard[j].what, str)), len(heard))
                splits.append((what, heard[i:last]))
            else:
                self._draw_event(what, at, ends[i], drawn)
        self.host.now = max(self.host.now, end)
        self.host.leave_all()
        if drawn is not None:
            for split, within in splits:
                self._draw_split(split, within, drawn)
            self.trace.flows += drawn.flows()
            self.alive([t.label for t in self.run.start().nodes], drawn, (heard[0].at, self.host.now))

    def _draw_event(self, event: Event, at: int, end: int, drawn: DrawnBatch | None) -> None:
        host = self.host
        match event:
            case events.Entered(function, detail):
                host.enter(f"{function}({detail})" if detail or "_" in function else function)
            case events.Left():
                host.leave()
            case events.Grown(buft, old, new):
                host.mark(f"ggml_backend_buft_alloc_buffer({buft})", {"bytes": new, "before": old})
            case events.EventCall(call, backend, copy):
                host.mark(f"ggml_backend_event_{call}({backend})", {"copy": copy})
            case events.TensorCopied():
                host.call(f"{self.calls.copy}({event.src})", {"bytes": event.nbytes}, at, end)
                if drawn is not None:
                    self._draw_copy(event, at, end, drawn)
            case _:
                self.host_event(event, at, end)

    def _draw_copy(self, event: events.TensorCopied, at: int, end: int, drawn: DrawnBatch) -> None:
        """A copy of the engine's, if the plan says of which split: the first from the newest drawn one on."""
        made = next((c for c in drawn.plan.copies if c.name == event.dst), None)
        if made is None:
            return
        newest = max((split for split, _ in drawn.copies), default=0)
        for s in drawn.plan.splits:
            of_split = s.id >= newest and s.backend == made.backend and event.src in s.inputs
            if of_split and (s.id, event.src) not in drawn.copies:
                args = {"tensor": event.src, "to": made.backend, "bytes": event.nbytes, "how": event.how, "split": s.id}
                drawn.copies[s.id, event.src] = self.copies[made.backend].add(event.src, "copy", at, end, args)
                return

    def _draw_split(self, split: events.Computed, heard: list[_Heard], drawn: DrawnBatch) -> None:
        """A split with the nodes that were done in it, from one end to the next."""
        works = self.times.works(drawn.plan.graph or "")
        by_id = {n.id: n for n in drawn.plan.nodes}
        args = {"backend": split.backend, "nodes": len(heard) - 1}
        tracks = self.compute[split.backend]
        outer = tracks.add(f"split {split.split}", "split", heard[0].at, heard[-1].at, args, alone=True)
        drawn.splits[split.split] = outer
        at = outer.start
        for done, what in heard[1:]:
            if isinstance(what, str):
                end = min(max(done, at), outer.end)
                self.node(by_id[what], outer, at, end, works, drawn)
                at = end
