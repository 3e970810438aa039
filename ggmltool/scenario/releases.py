"""What makes each release's decisions: the one table from a release of ggml to the parts of the engine that are it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.version import DEFAULT

if TYPE_CHECKING:
    from ggmltool.ggml.sched.scheduler import Scheduler
    from ggmltool.scenario.run import Run


class Parts(NamedTuple):
    """The parts of a release, each imported when it is asked for: what does a scenario's steps, and its scheduler."""

    run: Callable[[], type[Run]]
    scheduler: Callable[[], type[Scheduler]]


def _run() -> type[Run]:
    from ggmltool.scenario.run import Run

    return Run


def _scheduler() -> type[Scheduler]:
    from ggmltool.ggml.sched.scheduler import Scheduler

    return Scheduler


def _measured_run() -> type[Run]:
    from ggmltool.scenario.measured_run import MeasuredRun

    return MeasuredRun


def _measured_scheduler() -> type[Scheduler]:
    from ggmltool.ggml.sched.measured import MeasuredScheduler

    return MeasuredScheduler


_TODAY = Parts(_run, _scheduler)

PARTS: dict[str, Parts] = {
    DEFAULT.name: _TODAY,
    "2025-03": _TODAY,
    "2024-01": Parts(_measured_run, _measured_scheduler),
}
"""By the release's name; there is an entry for each of `ggmltool.ggml.version.RELEASES`."""
