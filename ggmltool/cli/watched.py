"""One reserve or alloc of a graph with somebody looking at the allocator."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.output import log_lines
from ggmltool.cli.scenario import Opened
from ggmltool.ggml.alloc_record import AllocMoment, AllocRecorder
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.scenario.errors import nearest
from ggmltool.scenario.run import Run
from ggmltool.views.errors import ggml_error


@dataclass(frozen=True, slots=True)
class Watched:
    """A run after one step of one graph, with what the allocator did."""

    run: Run
    sched: Scheduler
    graph: str
    step: str
    record: AllocRecorder

    @property
    def heading(self) -> str:
        """`alloc main`."""
        return f"{self.step} {self.graph}"

    def moment(self) -> AllocMoment:
        """The moment that was asked for. Raises CliError where the allocator turned to no tensor of that name."""
        if self.record.moment is None:
            at = self.record.at or ""
            gallocr = self.sched.gallocr
            names = [t.label for t in (*gallocr.planned_nodes, *gallocr.planned_leafs)]
            near = nearest(at, names)
            if at in names:
                hint = "; it has memory of its own, which the allocator does not plan"
            else:
                hint = f"; did you mean {near}?" if near else ""
            raise CliError(f"the allocator never came to {at!r} in {self.heading}{hint}")
        return self.record.moment


def watch(opened: Opened, graph: str | None, step: str, at: str | None = None) -> Watched:
    """Reserve or allocate a graph on a fresh scheduler. Raises CliError where ggml would have failed."""
    name = opened.scenario.graph_name(graph)
    record = AllocRecorder(at)
    run = opened.scenario.start(record)
    sched = run.start()
    record.gallocr = sched.gallocr
    plan = run.reserve(name) if step == "reserve" else run.alloc(name)
    log_lines(plan.log)
    if plan.error is not None:
        raise CliError(ggml_error(dict(plan.error)), GGML_FAILED)
    return Watched(run, sched, name, step, record)
