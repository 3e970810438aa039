"""What happens when, as lanes of time: a process per device with its computing and its copies, and the host's calls.

Times are whole nanoseconds, so that what lies within something else does so exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

HOST = "host"
CALLS, COMPUTE, COPIES = "ggml's calls", "compute", "copies"
SECOND = 1_000_000_000
TICK = 1_000
"""Nanoseconds of what nobody knows the duration of: a call of the host that neither waits, copies nor computes; in
program order, a node or a copy."""

Args = Mapping[str, Any]


class Clock(Enum):
    """What the lengths of slices are."""

    ESTIMATED = "estimated"
    MEASURED = "measured"
    ORDER = "program order"


class Lane(NamedTuple):
    """A line of the drawing: a device, or the `HOST`, and what of it."""

    process: str
    thread: str


class Slice(NamedTuple):
    """Something that lasts from `start` until `end`; what begins later on the same lane ends before it or begins behind
    it. `depth` is how many others it is within."""

    lane: Lane
    name: str
    category: str
    start: int
    end: int
    args: Args
    depth: int = 0


class Mark(NamedTuple):
    """Something that happens at once."""

    lane: Lane
    name: str
    at: int
    args: Args


class Arrow(NamedTuple):
    """The way of a tensor: the slices that make it, copy it and read it."""

    name: str
    stops: tuple[Slice, ...]


class Level(NamedTuple):
    """How much there is of something from `at` on: `values` by what they are called."""

    process: str
    name: str
    at: int
    values: Mapping[str, int]


@dataclass(slots=True)
class Lanes:
    """A drawing: `clock` says what its durations are, `about` whose; `release` names that which decides. `backends` are
    in the scheduler's order; `planned` are graphs that no step computes, drawn as if one did."""

    title: str
    ggml: str
    backends: tuple[str, ...]
    clock: Clock
    about: str
    release: str
    slices: list[Slice] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    error: Mapping[str, str | None] | None = None

    @property
    def end(self) -> int:
        """When everything is over."""
        return max([0, *(s.end for s in self.slices), *(m.at for m in self.marks)])

    def of(self, lane: Lane) -> list[Slice]:
        """The slices of a lane, as they begin."""
        return sorted((s for s in self.slices if s.lane == lane), key=lambda s: (s.start, s.depth))


class HostLane:
    """The host's lane while it is drawn: calls within calls, and what time it is."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.lane = Lane(HOST, CALLS)
        self.now = 0
        self._open: list[tuple[str, int, dict[str, Any]]] = []

    def enter(self, name: str, args: Args | None = None) -> None:
        """A call begins."""
        self._open.append((name, self.now, dict(args or {})))

    def leave(self) -> None:
        """The newest call is done. One in which no time went by took a tick."""
        name, start, args = self._open.pop()
        if self.now == start:
            self.now += TICK
        self.lanes.slices.append(Slice(self.lane, name, "call", start, self.now, args, len(self._open)))

    def leave_all(self) -> None:
        """The calls that are still open are done."""
        while self._open:
            self.leave()

    def call(self, name: str, args: Args | None = None, start: int | None = None, end: int | None = None) -> None:
        """A call in which nothing else is called, of a tick if nothing is known of its time."""
        start = self.now if start is None else max(start, self.now)
        self.now = start + TICK if end is None else max(end, start)
        self.lanes.slices.append(Slice(self.lane, name, "call", start, self.now, dict(args or {}), len(self._open)))

    def mark(self, name: str, args: Args | None = None) -> None:
        """Something that happens now."""
        self.lanes.marks.append(Mark(self.lane, name, self.now, dict(args or {})))


class DeviceLane:
    """A lane of a device, or as many beside one another as things go on at once."""

    def __init__(self, lanes: Lanes, process: str, thread: str) -> None:
        self.lanes = lanes
        self.process = process
        self.thread = thread
        self._ends: list[int] = []

    def add(self, name: str, category: str, start: int, end: int, args: Args, alone: bool = False) -> Slice:
        """A slice of at least a nanosecond, on the first lane that is free; with `alone` behind all others on one."""
        if alone and self._ends:
            start = max(start, self._ends[0])
        at = next((i for i, busy in enumerate(self._ends) if busy <= start), len(self._ends))
        self._ends[at : at + 1] = [max(end, start + 1)]
        lane = Lane(self.process, self.thread if at == 0 else f"{self.thread} {at + 1}")
        made = Slice(lane, name, category, start, self._ends[at], args)
        self.lanes.slices.append(made)
        return made


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * SECOND)


def inside(outer: Slice, durations: Iterable[int]) -> list[tuple[int, int]]:
    """Starts and ends of what is done in a slice one after the other; where that is longer, the last ones are cut."""
    out = []
    at = outer.start
    for duration in durations:
        end = min(at + duration, outer.end)
        out.append((at, end))
        at = end
    return out
