"""The real scheduler with the real Vulkan device plans captured graphs and random scenarios as the engine does."""

from __future__ import annotations

import pytest

from ggmltool.oracle.vulkan import Vulkan
from tests.needs import library
from tests.vulkan.scheduled import names, random_scenarios, verified

SOME = names()[::24]


@pytest.mark.skipif(not SOME, reason="the captured graphs are not beside this checkout")
@pytest.mark.parametrize("name", SOME)
def test_a_captured_graph_is_planned_as_with_the_real_device(name: str, vulkan: Vulkan) -> None:
    library("0.26")
    found = verified(name)
    assert found.differences == []
    assert found.compared["nodes"] > 50


def test_random_scenarios_are_planned_as_with_the_real_device(vulkan: Vulkan) -> None:
    library("0.26")
    found = random_scenarios(range(20))
    assert found.wrong == []
    assert found.plans > 25
