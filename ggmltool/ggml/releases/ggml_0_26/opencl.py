"""The OpenCL device of ggml 0.26: more functions, scans of any state, and no large products by slow kernels.

From ggml 0.26.0, src/ggml-opencl/ggml-opencl.cpp: ggml_opencl_supports_op, use_adreno_kernels, of a GPU that is no
Adreno 7xx, with a compiler of today.
"""

from __future__ import annotations

from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.devices.op_rules import NO_KERNEL
from ggmltool.ggml.dtypes import I32, TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_21.rules import OPENCL_RULES as BEFORE

_WHOLE_WEIGHTS = r.types("q4_1 q5_0 q5_1 mxfp4 iq4_nl q4_K q5_K q6_K")
_PACKED = r.types("q4_K q5_K q6_K")
_TRANSPOSED = r.types("q4_1 iq4_nl") | _PACKED
_WITHOUT_BLOCKS = frozenset(t for t in TYPES.values() if t.block_size == 1 and not t.quantized)

_LARGE_PRODUCT = r.all_of(
    r.types_of(0, _TRANSPOSED),
    r.at_least(0, "ne0", 512),
    r.at_least(0, "ne1", 512),
    r.among(0, "ne2", 1),
    r.among(0, "ne3", 1),
    r.unless(r.not_types(0, _PACKED), r.multiple(0, "ne1", 64)),
)
"""Weights for whose products with many columns there is a kernel."""

RULES: dict[int, r.Rule] = BEFORE | r.by_op(
    {
        "SGN STEP ELU HARDSWISH HARDSIGMOID FLOOR CEIL ROUND TRUNC": r.f32_or_f16(0),
        "SSM_SCAN": r.all_of(
            r.f32(RESULT, 0, 1, 2, 3, 4, 5), r.types_of(6, I32), r.among(0, "ne0", *(1 << i for i in range(9)))
        ),
        "CONCAT": r.all_of(r.same_type(0, 1, RESULT), r.types_of(0, _WITHOUT_BLOCKS, NO_KERNEL)),
        "MUL_MAT": r.all_of(
            BEFORE[Op.MUL_MAT],
            r.saying(
                "it has no kernel for {ne1[1]} columns by {type0} of {ne0[0]} x {ne0[1]}",
                r.any_of(r.not_types(0, _WHOLE_WEIGHTS), r.at_most(1, "ne1", 511), _LARGE_PRODUCT),
            ),
        ),
    }
)
"""All that OpenCL runs."""
