"""What happens when, for ui.perfetto.dev: tracks with slices, flows between slices, counters; and their file.

Of the two formats that Perfetto reads, Chrome's Trace Event format is the one that a person and any program can read,
too, and chrome://tracing and speedscope open: a JSON object with one event per line. Times are whole nanoseconds, so
that what lies within something else does so exactly; in the file microseconds with three places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ggmltool.show.document import dumped

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


class Track(NamedTuple):
    """A line of the drawing: a device, or the `HOST`, and what of it."""

    process: str
    thread: str


class TraceSlice(NamedTuple):
    """Something that lasts from `start` until `end`; what begins later on the same track ends before it or begins
    behind it. `depth` is how many others it is within."""

    track: Track
    name: str
    category: str
    start: int
    end: int
    args: Args
    depth: int = 0


class Instant(NamedTuple):
    """Something that happens at once."""

    track: Track
    name: str
    at: int
    args: Args


class Flow(NamedTuple):
    """The way of a tensor: the slices that make it, copy it and read it."""

    name: str
    stops: tuple[TraceSlice, ...]


class Counter(NamedTuple):
    """How much there is of something from `at` on: `values` by what they are called."""

    process: str
    name: str
    at: int
    values: Mapping[str, int]


@dataclass(slots=True)
class PerfettoTrace:
    """A drawing: `clock` says what its durations are, `about` whose. `backends` are in the scheduler's
    order; `planned` are graphs that no step computes, drawn as if one did."""

    title: str
    ggml: str
    backends: tuple[str, ...]
    clock: Clock
    about: str
    slices: list[TraceSlice] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    error: Mapping[str, str | None] | None = None

    @property
    def end(self) -> int:
        """When everything is over."""
        return max([0, *(s.end for s in self.slices), *(m.at for m in self.instants)])

    def of(self, track: Track) -> list[TraceSlice]:
        """The slices of a track, as they begin."""
        return sorted((s for s in self.slices if s.track == track), key=lambda s: (s.start, s.depth))


class HostTrack:
    """The host's track while it is drawn: calls within calls, and what time it is."""

    def __init__(self, trace: PerfettoTrace) -> None:
        self.trace = trace
        self.track = Track(HOST, CALLS)
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
        self.trace.slices.append(TraceSlice(self.track, name, "call", start, self.now, args, len(self._open)))

    def leave_all(self) -> None:
        """The calls that are still open are done."""
        while self._open:
            self.leave()

    def call(self, name: str, args: Args | None = None, start: int | None = None, end: int | None = None) -> None:
        """A call in which nothing else is called, of a tick if nothing is known of its time."""
        start = self.now if start is None else max(start, self.now)
        self.now = start + TICK if end is None else max(end, start)
        self.trace.slices.append(
            TraceSlice(self.track, name, "call", start, self.now, dict(args or {}), len(self._open))
        )

    def mark(self, name: str, args: Args | None = None) -> None:
        """Something that happens now."""
        self.trace.instants.append(Instant(self.track, name, self.now, dict(args or {})))


class DeviceTracks:
    """A track of a device, or as many beside one another as things go on at once."""

    def __init__(self, trace: PerfettoTrace, process: str, thread: str) -> None:
        self.trace = trace
        self.process = process
        self.thread = thread
        self._ends: list[int] = []

    def add(self, name: str, category: str, start: int, end: int, args: Args, alone: bool = False) -> TraceSlice:
        """A slice of at least a nanosecond, on the first track that is free; with `alone` behind all others on one."""
        if alone and self._ends:
            start = max(start, self._ends[0])
        at = next((i for i, busy in enumerate(self._ends) if busy <= start), len(self._ends))
        self._ends[at : at + 1] = [max(end, start + 1)]
        track = Track(self.process, self.thread if at == 0 else f"{self.thread} {at + 1}")
        made = TraceSlice(track, name, category, start, self._ends[at], args)
        self.trace.slices.append(made)
        return made


def inside(outer: TraceSlice, durations: Iterable[int]) -> list[tuple[int, int]]:
    """Starts and ends of what is done in a slice one after the other; where that is longer, the last ones are cut."""
    out = []
    at = outer.start
    for duration in durations:
        end = min(at + duration, outer.end)
        out.append((at, end))
        at = end
    return out


Event = dict[str, Any]

_PLACES = 1_000
_BEHIND = 1_000
"""A depth that no slice has: what has none comes behind the slices that begin then."""


def perfetto_text(trace: PerfettoTrace) -> str:
    """The trace as a file for Perfetto."""
    events = ",\n".join(map(dumped, perfetto_events(trace)))
    about = {
        "ggmltool": 1,
        "kind": "perfetto",
        "scenario": trace.title,
        "ggml": trace.ggml,
        "durations": trace.clock.value,
        "about": trace.about,
        "graphs_no_step_computes": trace.planned,
        "error": None if trace.error is None else dict(trace.error),
    }
    return f'{{"displayTimeUnit": "ns",\n"otherData": {dumped(about)},\n"traceEvents": [\n{events}\n]}}\n'


def perfetto_events(trace: PerfettoTrace) -> Iterator[Event]:
    """The events: names of processes and threads first, then everything by its time, what is around before what is
    within."""
    pids = {name: i for i, name in enumerate((HOST, *trace.backends), 1)}
    tids = _threads(trace, pids)

    def named(what: str, pid: int, tid: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    for name, pid in pids.items():
        yield named("process_name", pid, 0, name=name)
        yield named("process_sort_index", pid, 0, sort_index=pid)
    yield named("process_labels", pids[HOST], 0, labels=trace.about)
    for track, tid in tids.items():
        yield named("thread_name", pids[track.process], tid, name=track.thread)
        yield named("thread_sort_index", pids[track.process], tid, sort_index=tid)
    timed = [*_slices(trace), *_instants(trace), *_counters(trace)]
    for *_, track, event in sorted(timed, key=lambda found: found[:4]):
        yield event | {"pid": pids[track.process]} | ({"tid": tids[track]} if track in tids else {})


def _threads(trace: PerfettoTrace, pids: dict[str, int]) -> dict[Track, int]:
    """The number of each track, no two the same: of a process first what is computed, then the copies."""

    def order(track: Track) -> tuple[int, int, str]:
        name, _, number = track.thread.rpartition(" ")
        return (1, int(number), name) if number.isdecimal() else (0, 0, track.thread)

    found = {s.track for s in trace.slices} | {Track(HOST, CALLS)}
    out: dict[Track, int] = {}
    for process in (HOST, *trace.backends):
        threads = sorted((track for track in found if track.process == process), key=order)
        out.update({track: tid for tid, track in enumerate(threads, 1000 * pids[process] + 1)})
    return out


_Timed = tuple[int, int, int, int, Track, Event]
"""When, within how many others, which of them, what comes first of it, where, and the event."""


def _slices(trace: PerfettoTrace) -> Iterator[_Timed]:
    """The slices, right behind each the flows that touch it: they are its own because it is the innermost then."""
    flows: dict[int, list[Event]] = {}
    for number, flow in enumerate(trace.flows, 1):
        last = len(flow.stops) - 1
        for i, stop in enumerate(flow.stops):
            ph = "s" if i == 0 else "f" if i == last else "t"
            event: Event = {"ph": ph, "name": flow.name, "cat": "copy", "id": number, "ts": stop.start / _PLACES}
            flows.setdefault(id(stop), []).append(event | ({"bp": "e"} if i else {}))
    for i, s in enumerate(trace.slices):
        args = {key: value for key, value in s.args.items() if value is not None}
        event = {"ph": "X", "name": s.name, "cat": s.category, "ts": s.start / _PLACES}
        yield s.start, s.depth, i, 0, s.track, event | {"dur": (s.end - s.start) / _PLACES, "args": args}
        for k, touching in enumerate(flows.get(id(s), ()), 1):
            yield s.start, s.depth, i, k, s.track, touching


def _instants(trace: PerfettoTrace) -> Iterator[_Timed]:
    for i, m in enumerate(trace.instants):
        args = {key: value for key, value in m.args.items() if value is not None}
        event = {"ph": "i", "s": "t", "name": m.name, "cat": "mark", "ts": m.at / _PLACES, "args": args}
        yield m.at, _BEHIND, i, 0, m.track, event


def _counters(trace: PerfettoTrace) -> Iterator[_Timed]:
    for i, counter in enumerate(trace.counters):
        event = {"ph": "C", "name": counter.name, "ts": counter.at / _PLACES, "args": dict(counter.values)}
        yield counter.at, _BEHIND, i, 1, Track(counter.process, ""), event
