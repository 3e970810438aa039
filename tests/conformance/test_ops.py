"""Calls of every constructor, family by family and set by set, against the real library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import NotComputable
from ggmltool.oracle.lib import Abort, Lib
from tests.conformance.ops import (
    arrange,
    attention,
    conv,
    copy,
    deepseek,
    elementwise,
    glu,
    later,
    limits,
    limits_matrix,
    limits_recurrent,
    matmul,
    norm,
    optimize,
    recurrent,
    reduce,
    rope,
    rows,
    softmax,
    unary,
    views,
    windows,
)
from tests.conformance.ops.sets import SETS
from tests.conformance.ops_case import Call, agree, check_tensor, check_values, compare, for_each, refuse

FAMILIES = (arrange, attention, conv, copy, deepseek, elementwise, glu, later, matmul, norm, optimize, recurrent,
            reduce, rope, rows, softmax, unary, views, windows)  # fmt: skip
"""Their calls: COMPUTED ones, those that are SHAPED only, and those that are REFUSED."""

COMPUTED: list[Call] = [c for f in FAMILIES for c in f.COMPUTED]
SHAPED: list[Call] = [c for f in FAMILIES for c in getattr(f, "SHAPED", ())]
REFUSED: list[Call] = [c for f in FAMILIES for c in getattr(f, "REFUSED", ())]
LIMITS: list[Call] = [*limits.CASES, *limits_matrix.CASES, *limits_recurrent.CASES]

test_the_tensor_is_ggmls = for_each(check_tensor)(COMPUTED + SHAPED)
test_the_values_are_ggmls = for_each(check_values)(COMPUTED)


def test_ggml_refuses_for_the_same_reason(calls: list[Call], lib: Lib) -> None:
    refuse(lib, calls)


test_ggml_refuses_for_the_same_reason.cases = REFUSED  # type: ignore[attr-defined]


def test_the_cpu_computes_or_refuses_as_ggml_does(calls: list[Call], lib: Lib) -> None:
    agree(lib, [(case, 1) for case in calls], at_the_limits)


test_the_cpu_computes_or_refuses_as_ggml_does.cases = LIMITS  # type: ignore[attr-defined]


def at_the_limits(case: Call, here: Any, there: Any) -> None:
    """As `compare`, where the engine may leave out what crashes, and types round in their own ways."""
    if isinstance(here, NotComputable):
        assert not isinstance(there, Abort) or (there.condition is None and "crashed" in there.text)
        return
    if case.fn in ("add1", "argsort") and isinstance(here, tuple):
        # ggml reads a number of any type as f32, and sorts equal elements as it likes.
        assert not isinstance(there, Abort)
        return
    quantized = isinstance(here, tuple) and TYPES[here[0]["type"]].quantized and case.fn != "cont"
    compare(replace(case, nmse=1e-4 if quantized else max(case.nmse, 1e-6)), here, there)


@pytest.mark.parametrize("op", SETS)
def test_a_set_of_calls_is_computed_or_refused_as_in_the_library(op: str, lib: Lib) -> None:
    agree(lib, [(case, seed) for seed, case in enumerate(SETS[op])])
