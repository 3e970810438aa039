"""The parts of the engine that make a release's decisions. Each is a module of the release's folder, and imported when
it is asked for; what a folder has no module for is as in the release that it is like, and at last the shared engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.releases.release import Release

if TYPE_CHECKING:
    from ggmltool.ggml.devices.profile import Profile
    from ggmltool.ggml.graph_copy import Copier
    from ggmltool.ggml.sched.measuring import MeasuringScheduler
    from ggmltool.ggml.sched.scheduler import Scheduler


class Registered(NamedTuple):
    """A backend in a registry: `init` makes one, given what stands behind the colon; `init_name` is ggml's function."""

    name: str
    init: Callable[[str], Backend]
    default_buffer_type: BufferType
    init_name: str = ""


class BackendRegistry(Protocol):
    """The backends that programs make by name."""

    @property
    def entries(self) -> Sequence[Registered]:
        """The backends in the order of their numbers."""

    def register(
        self, name: str, init: Callable[[str], Backend], default_buffer_type: BufferType, init_name: str = ""
    ) -> None:
        """One more backend."""

    def init_backend_from_str(self, backend_str: str) -> Backend:
        """A new backend by `NAME` or `NAME:params`."""


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


def registry_of(release: Release, misalign: int = 0) -> BackendRegistry | None:
    """A new registry (`registry.py`) where programs make backends by one; the CPU's memory is `misalign` bytes past a
    page.
    """
    module = _module(release.folder, "registry")
    if module is None:
        return None
    registry: BackendRegistry = module.Registry(misalign=misalign)
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
