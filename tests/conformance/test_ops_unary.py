"""The 22 unary functions against the real library."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.op import UnaryOp
from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import (
    Call,
    Src,
    both_values,
    call,
    check_abort,
    cut,
    permuted,
    same_tensor,
    same_values,
)

NAMES = [u.name.lower() for u in UnaryOp if u != UnaryOp.XIELU]
TWINS = [n for n in NAMES if n not in ("hardswish", "hardsigmoid")]
SOURCES = [
    Src(ne=(33, 6)),
    Src(ne=(129, 3), data="wide"),
    Src(ne=(48,), data="special"),
    Src("f16", (33, 6), data="wide"),
    Src("bf16", (33, 6)),
    permuted("f32", (8, 4, 6, 2), (0, 2, 1, 3)),
    cut("f32", (8, 3, 2), (16, 6, 4), 64),
]
NO_BF16 = ("gelu", "gelu_erf", "gelu_quick", "silu")
"""Functions the library's CPU backend has no bf16 kernel for."""

CALLS = [call(name, s) for name in NAMES for s in SOURCES]
CALLS += [call(name, s, inplace=True) for name in TWINS for s in SOURCES[:1] + SOURCES[-1:]]
CALLS += [call("unary", Src(), int(u), inplace=i) for u in UnaryOp for i in (False, True)]
XIELU = [
    call("xielu", s, *params)
    for s in (*SOURCES, permuted("f32", (8, 6), (1, 0, 2, 3)))
    for params in ((0.8, 0.8, 0.5, -1e-6), (4.0, 20.0, 0.5, 0.0), (-3.0, 20.5, 0.25, -0.1))
]
XIELU += [
    call("xielu", s, *params)
    for s in (
        *(Src(t, ne, data="wide") for t in ("f32", "f16", "bf16") for ne in ((1,), (256, 2, 3, 2), (7, 5, 3))),
        *(Src(t, (48,), data="special") for t in ("f16", "bf16")),
    )
    for params in ((0.8, 0.8, 0.5, -1e-6), (0.0, 0.0, 0.0, 0.0), (19.9, -30.0, 2.0, 0.5))
]

test_the_tensor_is_ggmls = same_tensor(CALLS + XIELU)


@pytest.mark.parametrize("name", [*NAMES, "unary"])
def test_rows_with_gaps_between_elements_are_refused(name: str, lib: Lib) -> None:
    more = (3,) if name == "unary" else ()
    check_abort(lib, call(name, permuted("f32", (8, 3), (1, 0, 2, 3)), *more))


def computable(case: Call) -> bool:
    a = case.sources[0]
    assert a is not None
    if case.fn == "xielu":
        return not a.is_view
    return case.fn != "unary" and not (case.fn in NO_BF16 and a.type == "bf16")


test_the_values_are_ggmls = same_values([c for c in CALLS + XIELU if computable(c)])


@pytest.mark.parametrize("name", ["gelu", "gelu_quick"])
def test_the_table_of_every_half_is_ggmls(name: str, lib: Lib) -> None:
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    got, expected = both_values(lib, call(name, Src("f16", (1 << 16,), data=halves)))
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    assert np.count_nonzero(~same) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_wide_range_of_numbers_agrees_closely(name: str, lib: Lib) -> None:
    got, expected = both_values(lib, call(name, Src(ne=(40001,), data=np.linspace(-20, 20, 40001))))
    assert np.allclose(got, expected, rtol=2e-6, atol=1e-7)
