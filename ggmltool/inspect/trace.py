"""Everything that the engine announces while the steps of a scenario are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Computed, Event, UsedAfterFree
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.model import Step
from ggmltool.scenario.run import Run
from ggmltool.scenario.scenario import Scenario


class TracedStep(NamedTuple):
    """A step of the scenario, what the engine announced meanwhile, and ggml's own text where it failed."""

    step: str
    events: Sequence[Event]
    error: str = ""


class Trace(NamedTuple):
    """The steps up to one that fails, the family of each buffer type, and ggml's error."""

    steps: list[TracedStep]
    families: Mapping[str, str]
    error: Mapping[str, str | None] | None = None

    @property
    def uses_freed(self) -> bool:
        """Whether a step used memory that was freed."""
        return any(isinstance(event, UsedAfterFree) for step in self.steps for event in step.events)


def trace_steps(
    scenario: Scenario,
    compute: bool,
    advance: Callable[[int], None] = lambda n: None,
    stepped: Callable[[Run, Step], object] = lambda run, step: None,
) -> Trace:
    """Do the scenario's steps, without `compute` only those that plan; `stepped` is called after each."""
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, Computed):
            advance(len(event.nodes))

    run = scenario.start(hear, values=compute)
    out: list[TracedStep] = []
    try:
        run.start()
    except GgmlError as refused:
        error = refused.as_dict()
        return Trace([TracedStep("start", events, error["message"] or "ggml failed")], {}, error)
    families = {name: buft.family for name, buft in run.bufts.items()}
    if events:
        out.append(TracedStep("start", list(events)))
    for number, step in enumerate(scenario.model.steps, 1):
        if not compute and step.kind not in ("reserve", "alloc", "reset"):
            continue
        events.clear()
        done = run.step(step, number)
        stepped(run, step)
        if isinstance(done, Plan) and done.error is not None:
            error = dict(done.error)
            out.append(TracedStep(str(step), list(events), error.get("message") or "ggml failed"))
            return Trace(out, families, error)
        out.append(TracedStep(str(step), list(events)))
    return Trace(out, families)
