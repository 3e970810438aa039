"""Everything that the engine announces while the steps of a scenario are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType

from ggmltool.ask.events import EventRow, event_row
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Computed, Event, UsedAfterFree
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Advance, Opened
from ggmltool.inspect.ready import computed_graphs, tell_of_undone
from ggmltool.show.document import Error, ReleaseDocument, Row
from ggmltool.state.story.history import backend_names
from ggmltool.state.story.points import BackendNames, Point, entered_at


class TracedStep(NamedTuple):
    """A step of the scenario, what the engine announced meanwhile, and ggml's own text where it failed."""

    step: str
    events: Sequence[Event]
    error: str = ""


class TraceStep(Row):
    """A step of the scenario: all that the engine announced meanwhile, and ggml's text where it failed."""

    step: str
    error: str | None
    events: list[EventRow]


class TraceDocument(ReleaseDocument, kw_only=True):
    """`trace --json`: the calls that ggml makes, step by step, in order; `Entered` and `Left` make them a tree."""

    main_table = "steps.events"
    kind: Literal["trace"] = "trace"
    ok: bool
    steps: list[TraceStep]
    error: Error | UnsetType = UNSET


@dataclass(frozen=True)
class Trace:
    """The steps up to one that fails, the backends, the name of the release, and ggml's error; with `decisions` those
    of the passes and of the allocator are shown, too."""

    view = "trace"
    steps: list[TracedStep]
    backends: Sequence[BackendNames]
    release: str
    error: Mapping[str, str | None] | None = None
    decisions: bool = False

    def document(self) -> TraceDocument:
        """What each step announced."""
        return TraceDocument(
            ggml=self.release,
            ok=self.error is None,
            steps=[TraceStep(s.step, s.error or None, [event_row(e) for e in s.events]) for s in self.steps],
            error=UNSET if self.error is None else Error(**self.error),
        )

    @property
    def uses_freed(self) -> bool:
        """Whether a step used memory that was freed."""
        return any(isinstance(event, UsedAfterFree) for step in self.steps for event in step.events)


@dataclass(eq=False)
class Announcements:
    """What the steps of a trace announced, as points whose calls can be asked for."""

    points: Sequence[Point]
    backends: Sequence[BackendNames]
    release: str
    error: Mapping[str, str | None] | None = None

    @cached_property
    def entered(self) -> Sequence[tuple[str, ...]]:
        """Of each point the functions that were announced to be entered and not left, innermost first."""
        return entered_at(self.points)


def trace_steps(opened: Opened, compute: bool, decisions: bool = False) -> Trace:
    """Do the scenario's steps, without `compute` only those that plan; with `decisions` they are shown, too."""
    graphs = opened.model.graphs
    total = sum(len(graphs[name].nodes) for name in computed_graphs(opened.model)) if compute else 0
    with opened.work.progress("tracing", total, "nodes") as advance:
        return replace(_traced(opened, compute, advance), decisions=decisions)


def _traced(opened: Opened, compute: bool, advance: Advance) -> Trace:
    scenario = opened.scenario
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, Computed):
            advance(len(event.nodes))

    run = scenario.start(hear, values=compute)
    release = scenario.model.release.name
    out: list[TracedStep] = []
    try:
        run.start()
    except GgmlError as refused:
        error = refused.as_dict()
        return Trace([TracedStep("start", events, error["message"] or "ggml failed")], (), release, error)
    if events:
        out.append(TracedStep("start", list(events)))
    for number, step in enumerate(scenario.model.steps, 1):
        if not compute and step.kind not in ("reserve", "alloc", "reset"):
            continue
        events.clear()
        done = run.step(step, number)
        tell_of_undone(run, step, opened.work)
        if isinstance(done, Plan) and done.error is not None:
            error = dict(done.error)
            out.append(TracedStep(str(step), list(events), error.get("message") or "ggml failed"))
            return Trace(out, backend_names(run), release, error)
        out.append(TracedStep(str(step), list(events)))
    return Trace(out, backend_names(run), release)
