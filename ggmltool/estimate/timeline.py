"""Several batches in flight: when each device and the host are busy, by the order of ggml_backend_sched_compute_splits.

With pipeline copies a device begins with the next batch while another one still computes the one before. What is copied
goes into the queue of the device that needs it, behind what it computes already: a device never copies its next weights
while it computes. Only from pinned memory does the copy go on without the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from ggmltool.estimate.records import Estimate
from ggmltool.ggml.version import SCHED_MAX_COPIES

_FOLLOWED = 3 * SCHED_MAX_COPIES


class Way(Enum):
    """How a tensor comes to a split's backend."""

    USER = "user"
    """An input: the host waits until the device has used the one before, and copies."""
    QUEUED = "queued"
    """Between two devices: the copy is in both queues, the host goes on."""
    WAITING = "waiting"
    """The host waits for both sides, and copies."""
    EXPERTS = "experts"
    """The host waits for the ids of the experts, and copies those, from pages."""
    EXPERTS_QUEUED = "experts, queued"
    """The host waits for the ids of the experts, whose copies from pinned memory are queued."""


class StepCopy(NamedTuple):
    """A copy before a split: its way, the backend that has the tensor, and its seconds."""

    way: Way
    source: str
    seconds: Estimate


class TimelineStep(NamedTuple):
    """A split as it takes time: `waits`: the host computes it itself."""

    backend: str
    waits: bool
    seconds: Estimate
    copies: tuple[StepCopy, ...]


class Doing(Enum):
    """What is done in a stretch of time."""

    COMPUTE = "compute"
    """A device, or the host itself, computes a split."""
    COPY = "copy"
    """A tensor comes to a split's backend."""
    WAIT = "wait"
    """The host waits for a backend."""


class Stretch(NamedTuple):
    """Something that lasts from `start` until `end`, in seconds: for the number `step`, of a copy its number `copy`
    among those of the step. `backend` is who computes, to whom is copied, or who is waited for."""

    doing: Doing
    backend: str
    step: int
    copy: int
    start: float
    end: float


LIKELY = 1
"""The case of an estimate that is drawn: neither its least nor its most."""


def time_table(steps: Sequence[TimelineStep], copies: int) -> list[Stretch]:
    """When what is done in one batch, in the order in which the host comes to it, with so many pipeline copies."""
    table: list[Stretch] = []
    _Clock(steps, copies, LIKELY, table.append).run(1)
    return table


def duration(steps: Iterable[TimelineStep], batches: int, copies: int) -> Estimate:
    """The seconds from the first to the last of so many batches, with so many pipeline copies (1: none).

    Of more than a few batches, those behind take as long as the last that were followed.
    """
    clocks = [_Clock(list(steps), copies, case) for case in range(3)]
    if batches <= _FOLLOWED:
        return Estimate(*(clock.run(batches) for clock in clocks))
    early = [clock.run(_FOLLOWED - copies) for clock in clocks]
    late = [clock.run(copies, _FOLLOWED - copies) for clock in clocks]
    return Estimate(*(b + (batches - _FOLLOWED) * (b - a) / copies for a, b in zip(early, late, strict=True)))


class _Clock:
    """The times at which the host and each device are through with what they were given, in one case of three."""

    def __init__(
        self, steps: Sequence[TimelineStep], copies: int, case: int, tell: Callable[[Stretch], None] | None = None
    ) -> None:
        self.steps = steps
        self.copies = copies
        self.case = case
        self.tell = tell
        self.at = (0, 0)
        self.host = 0.0
        self.device = {step.backend: 0.0 for step in steps}
        self.events: dict[tuple[str, int], float] = {}

    def run(self, batches: int, first: int = 0) -> float:
        """When so many batches more are through."""
        for batch in range(first, first + batches):
            self._batch(batch % self.copies)
        return max([self.host, *self.device.values()])

    def _batch(self, copy: int) -> None:
        before = ""
        for i, step in enumerate(self.steps):
            self.at = (i, 0)
            if not step.copies and before not in ("", step.backend):
                self._wait(self._used(before, copy), before)
            numbered = enumerate(step.copies)
            for k, c in sorted(numbered, key=lambda n: n[1].way in (Way.EXPERTS, Way.EXPERTS_QUEUED)):
                self.at = (i, k)
                self._copy(c, step.backend, copy)
            start = max(self.device[step.backend], self.host)
            end = start + step.seconds[self.case]
            self._say(Doing.COMPUTE, step.backend, start, end)
            self.device[step.backend] = end
            if step.waits:
                self.host = end
            self.events[step.backend, copy] = self.device[step.backend]
            before = step.backend

    def _used(self, backend: str, copy: int) -> float:
        """When a backend is through with what it did for this pipeline copy; without copies, with everything."""
        return self.device[backend] if self.copies == 1 else self.events.get((backend, copy), 0.0)

    def _wait(self, until: float, backend: str) -> None:
        if until > self.host:
            self._say(Doing.WAIT, backend, self.host, until)
            self.host = until

    def _say(self, doing: Doing, backend: str, start: float, end: float) -> None:
        if self.tell is not None:
            self.tell(Stretch(doing, backend, *self.at, start, end))

    def _copy(self, c: StepCopy, backend: str, copy: int) -> None:
        seconds = c.seconds[self.case]
        device = self.device
        if c.way is Way.QUEUED:
            if self.copies == 1:
                self._wait(device[backend], backend)
            start = max(device.get(c.source, 0.0), self.host)
            self._say(Doing.COPY, backend, start, start + seconds)
            device[c.source] = start + seconds
            device[backend] = max(device[backend], start + seconds)
            return
        if c.way in (Way.EXPERTS, Way.EXPERTS_QUEUED):
            self._wait(device[backend], backend)
        else:
            self._wait(self._used(backend, copy), backend)
        if c.way is Way.WAITING:
            self._wait(device.get(c.source, 0.0), c.source)
        start = max(device[backend], self.host) if c.way is Way.EXPERTS_QUEUED else self.host
        self._say(Doing.COPY, backend, start, start + seconds)
        if c.way is Way.EXPERTS_QUEUED:
            device[backend] = start + seconds
        else:
            self.host += seconds
            device[backend] = max(device[backend], self.host)
