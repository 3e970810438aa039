"""These tests run the real libraries beside the engine: they need the extra `oracle`."""

from __future__ import annotations

from functools import partial

import pytest

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import Lib
from ggmltool.scenario.samples import sample_name
from tests.conformance.judged import Judging
from tests.conformance.judged import judged as judged_as
from tests.conformance.releases import JUDGED
from tests.conformance.samples import samples
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


PLANNING = ("test_compute", "test_corner_cases_sched", "test_fuzz", "test_printed", "test_samples", "test_sched_fields")
"""What the scheduler does in every release that is judged."""


def _judged(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """The releases that a test is for: the newest and the shared engine's alone, where ops and tables are concerned,
    of which a release has few of its own, unless `--every-release` asks for all.
    """
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in PLANNING or metafunc.config.getoption(EVERY):
        return JUDGED
    return tuple(name for name in JUDGED if name == JUDGED[0] or RELEASES[name].like is None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `release` gets those that are judged; one of a `sample`, all samples of each release."""
    if "sample" in metafunc.fixturenames:
        pairs = [(release, path) for release in _judged(metafunc) for path in samples(release)]
        ids = [f"{release}-{sample_name(path)}" for release, path in pairs]
        metafunc.parametrize(("release", "sample"), pairs, indirect=["release"], ids=ids)
    elif "release" in metafunc.fixturenames and not _chooses(metafunc):
        metafunc.parametrize("release", _judged(metafunc), indirect=True)


def _chooses(metafunc: pytest.Metafunc) -> bool:
    """Whether the test says itself which releases it is for."""
    return any("release" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
