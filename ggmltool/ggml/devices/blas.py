"""The BLAS device: matrix products large enough to be worth it, on host memory.

From ggml 0.20.2, src/ggml-blas/ggml-blas.cpp: ggml_backend_blas_device_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, word
from ggmltool.ggml.devices.op_rules import matrix
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.unsupported import aborts
from ggmltool.ggml.dtypes import F32, NO_TO_FLOAT
from ggmltool.ggml.tensor import is_transposed

MIN_BATCH = 32
_HINT_HADAMARD = 1

LARGE_PRODUCT = r.all_of(
    r.present(0, 1),
    r.contiguous(0, 1),
    r.f32(1),
    *(
        r.saying("too small to be worth it: {why}", rule)
        for rule in (
            r.at_least(RESULT, "ne0", MIN_BATCH),
            r.at_least(RESULT, "ne1", MIN_BATCH),
            r.at_least(1, "ne0", MIN_BATCH),
        )
    ),
    r.not_types(0, NO_TO_FLOAT - {F32}, "which has no conversion to f32"),
)
"""A product of operands that BLAS takes, and large enough."""

RULES: dict[int, r.Rule] = r.by_op(
    {
        "MUL_MAT": r.all_of(
            r.holds(
                "source 0 is a Hadamard matrix, which the CPU multiplies faster",
                lambda op: word(op, 1) != _HINT_HADAMARD,
            ),
            LARGE_PRODUCT,
        ),
        "OUT_PROD": r.all_of(
            r.present(0, 1),
            r.f32(0, 1),
            matrix(0, 1),
            r.contiguous(0),
            r.any_of(r.on(1, "source 1 is neither contiguous nor transposed", is_transposed), r.contiguous(1)),
        ),
    }
)
"""All that BLAS runs."""

PROFILE = Profile(
    "BLAS",
    type="accel",
    buft="CPU",
    any_host=True,
    others=False,
    rules=RULES,
    caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
    unsupported=aborts("ggml_backend_blas_graph_compute"),
)
