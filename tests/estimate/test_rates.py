"""Rates of known devices, of those that their owner describes, and of this machine."""

from __future__ import annotations

import pytest

from ggmltool.estimate.rates import efficiency_of, known_rates, rates_of, rates_of_backend
from ggmltool.estimate.records import Efficiency
from ggmltool.scenario.devices.rates import OwnRates, known_devices, measure
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.spec import BackendSpec
from tests.batches import in_batches


def test_a_card_has_the_numbers_of_its_maker() -> None:
    rates = rates_of("RTX 3090")
    assert rates.memory == pytest.approx(936e9, rel=0.01)
    assert rates.f32 == pytest.approx(35.6e12, rel=0.01)
    assert rates.f16 == pytest.approx(142e12, rel=0.01)
    assert rates.bf16 == pytest.approx(71e12, rel=0.01)
    assert rates.int8 == pytest.approx(284e12, rel=0.01)
    assert rates.to_device is not None
    assert rates.to_device.pinned == pytest.approx(31.5e9, rel=0.01)
    assert rates.family == "CUDA"
    assert rates_of("RTX 3090", "Vulkan").family == "Vulkan"


def test_a_cpu_has_its_channels_and_cores() -> None:
    rates = rates_of("EPYC 9654")
    assert rates.memory == pytest.approx(460.8e9)
    assert rates.f32 == pytest.approx(96 * 2.4e9 * 32)
    assert rates.to_device is None


@in_batches("name", known_devices())
def test_every_device_can_be_estimated_and_says_where_its_numbers_are_from(name: str) -> None:
    for family in known_devices()[name].families:
        rates = known_rates(known_devices()[name], family)
        numbers = [rates.memory, rates.f32, rates.f16, rates.bf16, rates.int8, rates.launch]
        assert all(number > 0 for number in numbers)
        assert rates.family == family
        for key in ("memory", "f32", "f16", "bf16", "int8"):
            assert rates.sources[key].startswith("https://")
        assert "estimate of this project" in rates.sources["launch"]
        assert ("free" in rates.sources) == (known_devices()[name].memory is not None)
        assert ("to_device" in rates.sources) == (rates.to_device is not None)


def test_a_number_that_is_only_estimated_says_so() -> None:
    estimate = "an estimate of this project"
    assert rates_of("RTX 3090").sources["to_device"].endswith(estimate)
    assert rates_of("RX 7900 XTX").sources["free"] == estimate
    assert estimate in rates_of("Core i9-13900K").sources["int8"]
    assert estimate in rates_of("Instinct MI300X").sources["f16"]
    assert "taken from the ratio of a T4" in rates_of("RTX 2080 Ti").sources["int8"]


def test_every_share_that_was_fitted_is_a_range() -> None:
    for device in known_devices().values():
        for family in device.families:
            for share in known_rates(device, family).efficiency:
                assert 0 < share.low <= share.mid <= share.high
    assert efficiency_of("no such backend") == Efficiency()


def test_what_an_owner_says_replaces_what_is_known() -> None:
    own = rates_of_backend(BackendSpec("CUDA0", "CUDA", rates=OwnRates(like="RTX 3090", bandwidth=500, to_device=10)))
    known = rates_of("RTX 3090")
    assert own is not None
    assert (own.memory, own.f16) == (500e9, known.f16)
    assert own.to_device is not None
    assert own.from_device is not None
    assert (own.to_device.pinned, own.from_device.pinned) == (10e9, 10e9)
    assert own.sources["memory"] == "its owner"
    assert own.sources["f16"] == known.sources["f16"]
    plain = rates_of_backend(BackendSpec("CPU", "CPU", rates=OwnRates(bandwidth=60, f32=1.5)))
    assert plain is not None
    assert (plain.memory, plain.f32, plain.int8, plain.to_device) == (60e9, 1.5e12, 1.5e12, None)
    assert rates_of_backend(BackendSpec("CPU", "CPU")) is None


def test_a_backend_has_the_rates_of_the_device_it_runs_on() -> None:
    for spec in read_devices(["2x RTX 3090,Vulkan0=RX 7900 XTX,CPU=Ryzen 9 7950X"]):
        rates = rates_of_backend(spec)
        assert rates is not None
        assert rates.family == spec.profile


def test_this_machine_is_measured() -> None:
    said: list[str] = []
    cpu = measure(said.append)[-1]
    assert said[-1] == "Measuring the CPU …"
    assert (cpu.backend, bool(cpu.hardware)) == ("CPU", True)
    assert cpu.memory >= 0
    assert 0.1 < (cpu.rates.bandwidth or 0) < 10_000
    assert 0.0005 < (cpu.rates.f32 or 0) < 1000
