"""What the mock of a backend answers: the scenario's spec with the defaults of its profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ggmltool.ggml.devices.conditions import Supports
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.spec import BackendSpec, DeviceType


@dataclass(frozen=True, slots=True)
class BackendProfile:
    """A backend with every question answered.

    `rules` names whose op rules hold where `supports` says nothing: "all", "cpu", "blas", or "engine" for the
    engine's table of the profile.
    `any_host` is whether it can use every host buffer type. `is_real_cpu_buft`: the library's own CPU buffer type
    serves as its default buffer type. `lists_bufts`: it can use those that the scenario lists and no others.
    `is_recorded`: it has answers of a process.
    """

    name: str
    type: DeviceType
    buft: str
    alignment: int
    max_size: int | None
    row_padding: int
    host: bool
    rules: str
    supports: Supports | None
    supports_bufts: tuple[str, ...]
    any_host: bool
    offload_min_batch: int | None
    events: bool
    is_real_cpu_buft: bool
    lists_bufts: bool = False
    is_recorded: bool = False

    @property
    def may_offload(self) -> bool:
        """Whether it is asked about offloads at all."""
        return self.is_recorded or self.offload_min_batch is not None

    @property
    def supports_everything(self) -> bool:
        """Whether it runs every op there is."""
        return self.supports is None and self.rules == "all"

    @property
    def uses_cpu_rules(self) -> bool:
        """Whether the real CPU device answers for it."""
        return self.supports is None and self.rules == "cpu"


def resolve(spec: BackendSpec, profiles: Mapping[str, Profile]) -> BackendProfile:
    """The spec with its profile's defaults filled in; `profiles` are those of the release."""
    family = spec.profile.rstrip("0123456789").lower()
    if spec.profile == RECORDED:
        recorded = replace(_by_engine(spec, profiles[spec.family]), is_recorded=True)
        return recorded if spec.supports_bufts is None else replace(recorded, any_host=False, lists_bufts=True)
    if spec.supports is not None and spec.supports.cases is not None:
        return replace(resolve(replace(spec, supports=None), profiles), supports=spec.supports, rules="engine")
    if family == "cpu":
        return _cpu(spec)
    if family == "blas":
        return _fill(spec, "accel", buft=spec.buft or "CPU", alignment=32, host=True, rules="blas", any_host=True)
    if family == "custom":
        return _fill(spec, "gpu", buft=spec.buft or spec.name, alignment=128, host=False, rules="all", any_host=False)
    return _by_engine(spec, profiles[spec.profile])


def _by_engine(spec: BackendSpec, profile: Profile) -> BackendProfile:
    """A device whose rules are the engine's own table; alloc sizes and offloads are asked of it too."""
    return BackendProfile(
        name=spec.name,
        type=spec.type or profile.type,
        buft=spec.buft or profile.buft or spec.name,
        alignment=spec.alignment or profile.alignment,
        max_size=spec.max_size if spec.max_size is not None else _bounded(profile.max_size),
        row_padding=profile.row_padding if spec.row_padding is None else spec.row_padding,
        host=profile.host if spec.host is None else spec.host,
        rules="engine",
        supports=spec.supports,
        supports_bufts=spec.supports_bufts or (),
        any_host=profile.any_host,
        offload_min_batch=None
        if spec.never_offloads
        else profile.offload_min_batch
        if spec.offload_min_batch is None
        else spec.offload_min_batch,
        events=profile.events if spec.events is None else spec.events,
        is_real_cpu_buft=False,
    )


def _bounded(max_size: int) -> int | None:
    return None if max_size == SIZE_MAX else max_size


def _cpu(spec: BackendSpec) -> BackendProfile:
    plain = (
        spec.name == "CPU"
        and spec.buft in (None, "CPU")
        and spec.alignment in (None, 32)
        and spec.max_size is None
        and not spec.row_padding
        and spec.host in (None, True)
    )
    return _fill(
        spec, "cpu", buft=spec.buft or spec.name, alignment=32, host=True, rules="cpu", any_host=True, real=plain
    )


def _fill(
    spec: BackendSpec,
    type: DeviceType,
    *,
    buft: str,
    alignment: int,
    host: bool,
    rules: str,
    any_host: bool,
    real: bool = False,
) -> BackendProfile:
    return BackendProfile(
        name=spec.name,
        type=spec.type or type,
        buft=buft,
        alignment=spec.alignment or alignment,
        max_size=spec.max_size,
        row_padding=spec.row_padding or 0,
        host=host if spec.host is None else spec.host,
        rules=rules,
        supports=spec.supports,
        supports_bufts=spec.supports_bufts or (),
        any_host=any_host,
        offload_min_batch=None if spec.never_offloads else spec.offload_min_batch,
        events=bool(spec.events),
        is_real_cpu_buft=real,
    )
