"""What is known of the speed of devices: the known ones, those of a scenario, and this machine's as measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ggmltool.estimate.rates import OWN, known_rates, rates_of_backend
from ggmltool.estimate.records import Rates
from ggmltool.scenario.devices.known import known_devices
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec


class RatesInfo(NamedTuple):
    """A device and its rates.

    `backends`: a backend's name, or the families that run on a known device, the usual one first. `memory` is all of it
    in bytes, `free` what a backend finds free there; None where it is its owner's choice. `rates` is None for a
    backend of which nothing is said.
    """

    name: str
    backends: tuple[str, ...]
    memory: int | None
    free: int | None
    rates: Rates | None


def known_rates_info() -> list[RatesInfo]:
    """Every known device, run by its usual backend."""
    return [
        RatesInfo(d.name, d.families, d.memory, d.free(d.families[0]), known_rates(d)) for d in known_devices().values()
    ]


def rates_info(model: ScenarioSpec) -> list[RatesInfo]:
    """The backends of a scenario."""
    return [_of_backend(spec) for spec in model.backends]


def _of_backend(spec: BackendSpec) -> RatesInfo:
    rates = rates_of_backend(spec)
    name = rates.name if rates and rates.name != OWN else ""
    return RatesInfo(name or spec.name, (spec.name,), None, spec.memory, rates)


def measured_backends(progress: Callable[[str], None]) -> Sequence[BackendSpec]:
    """This machine's devices with the rates that were measured just now; `progress` is told which is."""
    from ggmltool.ggml.devices.profiles import profile_of_name
    from ggmltool.scenario.devices.rates import measure

    return [
        BackendSpec(m.backend, profile_of_name(m.backend), memory=m.memory or None, rates=m.rates)
        for m in measure(progress)
    ]
