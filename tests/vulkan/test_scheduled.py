"""The real scheduler with the real Vulkan device plans captured graphs as the engine does."""

from __future__ import annotations

import pytest

from ggmltool.oracle.vulkan import Vulkan
from tests.needs import library
from tests.vulkan.scheduled import names, verified

SOME = names()[::12]


@pytest.mark.skipif(not SOME, reason="the captured graphs are not beside this checkout")
@pytest.mark.parametrize("name", SOME)
def test_a_captured_graph_is_planned_as_with_the_real_device(name: str, vulkan: Vulkan) -> None:
    library("0.26")
    found = verified(name)
    assert found.differences == []
    assert found.compared["nodes"] > 50
