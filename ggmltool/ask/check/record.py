"""How near a graph of a scenario is to every limit of ggml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ggmltool.ggml.errors import Breach, GgmlError
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import cut_name
from ggmltool.inspect.gauges import Checked, Gauge, LimitWatch, gauges, highest
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.show.document import Error, ReleaseDocument, Row, error_of


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


def check_graph(scenario: LoadedScenario, graph: str, step: str = "alloc") -> Checkup:
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
    # The names as they stand in the file; of those given apart from the id, what ggml keeps.
    model = run.model
    tensors = (*model.tensors(), *(model.graphs[graph].nodes if graph in model.graphs else ()))
    names = [t.id if t.name == cut_name(t.id) else t.name for t in tensors]
    found = gauges(
        Checked(watch, run.backends, run.sched, built, run.buffers, names, breach, plan.ok, run.model.release)
    )
    return Checkup(graph, plan, found, breach)


Status = Literal["fine", "near", "over", "breached", "not reached"]

NEAR = 0.9
"""From this share on a gauge is near its limit."""


def status(gauge: Gauge) -> Status:
    """`breached`: ggml or the device would not go on; `over`: ggml makes do; `near`: little is left."""
    kind = gauge.about.kind
    if gauge.used is None:
        return "not reached"
    if gauge.share > 1:
        return "over" if kind == "grows" else "breached"
    return "near" if gauge.share >= NEAR and kind != "fixed" else "fine"


def breached(gauges: Sequence[Gauge]) -> bool:
    """Whether ggml or a device would fail."""
    return any(status(gauge) == "breached" for gauge in gauges)


def all_is_fine(found: Sequence[Checkup]) -> bool:
    """Whether ggml went on in every graph, and no limit is breached."""
    return not any(breached(one.gauges) or not one.plan.ok for one in found)


def closest(found: Sequence[Checkup]) -> Sequence[Gauge]:
    """The gauges of one graph; of several, of each limit the one that is closest to it."""
    return highest({one.graph: one.gauges for one in found}) if len(found) > 1 else found[0].gauges


class GaugeRow(Row):
    """A limit and how near the graph is to it: `used` of `of`, null where ggml did not get so far; what is counted
    in `parts`, and what ggml does `beyond` it."""

    key: str
    group: str
    limit: str
    constant: str
    used: int | None
    of_: int = msgspec.field(name="of")
    unit: str
    status: str
    where: str
    parts: dict[str, int]
    beyond: str

    @classmethod
    def of(cls, g: Gauge) -> GaugeRow:
        """A gauge, with what its limit is called."""
        about, unit = g.about, "bytes" if g.about.nbytes else "count"
        return cls(
            g.key, about.group, about.text, about.constant, g.used, g.limit, unit, status(g), g.where, dict(g.of),
            about.beyond,
        )  # fmt: skip


class BreachRow(Row):
    """The limit that stopped ggml, and how much was asked of it."""

    key: str
    used: int | None


class CheckedGraph(Row, kw_only=True):
    """A graph with all gauges; where ggml refused it, its error and the limit that was breached, if it was one."""

    graph: str
    ok: bool
    gauges: list[GaugeRow]
    error: Error | UnsetType = UNSET
    breach: BreachRow | UnsetType | None = UNSET

    @classmethod
    def of(cls, one: Checkup) -> CheckedGraph:
        """A graph that was checked."""
        breach = None if one.breach is None else BreachRow(one.breach.limit, one.breach.used)
        return cls(
            graph=one.graph,
            ok=one.plan.ok,
            gauges=[GaugeRow.of(g) for g in one.gauges],
            error=error_of(one.plan.error),
            breach=UNSET if one.plan.error is None else breach,
        )


class Limits(ReleaseDocument, kw_only=True):
    """`check --json`: every limit of ggml with its gauge, graph by graph; `ok` unless one is breached."""

    view = "limits"
    tells_refusal = ("text", "json", "csv")
    main_table = "graphs.gauges"
    kind: Literal["check"] = "check"
    step: str
    ok: bool
    graphs: list[CheckedGraph]
    after: int | UnsetType = UNSET


class LimitsShown(Limits, kw_only=True):
    """The gauges, as they were read."""

    found: tuple[Checkup, ...]

    def rows(self) -> tuple[Gauge, ...]:
        """Every gauge, of several graphs that of the one nearest to the limit."""
        return tuple(closest(self.found))

    @classmethod
    def of(cls, found: Sequence[Checkup], after: int | None) -> LimitsShown:
        """The graphs that were checked; `after` is the step's number where one was named."""
        plan, graphs = found[0].plan, [CheckedGraph.of(one) for one in found]
        return cls(
            ggml=plan.ggml,
            step=plan.step,
            ok=all_is_fine(found),
            graphs=graphs,
            found=tuple(found),
            after=UNSET if after is None else after,
        )
