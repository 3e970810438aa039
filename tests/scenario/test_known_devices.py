"""Devices by the names they are sold under: what is found, what it stands for, and what a wrong name is told."""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.scenario.devices.rates import OwnRates, known, known_devices, rates_data
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.dump import dump_backend
from ggmltool.scenario.load import load_spec


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RTX 3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("Apple M2 Ultra 192 GiB", "M2 Ultra 192GB"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "Ryzen 9 7950X"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "Core i9-13900K"),
        ("Intel(R) Core(TM) i9-13900K CPU @ 3.00GHz", "Core i9-13900K"),
        ("AMD Instinct MI100", "Instinct MI100"),
        ("Intel(R) Arc(TM) B580 Graphics", "Arc B580"),
    ],
)
def test_a_device_is_found_by_what_people_and_drivers_call_it(text: str, name: str) -> None:
    assert known(text).name == name


def test_no_two_devices_are_compared_alike_and_each_finds_itself() -> None:
    for name, device in known_devices().items():
        assert known(name) is device


def test_every_number_has_a_source_and_every_family_a_profile() -> None:
    data = rates_data()
    for gpu in data.gpus.values():
        generation = data.generations[gpu.generation]
        assert gpu.source in data.sources
        assert generation.source in data.sources
        assert all(family in PROFILES and family in data.families for family in generation.families)
        assert set(generation.features or ()) <= set(PROFILES[generation.families[0]].features)
    assert all(cpu.source in data.sources and cpu.isa in data.isas for cpu in data.cpus.values())
    assert all(isa.source in data.sources for isa in data.isas.values())
    used = {g.source for g in data.gpus.values()} | {g.source for g in data.generations.values()}
    used |= {c.source for c in data.cpus.values()} | {i.source for i in data.isas.values()}
    used |= {data.pcie.source, data.pcie.share_source}
    used |= {source for f in data.families.values() for source in (f.free_source, f.launch_source)}
    assert used == data.sources.keys()
    assert {g.generation for g in data.gpus.values()} == data.generations.keys()


@pytest.mark.parametrize(
    ("text", "backends"),
    [
        ("RTX 3090", [("CUDA0", "CUDA", "RTX 3090")]),
        ("2x RTX 3090", [("CUDA0", "CUDA", "RTX 3090"), ("CUDA1", "CUDA", "RTX 3090")]),
        ("RTX 3090,RX 7900 XTX", [("CUDA0", "CUDA", "RTX 3090"), ("ROCm0", "ROCm", "RX 7900 XTX")]),
        ("CUDA1=RTX 3090,RTX 4090", [("CUDA1", "CUDA", "RTX 3090"), ("CUDA0", "CUDA", "RTX 4090")]),
        ("Vulkan0=RTX 3090,CPU=Ryzen 9 7950X", [("Vulkan0", "Vulkan", "RTX 3090"), ("CPU", "CPU", "Ryzen 9 7950X")]),
        ("M1:10GiB", [("MTL0", "Metal", "M1 16GB")]),
        ("CUDA0:rates=rtx 3090", [("CUDA0", "CUDA", "RTX 3090")]),
        ("CUDA0:24GiB,events=false,CUDA1:8GiB", [("CUDA0", "CUDA", None), ("CUDA1", "CUDA", None)]),
    ],
)
def test_a_text_stands_for_backends(text: str, backends: list[tuple[str, str, str | None]]) -> None:
    assert [(b.name, b.profile, b.rates) for b in read_devices([text])] == backends


def test_this_machine_is_measured_once_and_goes_beside_other_devices() -> None:
    card, *mine = read_devices(["RTX 3090,here"])
    assert card.rates == "RTX 3090"
    assert mine[-1].name == "CPU"
    assert isinstance(mine[-1].rates, OwnRates)
    assert card.name == f"CUDA{len(mine) - 1}"
    assert read_devices(["here"]) == mine


def test_memory_and_features_are_the_device_s_until_something_else_is_said() -> None:
    plain, less = read_devices(["RTX 3090", "RTX 3090:20GiB"])
    assert plain.memory == known("RTX 3090").free("CUDA")
    assert 22 << 30 < (plain.memory or 0) < 24 << 30
    assert less.memory == 20 << 30
    assert plain.features == frozenset({"turing"})
    assert read_devices(["CUDA0:rates=RTX 3090,features=turing+ada"])[0].features == frozenset({"turing", "ada"})
    assert read_devices(["Vulkan0=RTX 3090"])[0].features is None
    assert read_devices(["M1 16GB"])[0].memory == known("M1 16GB").free("Metal")


def _scenario(rates: object) -> dict[str, Any]:
    backend = {"name": "CUDA0", "rates": rates}
    return {"ggmltool": 1, "backends": [backend, "CPU"], "graphs": {"g": {"nodes": {}}}}


@pytest.mark.parametrize(
    "rates", ["RTX 3090", {"like": "RTX 3090", "to_device": 12.0}, {"bandwidth": 60.0, "f32": 1.5, "int8": 3.0}]
)
def test_rates_of_a_scenario_are_read_and_written_alike(rates: object) -> None:
    spec = load_spec(_scenario(rates)).backends[0]
    assert dump_backend(spec)["rates"] == rates
    assert isinstance(spec.rates, OwnRates) == (not isinstance(rates, str))
