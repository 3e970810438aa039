"""One side of a difference: a scenario at a moment, with the reasons and the memory of its plan."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import join
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Assigned, Freed, Refused, SplitStarted
from ggmltool.inspect.diff.side import Held, HeldBuffer, Side
from ggmltool.inspect.memory import memory_plan
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Watch
from ggmltool.scenario.tensor_info import tensor_infos

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.ggml.sched.scheduler import Scheduler
    from ggmltool.scenario.model import Model


def scenario_side(opened: Opened, moment: Moment) -> Side:
    """A scenario at a moment, with the reasons and the memory of its plan. Raises ScenarioError and InspectError."""
    events: list[Event] = []
    order: list[str] = []

    def started(sched: Scheduler) -> None:
        sched.on_pass = passed

    def passed(number: int, sched: Scheduler) -> None:
        if number == len(sched.passes) - 1:
            order[:] = [n.id for n in sched.seen_graphs[-1].nodes]

    watched = Watch(opened, moment, events.append, started).watched()
    buffers = [HeldBuffer(b.buft.name, USAGE_NAMES[b.usage], b.size) for b in watched.run.buffers]
    return Side(
        watched.plan,
        tensor_infos(opened.model, watched.graph),
        memory_plan(events),
        {event.tensor: event.reason for event in events if isinstance(event, Assigned)},
        _starts(events),
        _held(opened.model),
        buffers,
        order,
        _again(opened, moment),
        origins={event.tensor: event.by for event in events if isinstance(event, Assigned)},
        refused=frozenset((event.tensor, event.backend) for event in events if isinstance(event, Refused)),
        tails=frozenset(event.tensor for event in events if isinstance(event, Freed) and event.extra),
    )


def _again(opened: Opened, moment: Moment) -> str:
    """How to name it behind a command that knows of graphs and steps, but not of other options of the scheduler."""
    if opened.options or opened.argument == "-":
        return ""
    words = [] if moment.graph is None else ["--graph", moment.graph]
    words += [] if moment.after is None else ["--after", str(moment.after)]
    words += ["--step", moment.step] if moment.after is None and moment.step != "alloc" else []
    return join([*words, opened.argument])


def _starts(events: Iterable[Event]) -> list[str]:
    """Why each split of the last graph that was split begins."""
    starts: list[str] = []
    for event in events:
        if isinstance(event, SplitStarted):
            starts[event.split :] = [event.reason]
    return starts


def _held(model: Model) -> list[Held]:
    """The tensors of the contexts that are allocated at once, without views."""
    from ggmltool.ggml.tensor import nbytes_of

    return [
        Held(t.id, context.buft, context.usage, nbytes_of(t.type, t.ne, t.nb))
        for context in model.contexts
        if context.buft is not None
        for t in context.tensors
        if t.view_src is None
    ]
