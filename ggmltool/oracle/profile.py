"""What the mock of a backend answers: the scenario's spec with the defaults of its profile (SPEC.md 1.2)."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.scenario.model import BackendSpec, DeviceType, Supports


@dataclass(frozen=True, slots=True)
class BackendProfile:
    """A backend with every question answered.

    `rules` names whose op rules hold where `supports` says nothing: "all", "cpu", "blas" or another profile's name.
    `any_host` is whether it can use every host buffer type. `is_real_cpu_buft`: the library's own CPU buffer type
    serves as its default buffer type.
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

    @property
    def supports_everything(self) -> bool:
        """Whether it runs every op there is."""
        return self.supports is None and self.rules == "all"

    @property
    def uses_cpu_rules(self) -> bool:
        """Whether the real CPU device answers for it."""
        return self.supports is None and self.rules == "cpu"


def resolve(spec: BackendSpec) -> BackendProfile:
    """The spec with its profile's defaults filled in. Raises ValueError for a profile the oracle does not know."""
    family = spec.profile.rstrip("0123456789").lower()
    if family == "cpu":
        return _cpu(spec)
    if family == "blas":
        return _fill(spec, "accel", buft=spec.buft or "CPU", alignment=32, host=True, rules="blas", any_host=True)
    if family == "custom":
        return _fill(spec, "gpu", buft=spec.buft or spec.name, alignment=128, host=False, rules="all", any_host=False)
    raise ValueError(f"the oracle has no rules for the profile {spec.profile!r}; use custom, CPU or BLAS")


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
