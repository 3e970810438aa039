"""How near a graph of a scenario is to every limit of ggml."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.ggml.errors import Breach, GgmlError
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import cut_name
from ggmltool.inspect.gauges import Checked, Gauge, gauges
from ggmltool.inspect.limit_watch import LimitWatch
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import watch
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import ScenarioSpec


@dataclass(frozen=True, slots=True)
class Checkup:
    """The gauges of one graph, and its plan; `breach` is the limit that ended it."""

    graph: str
    plan: Plan
    gauges: list[Gauge]
    breach: Breach | None


def check_all(opened: Opened, moment: Moment, all: bool = False) -> tuple[list[Checkup], str, str]:
    """The gauges at a moment, with `all` those of every graph on a fresh scheduler each; the heading and its fact."""
    if moment.after is not None:
        watched = watch(opened, moment, Record(Keep.LIMITS))
        found = read_gauges(watched.run, watched.record.limits, watched.graph, watched.plan)
        return [found], watched.title, watched.heading
    names = list(opened.model.graphs) if all else []
    names = names or [opened.scenario.graph_name(moment.graph)]
    what = f"{moment.step} {names[0]}" if len(names) == 1 else f"{moment.step}, {len(names)} graphs"
    return [check_graph(opened.scenario, name, moment.step) for name in names], opened.title, what


def check_graph(scenario: Scenario, graph: str, step: str = "alloc") -> Checkup:
    """Reserve or allocate a graph on a fresh scheduler, and read all gauges."""
    record = Record(Keep.LIMITS)
    run = scenario.start(record)
    try:
        record.attach(run.start())
    except GgmlError:
        # No scheduler can be made: the plan of a new run says so, and how far that came.
        run = scenario.start()
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    return read_gauges(run, record.limits, graph, plan)


def read_gauges(run: Run, watch: LimitWatch, graph: str, plan: Plan) -> Checkup:
    """The gauges of a run as it stands after `plan`, the plan of its last step; `watch` listened to the run."""
    breach = None if plan.ok else run.failure(run.plans[-1]).breach
    built = run.newest[graph][0] if graph in run.newest else None
    names = _names(run.model, graph)
    found = gauges(
        Checked(watch, run.backends, run.sched, built, run.buffers, names, breach, plan.ok, run.model.release)
    )
    return Checkup(graph, plan, found, breach)


def _names(model: ScenarioSpec, graph: str) -> list[str]:
    """The names of the tensors as they stand in the file; of those given apart from the id, what ggml keeps."""
    tensors = (*model.tensors(), *(model.graphs[graph].nodes if graph in model.graphs else ()))
    return [t.id if t.name == cut_name(t.id) else t.name for t in tensors]
