"""All that a page tells of one moment: the state, every event that led to it, and where the memory was in between."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.events import AllocationStarted, NotReused, PassedOver, Refused
from ggmltool.inspect.memory import Allocation
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watch, Watched

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event, Listener
    from ggmltool.inspect.opened import Moment, Opened


MOST_EVENTS = 150_000
"""Events that are told of at most as they were announced; of more, those that settled nothing are left out."""
_SETTLE_NOTHING = (PassedOver, Refused, NotReused)


class ToldStep(NamedTuple):
    """A step of the scenario: its number where it was named by one, its words, and its first event."""

    number: int | None
    title: str
    event: int


@dataclass(frozen=True, slots=True)
class Told:
    """A moment, the events from the step on in which its memory was planned, and the allocations of that plan, whose
    walk is over the nodes `order`. `left_out` counts events that settled nothing and are not among these."""

    at: Watched
    events: Sequence[Event]
    steps: Sequence[ToldStep]
    allocations: Sequence[Allocation]
    order: Sequence[str]
    left_out: int = 0


class _Tape(Record):
    """A record that keeps the events themselves, too."""

    def __init__(self, keep: Keep) -> None:
        super().__init__(keep)
        self.events: list[Event] = []

    @property
    def listener(self) -> Listener | None:
        return self

    def __call__(self, event: Event) -> None:
        self.lifetimes.number = len(self.events)
        self.events.append(event)
        super().__call__(event)


def tell(opened: Opened, moment: Moment) -> Told:
    """Everything up to a moment. Raises InspectError for a step that is not there."""
    tape = _Tape(Keep.DECISIONS | Keep.MEMORY | Keep.LIMITS)
    watch = Watch(opened, moment, tape)
    steps: list[ToldStep] = []
    begins = 0
    for at in watch.each():
        steps.append(ToldStep(at.number, str(at.step), begins))
        begins = len(tape.events)
    planned = [i for i, event in enumerate(tape.events) if isinstance(event, AllocationStarted) and event.at == -1]
    whose = [n for n, step in enumerate(steps) if planned and step.event <= planned[-1]]
    kept = steps[whose[-1] if whose else -1 :]
    first = kept[0].event
    events = tape.events[first:]
    told = [step._replace(event=step.event - first) for step in kept]
    numbers: Sequence[int] = range(len(events))
    if len(events) > MOST_EVENTS:
        numbers = [i for i, event in enumerate(events) if not isinstance(event, _SETTLE_NOTHING)]
        told = [step._replace(event=bisect_left(numbers, step.event)) for step in told]

    def number(event: int | None) -> int | None:
        return None if event is None else bisect_left(numbers, event - first)

    allocations = [
        a._replace(born=bisect_left(numbers, a.born - first), died=number(a.died), trimmed=number(a.trimmed))
        for a in tape.lifetimes.allocations
    ]
    left_out = len(events) - len(numbers)
    return Told(at, [events[i] for i in numbers], told, allocations, tape.memory.nodes, left_out)
