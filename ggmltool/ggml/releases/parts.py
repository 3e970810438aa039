"""The parts of the engine that make a release's decisions. Each is a module of the release's folder, and imported when
it is asked for; what a folder has no module for is as in the release that it is like, and at last the shared engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.releases.release import Release

if TYPE_CHECKING:
    from ggmltool.ggml.devices.profile import Profile
    from ggmltool.ggml.graph_copy import Copier
    from ggmltool.ggml.releases.january_2024 import registry, scheduler
    from ggmltool.ggml.sched.scheduler import Scheduler

    MeasuringScheduler = scheduler.Scheduler
    Registry = registry.Registry


def scheduler_of(release: Release) -> type[Scheduler]:
    """The scheduler of a release that reserves (`scheduler.py`)."""
    scheduler: type[Scheduler] = _part(release, "scheduler").Scheduler
    return scheduler


def measuring_scheduler_of(release: Release) -> type[MeasuringScheduler]:
    """The same of a release that measures."""
    scheduler: type[MeasuringScheduler] = _part(release, "scheduler").Scheduler
    return scheduler


def profiles_of(release: Release) -> Mapping[str, Profile]:
    """The profiles of its devices by name (`devices.py`)."""
    profiles: Mapping[str, Profile] = _part(release, "devices").PROFILES
    return profiles


def copier_of(release: Release) -> type[Copier]:
    """What copies graphs (`graph_copy.py`)."""
    copier: type[Copier] = _part(release, "graph_copy").Copier
    return copier


def registry_of(release: Release) -> Registry | None:
    """A new registry (`registry.py`) where programs make backends by one."""
    module = _module(release.folder, "registry")
    if module is None:
        return None
    registry: Registry = module.Registry()
    return registry


_SHARED = {
    "scheduler": "ggmltool.ggml.sched.scheduler",
    "devices": "ggmltool.ggml.devices.profiles",
    "graph_copy": "ggmltool.ggml.graph_copy",
}
"""The parts of the release that is like no other."""


def _part(release: Release, part: str) -> Any:
    module = _module(release.folder, part)
    if module is None:
        return import_module(_SHARED[part]) if release.like is None else _part(release.like, part)
    return module


@cache
def _module(folder: str, part: str) -> ModuleType | None:
    name = f"{__package__}.{folder}.{part}"
    return None if find_spec(name) is None else import_module(name)
