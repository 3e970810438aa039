"""U32: a device has one colour, whatever stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.views.palette import PALETTE, colors

SYSTEMS = (
    ["CPU"],
    ["CUDA0", "CPU"],
    ["CUDA0", "CUDA1", "CPU"],
    ["CUDA1", "CUDA0", "BLAS", "CPU"],
    ["CUDA1", "CPU"],
    ["CPU", "CUDA0"],
    ["BLAS", "CPU"],
    ["Vulkan0", "CPU"],
    ["CUDA0", "Vulkan0", "RPC0", "CPU"],
    ["CUDA0"],
)


@pytest.mark.parametrize("name", ["CPU", "CUDA0", "CUDA1", "BLAS", "Vulkan0"])
def test_a_device_has_one_colour_in_all_systems(name: str) -> None:
    """U32"""
    assert len({colors(system)[name] for system in SYSTEMS if name in system}) == 1


@given(st.lists(st.text() | st.sampled_from(["CPU", "CUDA0", "ROCm0", "GPU0", "MTL0"]), max_size=15, unique=True))
def test_devices_beside_each_other_differ_and_the_cpu_keeps_its_own(names: list[str]) -> None:
    """U32"""
    inks = colors(names)
    assert len(set(inks.values())) == len(names)
    assert [name for name in names if inks[name] == PALETTE[1]] == [name for name in names if name == "CPU"]
