"""Random scenarios whose devices answer as recorded: the same plans, loaded again too, and in the real library."""

from __future__ import annotations

import pytest

from ggmltool.ggml.releases.table import RELEASES
from tests.conformance.recorded import differences

OTHERS = [r.name for r in RELEASES.values() if r.library is None and r.reserves]


def test_recorded_devices_do_what_those_did_that_were_asked(release: str) -> None:
    assert list(differences(range(25), release, with_library=True)) == []


@pytest.mark.parametrize("other", OTHERS)
def test_recorded_devices_do_so_in_releases_without_a_library(other: str) -> None:
    assert list(differences(range(25), other)) == []
