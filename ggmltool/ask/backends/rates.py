"""Device speeds: the known ones, those in a scenario, and this machine's as measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ggmltool.estimate.rates import OWN, known_rates, rates_of_backend
from ggmltool.estimate.records import Rates
from ggmltool.scenario.devices.rates import known_devices
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.show.document import Document, Row


class LinkInfo(Row):
    """A way between a device and the host: bytes per second from pinned and from pageable memory, seconds to begin."""

    pinned: float
    pageable: float
    latency: float


class DeviceNumbers(Row):
    """`bandwidth` of the memory in bytes per second; the types have operations per second. Without a way to the device
    its memory is the host's. `sources`: where the numbers are from, that of `launch` (seconds of each node) and of
    the share that is `free` among them."""

    bandwidth: float
    f32: float
    f16: float
    bf16: float
    int8: float
    to_device: LinkInfo | None
    from_device: LinkInfo | None
    sources: dict[str, str]


class DeviceRates(Row):
    """A device, by its name and its backends: that of a scenario, or the families that run on a known device, the usual
    one first. `memory` and `free` are bytes, null where nothing is said of them; so are `rates`."""

    name: str
    backends: tuple[str, ...]
    memory: int | None
    free: int | None
    rates: DeviceNumbers | None


class DevicesRates(Document, kw_only=True):
    """`backends --rates --json` and `backends --measure --json`: how fast devices are at best."""

    view = "rates"
    kind: Literal["rates"] = "rates"
    devices: tuple[DeviceRates, ...]


class KnownRates(DevicesRates, kw_only=True):
    """Those of all known devices, whose sources are not shown."""

    view = "known_rates"


def rates_of_known() -> KnownRates:
    """Every known device, run by its usual backend."""
    devices = [
        DeviceRates(d.name, tuple(d.families), d.memory, d.free(d.families[0]), _numbers(known_rates(d)))
        for d in known_devices().values()
    ]
    return KnownRates(devices=tuple(devices))


def rates_of(model: ScenarioSpec) -> DevicesRates:
    """The backends of a scenario."""
    return DevicesRates(devices=tuple(map(_of_backend, model.backends)))


def _of_backend(spec: BackendSpec) -> DeviceRates:
    rates = rates_of_backend(spec)
    name = rates.name if rates and rates.name != OWN else ""
    return DeviceRates(name or spec.name, (spec.name,), None, spec.memory, _numbers(rates))


def _numbers(rates: Rates | None) -> DeviceNumbers | None:
    if rates is None:
        return None
    there, back = (None if way is None else LinkInfo(*way) for way in (rates.to_device, rates.from_device))
    return DeviceNumbers(rates.memory, rates.f32, rates.f16, rates.bf16, rates.int8, there, back, dict(rates.sources))


def measured_backends(progress: Callable[[str], None]) -> Sequence[BackendSpec]:
    """This machine's devices with the rates that were measured just now; `progress` is told which is."""
    from ggmltool.ggml.devices.profiles import profile_of_name
    from ggmltool.scenario.devices.rates import measure

    return [
        BackendSpec(m.backend, profile_of_name(m.backend), memory=m.memory or None, rates=m.rates)
        for m in measure(progress)
    ]
