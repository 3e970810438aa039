"""Who waits for whom: streams and the host as clocks, and memory that two touch without one having waited.

Every stream does its work in order. That work of one is done before that of another begins is known only through events
and through the host that waits; here each stream, each event and the host know how far the streams are at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Clock = dict[int, int]
"""By a stream's number: how much of its work is done."""


class Race(AssertionError):  # noqa: N818 - what it is
    """Work touches memory that other work, which it does not wait for, writes or reads."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that a stream does. `after` is what is done when it begins; what the host did not wait for is not."""

    what: str
    stream: int
    number: int
    after: Clock

    def waits_for(self, other: Work) -> bool:
        """Whether the other work is done before this begins."""
        return self.after.get(other.stream, 0) >= other.number


@dataclass(slots=True)
class Access:
    """Bytes that a piece of work reads or writes."""

    work: Work
    low: int
    high: int
    writes: bool


def join(a: Clock, b: Clock) -> None:
    """`a` knows what `b` knows as well."""
    for stream, done in b.items():
        a[stream] = max(a.get(stream, 0), done)


@dataclass(slots=True)
class Timeline:
    """All that streams were given to do, in the order of the calls; `waits` are the calls for which the host waited."""

    works: list[Work] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    host: Clock = field(default_factory=dict)
    races: bool = True
    _streams: dict[int, Clock] = field(default_factory=dict)
    _accesses: dict[int, list[Access]] = field(default_factory=dict)
    _pending: list[tuple[Work, Callable[[], None]]] = field(default_factory=list)

    def begin(self, stream: int, what: str) -> Work:
        """Work that the host gives to a stream."""
        clock = self._streams.setdefault(stream, {})
        join(clock, self.host)
        work = Work(what, stream, clock.get(stream, 0) + 1, dict(clock))
        clock[stream] = work.number
        self.works.append(work)
        self.calls.append(f"{what} on {stream}")
        return work

    def touch(self, work: Work, block: int, low: int, high: int, writes: bool) -> None:
        """`work` reads or writes bytes of a block of memory. Raises Race."""
        if not self.races or low == high:
            return
        known = self._accesses.setdefault(block, [])
        for other in known:
            if (writes or other.writes) and other.low < high and low < other.high and other.work is not work:
                same_stream = other.work.stream == work.stream
                if not same_stream and not work.waits_for(other.work):
                    raise Race(f"{work.what} on stream {work.stream} does not wait for {other.work.what}")
        # What this work waits for need not be remembered where this work writes over it.
        known[:] = [a for a in known if not (writes and low <= a.low and a.high <= high)]
        known.append(Access(work, low, high, writes))

    def forget(self, block: int) -> None:
        """The block is freed."""
        self._accesses.pop(block, None)

    def when_done(self, work: Work, effect: Callable[[], None]) -> None:
        """Do something when the host knows that the work is done, and not before."""
        self._pending.append((work, effect))

    def record(self, stream: int) -> Clock:
        """What an event knows that is recorded on a stream."""
        clock = self._streams.setdefault(stream, {})
        join(clock, self.host)
        self.calls.append(f"record on {stream}")
        return dict(clock)

    def wait(self, stream: int, event: Clock) -> None:
        """A stream waits for an event."""
        join(self._streams.setdefault(stream, {}), event)
        self.calls.append(f"wait on {stream}")

    def synchronize(self, stream: int) -> None:
        """The host waits for a stream."""
        self.calls.append(f"synchronize {stream}")
        self._learn(self._streams.setdefault(stream, {}))

    def synchronize_event(self, event: Clock) -> None:
        """The host waits for an event."""
        self.calls.append("synchronize event")
        self._learn(event)

    def _learn(self, clock: Clock) -> None:
        join(self.host, clock)
        done = [p for p in self._pending if self.host.get(p[0].stream, 0) >= p[0].number]
        self._pending = [p for p in self._pending if p not in done]
        for _, effect in done:
            effect()
