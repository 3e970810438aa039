"""What a run announces, kept by what it is of: the one listener of a step, whose parts are asked for by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import TYPE_CHECKING

from ggmltool.ggml.events import AllocationStarted
from ggmltool.inspect.decisions import Decisions, PassRecorder
from ggmltool.inspect.gauges import LimitWatch
from ggmltool.inspect.memory import AllocRecorder, MemoryPlan, MemoryRecorder, PlacedAt

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event, Listener
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.inspect.decisions import Part


class Keep(Flag):
    """The parts of a record. What is not asked for is not kept, and if nothing is, the engine announces nothing."""

    NOTHING = 0
    DECISIONS = auto()
    """Of the graph that was split last: what was said of each tensor, where splits begin, what they copy."""
    MEMORY = auto()
    """The lifetimes of the allocator's last plan."""
    ALLOCATIONS = auto()
    """Each step of the allocator's last plan with the free blocks it leaves; the lifetimes too."""
    PASSES = auto()
    """The assignments after each pass over the graph that was split last."""
    LIMITS = auto()
    """What gauges read and a finished plan no longer has."""


class Record:
    """A listener for one run. `at` and `before` say which moment of the allocator is kept (see `AllocRecorder`)."""

    def __init__(self, keep: Keep = Keep.NOTHING, at: str | None = None, before: bool = False) -> None:
        self.decisions = Decisions()
        self.allocations = AllocRecorder(at, before)
        self.passes = PassRecorder()
        self.limits = LimitWatch()
        whole = Keep.ALLOCATIONS in keep
        self.lifetimes = self.allocations.lifetimes if whole else MemoryRecorder()
        parts: dict[Keep, Part] = {
            Keep.DECISIONS: self.decisions,
            Keep.ALLOCATIONS if whole else Keep.MEMORY: self.allocations if whole else self.lifetimes,
            Keep.PASSES: self.passes,
            Keep.LIMITS: self.limits,
        }
        self._parts = [part for name, part in parts.items() if name in keep]
        kinds = {kind for part in self._parts for kind in part.hears}
        self._hearers = {kind: [part for part in self._parts if kind in part.hears] for kind in kinds}

    @property
    def memory(self) -> MemoryPlan:
        """The lifetimes of the allocator's last plan."""
        return self.lifetimes.plan

    @property
    def hears_memory(self) -> bool:
        """Whether lifetimes are kept."""
        return AllocationStarted in self._hearers

    def put(self, moves: Mapping[PlacedAt, PlacedAt]) -> None:
        """Tensors lie elsewhere than was announced."""
        self.lifetimes.put(moves)

    @property
    def listener(self) -> Listener | None:
        """Itself, None if nothing is to be kept."""
        return self if self._parts else None

    def attach(self, sched: AnyScheduler) -> None:
        """Look at this scheduler, which has not planned anything yet."""
        for part in self._parts:
            part.attach(sched)
        if any(part.looks_at_passes for part in self._parts):
            sched.on_pass = self._after_pass

    def __call__(self, event: Event) -> None:
        for part in self._hearers.get(type(event), ()):
            part.hear(event)

    def _after_pass(self, number: int, sched: AnyScheduler) -> None:
        for part in self._parts:
            part.after_pass(number, sched)
