"""Histories of steps that go back to older builds, some in freed memory."""

from __future__ import annotations

from random import Random

import pytest

import ggmltool
from ggmltool.ggml.events import UsedAfterFree
from tests.conformance.builds import MOST_ELEMENTS, elements
from tests.conformance.fuzz_wide import builds_scenario
from tests.drawn import Drawn
from tests.state.story.randomly import check


@pytest.mark.parametrize("compute", [False, True])
def test_every_point_has_the_state_of_a_fresh_run(compute: bool) -> None:
    drawn = Drawn(range(16), int(compute), 63)
    for seed in drawn:
        scenario = ggmltool.load(builds_scenario(seed)).opened.scenario
        if elements(scenario.model) < MOST_ELEMENTS:
            history = check(scenario, Random(seed), compute)
            drawn.found += any(isinstance(point.event, UsedAfterFree) for point in history.points)
    assert (drawn.found > 0) == compute
