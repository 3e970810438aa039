"""An index of a history: where steps, nodes and splits have their turn, and who lay where from which point to which.
It is made once, so that a step of the screen looks at little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml import events
from ggmltool.ggml.events import SPLIT_GRAPH, Event
from ggmltool.inspect.memory import Allocation, MemoryRecorder

if TYPE_CHECKING:
    from ggmltool.state.story.history import Point

Place = tuple[str, int]
"""A buffer type's name, and the number of a chunk."""


SHADES = 4
"""Ranges that touch are told apart by so many shades."""
_LOOK_BACK = 32


_ALLOCATOR = "ggml_gallocr"


class SchedulerWork(NamedTuple):
    """A function that splits a graph or plans its memory, from the point where it is entered to where it is left."""

    function: str
    first: int
    last: int


@dataclass(slots=True)
class TensorSpan:
    """A tensor in a compute buffer, from point `first` until `last` (None: to the end of the plan), while the allocator
    turned to the nodes from `start` to `end`. Until point `trim` it had `extra` bytes more. `heir` takes its memory
    over, as it took that of `reused`; `kept`: it is an output. `shade` is another number than that of what it touches.
    """

    tensor: str
    place: Place
    offset: int
    size: int
    first: int
    start: int
    last: int | None = None
    end: int | None = None
    reused: str | None = None
    heir: str | None = None
    kept: bool = False
    trim: int = -1
    extra: int = 0
    shade: int = 0

    def alive(self, at: int) -> bool:
        """Whether the tensor lies there at a point."""
        return self.first <= at and (self.last is None or at < self.last)

    def size_at(self, at: int) -> int:
        """Its bytes at a point."""
        return self.size + (self.extra if at < self.trim else 0)


@dataclass
class Planning:
    """One walk of the allocator over a graph, from point `first`: the spans in the order of their allocation, and the
    nodes it turned to (each with the point)."""

    first: int
    spans: list[TensorSpan] = field(default_factory=list)
    nodes: list[tuple[int, str]] = field(default_factory=list)
    extent: dict[Place, int] = field(default_factory=dict)

    @cached_property
    def by_tensor(self) -> dict[str, list[TensorSpan]]:
        """The spans of each tensor."""
        out: dict[str, list[TensorSpan]] = {}
        for span in self.spans:
            out.setdefault(span.tensor, []).append(span)
        return out

    def neighbors(self, span: TensorSpan) -> list[TensorSpan]:
        """All that has one of its bytes at some time, itself among them, in order."""
        end = span.offset + span.size + span.extra
        return [
            s
            for s in self.spans
            if s.place == span.place and s.offset < end and span.offset < s.offset + s.size + s.extra
        ]

    def node_at(self, at: int) -> int:
        """The number of the node that the allocator turned to last, -1 before the first."""
        return bisect_right(self.nodes, (at, "\U0010ffff")) - 1


class Timeline:
    """What happens when in a history. `step_marks` are the points where a step begins, `node_marks` those where another
    node has its turn, `split_marks` those where another split has; `work` is when the scheduler splits a graph and the
    allocator plans it."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.plannings: list[Planning] = []
        self.step_marks: list[int] = []
        self.node_marks: list[int] = []
        self.split_marks: list[int] = []
        self.work: list[SchedulerWork] = []
        self._at_work: list[int] = []
        self._memory = MemoryRecorder()
        self._about = ""
        for at, point in enumerate(points):
            if point.event is not None:
                self._hear(at, point.event)
            elif not point.ends:
                self.step_marks.append(at)
                self._about, self._at_work = "", []
        self._planned()

    def planning(self, at: int) -> Planning | None:
        """The allocator's newest walk at a point, None before the first."""
        place = bisect_right(self.plannings, at, key=lambda p: p.first) - 1
        return self.plannings[place] if place >= 0 else None

    def _hear(self, at: int, event: Event) -> None:
        match event:
            case events.Assigned(tensor) | events.PassedOver(tensor) | events.Refused(tensor):
                if tensor != self._about:
                    self.node_marks.append(at)
                self._about = tensor
            case events.Entered(function) if function in SPLIT_GRAPH or function.startswith(_ALLOCATOR):
                self._at_work.append(len(self.work))
                self.work.append(SchedulerWork(function, at, at))
            case events.Left(function) if self._at_work and self.work[self._at_work[-1]].function == function:
                place = self._at_work.pop()
                self.work[place] = self.work[place]._replace(last=at)
            case events.SplitStarted():
                self.split_marks.append(at)
            case events.Computed():
                self.split_marks.append(at)
                self.node_marks.append(at)
            case events.AllocationStarted():
                self._turn(at, event)
            case _:
                pass
        if type(event) in MemoryRecorder.hears:
            self._memory.number = at
            self._memory.hear(event)

    def _turn(self, at: int, event: events.AllocationStarted) -> None:
        if event.at < 0:
            self._planned()
            self.plannings.append(Planning(at))
        else:
            self.plannings[-1].nodes.append((at, event.node))
        self.node_marks.append(at)

    def _planned(self) -> None:
        if self.plannings:
            plan = self.plannings[-1]
            plan.spans = _spans(self._memory.allocations)
            for s in plan.spans:
                plan.extent[s.place] = max(plan.extent.get(s.place, 0), s.offset + s.size + s.extra)


def _spans(allocations: Sequence[Allocation]) -> list[TensorSpan]:
    heirs = {a.took: a.life.tensor for a in allocations}
    spans: list[TensorSpan] = []
    living: list[TensorSpan] = []
    for number, (life, born, died, _, trimmed, given_back) in enumerate(allocations):
        place = life.buft, life.chunk
        span = TensorSpan(life.tensor, place, life.offset, life.size, born, life.start, died, life.end, life.reused)
        span.heir, span.kept, span.extra = heirs.get(number), life.kept, given_back
        span.trim = span.trim if trimmed is None else trimmed
        living = [s for s in living if s.alive(born)]
        span.shade = _shade(span, living, spans[-_LOOK_BACK:])
        living.append(span)
        spans.append(span)
    return spans


def _shade(span: TensorSpan, living: Sequence[TensorSpan], last: Sequence[TensorSpan]) -> int:
    """The first that neither those beside it have nor the tensor that lay there before."""
    at = span.first
    end = span.offset + span.size_at(at)
    there = [s for s in living if s.place == span.place]
    beside = [s.shade for s in there if s.offset == end or s.offset + s.size_at(at) == span.offset]
    before = next((s.shade for s in reversed(last) if (s.place, s.offset) == (span.place, span.offset)), None)
    free = [shade for shade in range(SHADES) if shade not in beside]
    return next((shade for shade in free if shade != before), free[0] if free else 0)
