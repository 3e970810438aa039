"""What `ggmltool ops` says of checked calls is what the tests go through."""

from __future__ import annotations

import pytest

from ggmltool.ask.ops.record import CHECKED, op_facts
from ggmltool.data import load
from ggmltool.ggml.op import VIEW_OPS, Op
from ggmltool.ggml.releases.table import RELEASES
from tests.conformance.checked import counts
from tests.conformance.recorded import differences


def test_the_numbers_are_those_of_the_tables() -> None:
    assert counts() == load(CHECKED, dict[str, int]), "run python -m tests.conformance.checked"


def test_every_op_and_function_that_computes_is_checked() -> None:
    nothing = {"none", "flash_attn_back", *(op.name.lower() for op in VIEW_OPS)}
    assert {f.name.lower() for f in op_facts() if f.cases == 0} == nothing
    assert Op.FLASH_ATTN_BACK.name.lower() in nothing


OTHERS = [r.name for r in RELEASES.values() if r.library is None and r.reserves]


def test_recorded_devices_do_what_those_did_that_were_asked(release: str) -> None:
    assert list(differences(range(25), release, with_library=True)) == []


@pytest.mark.parametrize("other", OTHERS)
def test_recorded_devices_do_so_in_releases_without_a_library(other: str) -> None:
    assert list(differences(range(25), other)) == []
