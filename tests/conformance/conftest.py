"""These tests run the real libraries beside the engine: they need the extra `oracle`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import Lib
from ggmltool.scenario.samples import sample_name
from tests.conformance.judged import Judging
from tests.conformance.judged import judged as judged_as
from tests.conformance.ops_case import Call
from tests.conformance.releases import JUDGED, samples
from tests.needs import EVERY, library


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> str:
    """A release that a real library judges; where that is missing the test is skipped, or fails where CI is set."""
    name: str = request.param
    library(name)
    return name


@pytest.fixture(scope="session")
def lib(release: str) -> Lib:
    """The real library of the release."""
    return library(release)


@pytest.fixture
def judged(release: str) -> Judging:
    """Runs a scenario on the engine and on the real library, as that release."""
    return partial(judged_as, release)


PLANNING = ("test_compute", "test_corner_cases_sched", "test_fuzz", "test_printed", "test_samples")
"""What the scheduler does in every release that is judged."""


def _judged(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """The releases that a test is for: the newest and the shared engine's alone, where ops and tables are concerned,
    of which a release has few of its own, unless `--every-release` asks for all.
    """
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in PLANNING or metafunc.config.getoption(EVERY):
        return JUDGED
    return tuple(name for name in JUDGED if name == JUDGED[0] or RELEASES[name].like is None)


def _calls(metafunc: pytest.Metafunc) -> None:
    """Parametrizes a test of `calls`, which are those of one constructor that a release has."""
    of: dict[tuple[str, str], list[Call]] = {}
    for release in _judged(metafunc):
        for call in metafunc.function.cases:
            if call.is_in(RELEASES[release]):
                of.setdefault((release, call.fn), []).append(call)
    pairs = [(release, calls) for (release, _), calls in of.items()]
    metafunc.parametrize(("release", "calls"), pairs, indirect=["release"], ids=map("-".join, of))


def _in_turn(metafunc: pytest.Metafunc, argument: str, values: Sequence[Any], each: bool) -> None:
    """Parametrizes a test with each value and one of the releases that have it, or all of them."""
    pairs = []
    for i, value in enumerate(values):
        having = [r for r in _judged(metafunc) if argument != "sample" or value in samples(r)]
        pairs += [(r, value) for k, r in enumerate(having) if each or k == i % len(having)]
    ids = [f"{release}-{sample_name(value) if argument == 'sample' else value}" for release, value in pairs]
    metafunc.parametrize(("release", argument), pairs, indirect=["release"], ids=ids)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `release` gets those that are judged; one `in_turn`, as one of a `sample`, one of them for each value
    unless `--every-release` asks for all. The plan itself of each sample is judged in each.
    """
    every = bool(metafunc.config.getoption(EVERY))
    if "calls" in metafunc.fixturenames:
        _calls(metafunc)
    elif hasattr(metafunc.function, "in_turn"):
        _in_turn(metafunc, *metafunc.function.in_turn, every)
    elif "sample" in metafunc.fixturenames:
        paths = dict.fromkeys(path for release in _judged(metafunc) for path in samples(release))
        _in_turn(metafunc, "sample", list(paths), every or metafunc.module.__name__.endswith("test_samples"))
    elif "release" in metafunc.fixturenames and not _chooses(metafunc):
        metafunc.parametrize("release", _judged(metafunc), indirect=True)


def _chooses(metafunc: pytest.Metafunc) -> bool:
    """Whether the test says itself which releases it is for."""
    return any("release" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
