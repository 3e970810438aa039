"""The rates of known devices, and of those that their owner describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from ggmltool.data import load
from ggmltool.estimate.records import Efficiency, Link, Rates, ShareRange
from ggmltool.scenario.devices.rates import CpuData, GpuData, KnownDevice, OwnRates, dump_rates, known, rates_data
from ggmltool.scenario.spec import BackendSpec

GIGA, TERA, MICRO = 1e9, 1e12, 1e-6
BYTES_OF_A_TRANSFER = 8
"""A channel of memory moves 64 bits at a time."""
SMALL_CORE = 0.5
"""What an efficient core does in a cycle beside what a large one does."""
ESTIMATE = "estimate"
"""What rates.toml calls what this project only estimates."""
FILLING = "filling"
"""What efficiency.toml calls the columns that products compute beside theirs."""
OWN = "a device of your own"
"""The name of rates that are no known device's."""
_FIELDS = {"bandwidth": "memory"}
"""The fields of Rates that keys of `rates` are called otherwise."""


def rates_of(name: str, family: str | None = None) -> Rates:
    """The rates of a known device, run by a backend's family (by default the usual one). Raises Mistake."""
    return known_rates(known(name), family)


def rates_of_backend(spec: BackendSpec) -> Rates | None:
    """The rates of a scenario's backend, None where it says nothing of them."""
    if spec.rates is None:
        return None
    if isinstance(spec.rates, str):
        return rates_of(spec.rates, spec.family if spec.family in known(spec.rates).families else None)
    return _own(spec.rates, spec.family)


def known_rates(device: KnownDevice, family: str | None = None) -> Rates:
    """The rates of a device, run by one of its backends."""
    family = family or device.families[0]
    data = device.data
    if isinstance(data, CpuData):
        return _cpu(device.name, data, family)
    return _gpu(device.name, data, family)


def _gpu(name: str, gpu: GpuData, family: str) -> Rates:
    file = rates_data()
    generation = file.generations[gpu.generation]
    source, ratio = file.sources[gpu.source], file.sources[generation.source]
    own = {"f16": gpu.f16, "bf16": gpu.bf16, "int8": gpu.int8}
    by_type = {
        "f16": gpu.f16 or gpu.f32 * generation.f16,
        "bf16": gpu.bf16 or gpu.f32 * generation.bf16,
        "int8": gpu.int8 or gpu.f32 * generation.int8,
    }
    sources = {"memory": source, "f32": source}
    sources |= {key: source if own[key] else f"{source}; times f32: {ratio}" for key in by_type}
    link = None
    if gpu.pcie is not None:
        generation_of_pcie, lanes = gpu.pcie
        rate = GIGA * file.pcie.lane[generation_of_pcie] * lanes
        link = Link(file.pcie.pinned * rate, file.pcie.pageable * rate)
        shares = file.sources[file.pcie.share_source]
        sources["to_device"] = (
            f"{source}; {file.sources[file.pcie.source]}; half of it from pageable memory, and 20 µs a copy: {shares}"
        )
    sources["free"] = file.sources[file.families[family].free_source]
    rates = Rates(
        name=name,
        memory=GIGA * gpu.bandwidth,
        f32=TERA * gpu.f32,
        f16=TERA * by_type["f16"],
        bf16=TERA * by_type["bf16"],
        int8=TERA * by_type["int8"],
        to_device=link,
        from_device=link,
        sources=sources,
    )
    return _of_family(rates, family, gpu.generation)


def _cpu(name: str, cpu: CpuData, family: str) -> Rates:
    file = rates_data()
    isa = file.isas[cpu.isa]
    source = file.sources[cpu.source]
    cycles = GIGA * (cpu.cores * cpu.clock + SMALL_CORE * cpu.efficient * cpu.efficient_clock)
    operations = f"{source}; operations of a cycle: {file.sources[isa.source]}"
    if cpu.efficient:
        operations += f"; an efficient core as half a large one: {file.sources[ESTIMATE]}"
    sources = {"memory": source} | dict.fromkeys(("f32", "f16", "bf16", "int8"), operations)
    rates = Rates(
        name=name,
        memory=1e6 * cpu.speed * cpu.channels * BYTES_OF_A_TRANSFER,
        f32=cycles * isa.f32,
        f16=cycles * isa.f16,
        bf16=cycles * isa.bf16,
        int8=cycles * isa.int8,
        sources=sources,
    )
    return _of_family(rates, family, cpu.isa)


def _own(own: OwnRates, profile: str) -> Rates:
    if own.like is not None:
        device = known(own.like)
        rates = known_rates(device, profile if profile in device.families else None)
    else:
        f32 = TERA * (own.f32 or 0.0)
        rates = _of_family(Rates(OWN, GIGA * (own.bandwidth or 0.0), f32, f32, f32, f32), profile)
    rates = replace(
        rates,
        memory=_said(GIGA, own.bandwidth, rates.memory),
        f32=_said(TERA, own.f32, rates.f32),
        f16=_said(TERA, own.f16, rates.f16),
        bf16=_said(TERA, own.bf16, rates.bf16),
        int8=_said(TERA, own.int8, rates.int8),
        sources=rates.sources | {_FIELDS.get(key, key): "its owner" for key in dump_rates(own) if key != "like"},
    )
    there, back = own.to_device or own.from_device, own.from_device or own.to_device
    if there is None or back is None:
        return rates
    return replace(rates, to_device=_measured_link(there), from_device=_measured_link(back))


def _said(unit: float, value: float | None, otherwise: float) -> float:
    return otherwise if value is None else unit * value


def _measured_link(rate: float) -> Link:
    """A way for which somebody said how fast copies from pinned memory are."""
    pcie = rates_data().pcie
    return Link(GIGA * rate, GIGA * rate * pcie.pageable / pcie.pinned)


def _of_family(rates: Rates, family: str, generation: str = "") -> Rates:
    """With what is alike for all devices of a backend: launches, and how much of the rates its kernels reach."""
    of = rates_data().families.get(family)
    filling = fitted_shares().get(family, {}).get(FILLING, (0.0, 0.0, 0.0))[1]
    rates = replace(rates, family=family, efficiency=efficiency_of(family, generation), filling=filling)
    if of is None:
        return rates
    captured = None if of.launch_captured is None else MICRO * of.launch_captured
    sources = rates.sources | {"launch": rates_data().sources[of.launch_source]}
    return replace(rates, launch=MICRO * of.launch, launch_captured=captured, fuses=of.fuses, sources=sources)


def efficiency_of(family: str, generation: str = "") -> Efficiency:
    """How much of their rates a backend's kernels reach on devices of a generation, as it was fitted."""
    file = fitted_shares()
    shares = dict(file.get(family, {})) | dict(file.get(f"{family} {generation}", {}))
    return Efficiency(**{key: ShareRange(*value) for key, value in shares.items() if key != FILLING})


@cache
def fitted_shares() -> Mapping[str, Mapping[str, tuple[float, float, float]]]:
    """The file efficiency.toml, read once."""
    return load("efficiency.toml", dict[str, dict[str, tuple[float, float, float]]])
