"""What makes each release's decisions: the one table from a release of ggml to the parts of the engine that are it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.version import DEFAULT

if TYPE_CHECKING:
    from ggmltool.ggml.devices.profile import Profile
    from ggmltool.ggml.graph_copy import Copier
    from ggmltool.ggml.releases.january_2024.registry import Registry
    from ggmltool.ggml.sched.scheduler import Scheduler
    from ggmltool.scenario.model import Model
    from ggmltool.scenario.run import Run


def _profiles() -> Mapping[str, Profile]:
    from ggmltool.ggml.devices.profiles import PROFILES

    return PROFILES


def _march_2025_profiles() -> Mapping[str, Profile]:
    from ggmltool.ggml.releases.march_2025.devices import PROFILES

    return PROFILES


def _january_2024_profiles() -> Mapping[str, Profile]:
    from ggmltool.ggml.releases.january_2024.devices import PROFILES

    return PROFILES


def _copier() -> type[Copier]:
    from ggmltool.ggml.graph_copy import Copier

    return Copier


def _measured_copier() -> type[Copier]:
    from ggmltool.ggml.releases.january_2024.graph_copy import MeasuredCopier

    return MeasuredCopier


def _registry(model: Model) -> Registry:
    from ggmltool.scenario.registry import registry_of

    return registry_of(model)


class Parts(NamedTuple):
    """The parts of a release, each imported when it is asked for: what does a scenario's steps, its scheduler, the
    profiles of its devices, what copies graphs, and its backend registry, where programs make backends by one.
    """

    run: Callable[[], type[Run]]
    scheduler: Callable[[], type[Scheduler]]
    profiles: Callable[[], Mapping[str, Profile]] = _profiles
    copier: Callable[[], type[Copier]] = _copier
    registry: Callable[[Model], Registry] | None = None


def _run() -> type[Run]:
    from ggmltool.scenario.run import Run

    return Run


def _scheduler() -> type[Scheduler]:
    from ggmltool.ggml.sched.scheduler import Scheduler

    return Scheduler


def _fixed_inputs_scheduler() -> type[Scheduler]:
    from ggmltool.ggml.releases.march_2025.scheduler import FixedInputsScheduler

    return FixedInputsScheduler


def _measured_run() -> type[Run]:
    from ggmltool.scenario.measured_run import MeasuredRun

    return MeasuredRun


def _measured_scheduler() -> type[Scheduler]:
    from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler

    return MeasuredScheduler


PARTS: dict[str, Parts] = {
    DEFAULT.name: Parts(_run, _scheduler),
    "2025-03": Parts(_run, _fixed_inputs_scheduler, _march_2025_profiles),
    "2024-01": Parts(_measured_run, _measured_scheduler, _january_2024_profiles, _measured_copier, _registry),
}
"""By the release's name; there is an entry for each of `ggmltool.ggml.version.RELEASES`."""
