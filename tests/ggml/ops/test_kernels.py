"""What kernels refuse and explain, and how they divide their work. Values are judged by the real library's
(`tests/conformance/ops`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.errors import GgmlAssert, GgmlError, NotComputable
from ggmltool.ggml.op import VIEW_OPS, Op
from ggmltool.ggml.ops.cpu import mathfn
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS
from ggmltool.ggml.ops.rope import MROPE
from ggmltool.ggml.releases.table import DEFAULT
from tests.conformance.ops_case import Call, Src, call, data_of, outcome_here


def computed(case: Call) -> Any:
    """The values of a call, or the error that it is refused with."""
    outcome = outcome_here(DEFAULT, case, data_of(None, case))  # type: ignore[arg-type]
    return outcome if isinstance(outcome, GgmlError) else outcome[1]


def test_erf_is_rounded_correctly() -> None:
    x = np.linspace(-5, 5, 1001, dtype=np.float32)
    assert mathfn.erf(np, x).tolist() == [float(np.float32(math.erf(v))) for v in x.tolist()]


def test_every_op_here_with_a_constructor_has_a_kernel() -> None:
    assert {c.op for c in CONSTRUCTORS.values()} - VIEW_OPS - {Op.FLASH_ATTN_BACK} <= KERNELS.keys()


KV = Src(ne=(1, 2, 1))


@pytest.mark.parametrize(
    ("case", "error", "words"),
    [
        (
            call("mul_mat_id", Src(ne=(1, 2, 3)), Src(ne=(1, 1, 1)), Src("i32", (1, 1), data=[3])),
            GgmlAssert,
            "expert 3",
        ),
        (
            call("flash_attn_ext", Src(ne=(1, 2, 1)), KV, KV, Src("f16", (2, 1)), scale=1.0),
            NotComputable,
            "mask is too small",
        ),
        (
            call("rope_ext", Src(ne=(8, 1, 1)), Src("i32", (4,), data="ints"), n_dims=8, mode=MROPE),
            GgmlAssert,
            "its sections",
        ),
    ],
    ids=str,
)
def test_what_values_and_parameters_cannot_be_computed_with_is_said(
    case: Call, error: type[GgmlError], words: str
) -> None:
    refused = computed(case)
    assert isinstance(refused, error)
    assert words in f"{refused.message} {refused.explanation}"


def test_pieces_of_weights_and_of_queries_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        call("mul_mat", Src(ne=(64, 50)), Src(ne=(64, 3))),
        call("flash_attn_ext", Src(ne=(8, 9, 4)), Src(ne=(8, 7, 2)), Src(ne=(8, 7, 2)), scale=0.5),
    ]
    whole = [computed(case) for case in cases]
    monkeypatch.setattr("ggmltool.ggml.ops.matmul.CHUNK", 64 * 7)
    monkeypatch.setattr("ggmltool.ggml.ops.attention.CHUNK", 30)
    for case, expected in zip(cases, whole, strict=True):
        np.testing.assert_allclose(computed(case), expected, rtol=1e-5, atol=1e-5)
