"""What `ggmltool ops` says of checked calls is what the tests go through."""

from __future__ import annotations

from ggmltool.ask.ops.record import CHECKED, op_facts
from ggmltool.data import load
from ggmltool.ggml.op import VIEW_OPS, Op
from tests.conformance.checked import counts


def test_the_numbers_are_those_of_the_tables() -> None:
    assert counts() == load(CHECKED, dict[str, int]), "run python -m tests.conformance.checked"


def test_every_op_and_function_that_computes_is_checked() -> None:
    nothing = {"none", "flash_attn_back", *(op.name.lower() for op in VIEW_OPS)}
    assert {f.name.lower() for f in op_facts() if f.cases == 0} == nothing
    assert Op.FLASH_ATTN_BACK.name.lower() in nothing
