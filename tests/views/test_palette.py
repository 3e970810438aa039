"""U32: a device has one colour, whatever stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.show.colors import DARK, LIGHT, NO_BACKEND, PALETTE, Color, Ground, colors
from tests.contrast import TEXT, contrast, xterm

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


@pytest.mark.parametrize("color", [*PALETTE, NO_BACKEND])
def test_a_color_is_read_on_light_and_on_dark(color: Color) -> None:
    """As text on paper, and under text as an area; a terminal's ground is not known, so its inks are read on both."""
    assert contrast(color.ink, LIGHT.paper) >= TEXT
    assert contrast(color.dark_ink, DARK.paper) >= TEXT
    assert contrast(color.fill, LIGHT.ink) >= TEXT
    assert contrast(color.dark_fill, DARK.ink) >= TEXT
    term = xterm(int(color.term.removeprefix("color(").removesuffix(")")))
    assert min(contrast(term, "#ffffff"), contrast(term, "#000000")) >= 3.5


@pytest.mark.parametrize("ground", [LIGHT, DARK])
def test_words_are_read_on_paper(ground: Ground) -> None:
    assert contrast(ground.ink, ground.paper) >= TEXT
    assert contrast(ground.soft, ground.paper) >= TEXT
    assert contrast(ground.ink, ground.hatch) >= TEXT


def test_no_two_colors_are_alike() -> None:
    for part in zip(*PALETTE, strict=True):
        assert len(set(part)) == len(PALETTE)
