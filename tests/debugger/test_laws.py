"""What holds for every walk through a history, on random scenarios of all releases."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

import ggmltool
from ggmltool.debugger.breakpoints import of_tensors
from ggmltool.debugger.walk import StopReason, Walker
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.errors import ScenarioError
from ggmltool.state.story.history import History, record_history, walk_to
from tests.conformance.fuzz import scenario as random_scenario
from tests.debugger.sessions import prompt_of

SEEDS = range(3)
MOST_SEEDS = 400


@cache
def random_history(nth: int, release: str) -> History:
    """The history of the nth random scenario that is one in a release."""
    for seed in range(MOST_SEEDS):
        try:
            history = record_history(ggmltool.load(random_scenario(seed), ggml=release))
        except (GgmlError, ScenarioError):
            continue
        if not nth:
            return history
        nth -= 1
    raise AssertionError(f"of {MOST_SEEDS} random scenarios not so many are for ggml {release}")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_forward_and_back_lead_to_the_same_points(seed: int, release: str) -> None:
    history = random_history(seed, release)
    rng = Random(seed)
    walker = Walker(history)
    last = len(history.points) - 1
    tensors = of_tensors(history.points)
    for name in rng.sample(sorted(tensors), min(3, len(tensors))):
        walker.breakpoints.add(name, tensors[name])
    stops = [walker.run()]
    while stops[-1].reason is StopReason.BREAKPOINT:
        stops.append(walker.continue_())
    met = {at for one in walker.breakpoints.values() for at in one.places if at < last}
    assert [stop.at for stop in stops[:-1]] == sorted(met)
    for stop in stops[-2::-1]:
        assert walker.continue_(reverse=True).at == stop.at
    walker.breakpoints.clear()
    assert walker.continue_(reverse=True)[:2] == (StopReason.START, 0)
    for _ in range(20):
        at = rng.randrange(last)
        n = rng.randrange(1, last - at) if last - at > 1 else 0
        walker.goto(at)
        if n:
            assert walker.step(n).at == at + n
            assert walker.step(n, reverse=True).at == at
        call = walker.calls.innermost[at]
        if walker.calls.innermost[walker.next().at] == call:
            assert walker.next(reverse=True).at == at


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_shown_at_a_point_is_what_a_session_that_stops_there_shows(seed: int, release: str) -> None:
    history = random_history(seed, release)
    rng = Random(seed)
    walked = prompt_of(history)
    walked.said("run")
    looks = ("bt", "info splits", "info hash", "info free-blocks", "info copies", "info tensors", "list", "info locals")
    for _ in range(3):
        at = rng.randrange(len(history.points))
        walked.said(f"goto {rng.randrange(len(history.points))}")
        walked.said(f"goto {at}")
        assert history.cells(at) == walk_to(history.scenario, at, history.compute)
        fresh = prompt_of(record_history(history.scenario))
        fresh.said(f"goto {at}")
        for look in looks:
            assert walked.said(look) == fresh.said(look), (at, look)
