"""The BLAS device: matrix products large enough to be worth it, on host memory.

From ggml 0.20.2, src/ggml-blas/ggml-blas.cpp: ggml_backend_blas_device_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.devices.combinators import (
    Rule,
    all_of,
    any_of,
    at_least,
    by_op,
    contiguous,
    f32,
    holds,
    not_types,
    on,
    present,
    saying,
)
from ggmltool.ggml.devices.conditions import RESULT, word
from ggmltool.ggml.devices.op_rules import matrix
from ggmltool.ggml.dtypes import F32, NO_TO_FLOAT
from ggmltool.ggml.tensor import is_transposed

MIN_BATCH = 32
_HINT_HADAMARD = 1

LARGE_PRODUCT = all_of(
    present(0, 1),
    contiguous(0, 1),
    f32(1),
    *(
        saying("too small to be worth it: {why}", rule)
        for rule in (
            at_least(RESULT, "ne0", MIN_BATCH),
            at_least(RESULT, "ne1", MIN_BATCH),
            at_least(1, "ne0", MIN_BATCH),
        )
    ),
    not_types(0, NO_TO_FLOAT - {F32}, "which has no conversion to f32"),
)
"""A product of operands that BLAS takes, and large enough."""

RULES: dict[int, Rule] = by_op(
    {
        "MUL_MAT": all_of(
            holds(
                "source 0 is a Hadamard matrix, which the CPU multiplies faster",
                lambda op: word(op, 1) != _HINT_HADAMARD,
            ),
            LARGE_PRODUCT,
        ),
        "OUT_PROD": all_of(
            present(0, 1),
            f32(0, 1),
            matrix(0, 1),
            contiguous(0),
            any_of(on(1, "source 1 is neither contiguous nor transposed", is_transposed), contiguous(1)),
        ),
    }
)
"""All that BLAS runs."""
