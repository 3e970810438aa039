"""How the tests of captures start llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.warm import warm

AS_USERS_DO = ("test_capture_errors",)
"""Modules whose tests start every process anew: they are about what becomes of it."""


@pytest.fixture(scope="module", autouse=True)
def _warm(request: pytest.FixtureRequest) -> Iterator[None]:
    """One process is forked for each call."""
    if request.module.__name__.rpartition(".")[2] in AS_USERS_DO:
        yield
        return
    with warm():
        yield
