"""The OpenCL device of ggml 0.26: more functions, scans of any state, and no large products by slow kernels.

From ggml 0.26.0, src/ggml-opencl/ggml-opencl.cpp: ggml_opencl_supports_op, use_adreno_kernels, of a GPU that is no
Adreno 7xx, with a compiler of today.
"""

from __future__ import annotations

from ggmltool.ggml.devices.combinators import (
    Rule,
    all_of,
    among,
    any_of,
    at_least,
    at_most,
    by_op,
    f32,
    f32_or_f16,
    multiple,
    not_types,
    same_type,
    saying,
    types,
    types_of,
    unless,
)
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.devices.op_rules import NO_KERNEL
from ggmltool.ggml.dtypes import I32, TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_21.rules import OPENCL_RULES as BEFORE

_WHOLE_WEIGHTS = types("q4_1 q5_0 q5_1 mxfp4 iq4_nl q4_K q5_K q6_K")
_PACKED = types("q4_K q5_K q6_K")
_TRANSPOSED = types("q4_1 iq4_nl") | _PACKED
_WITHOUT_BLOCKS = frozenset(t for t in TYPES.values() if t.block_size == 1 and not t.quantized)

_LARGE_PRODUCT = all_of(
    types_of(0, _TRANSPOSED),
    at_least(0, "ne0", 512),
    at_least(0, "ne1", 512),
    among(0, "ne2", 1),
    among(0, "ne3", 1),
    unless(not_types(0, _PACKED), multiple(0, "ne1", 64)),
)
"""Weights for whose products with many columns there is a kernel."""

RULES: dict[int, Rule] = BEFORE | by_op(
    {
        "SGN STEP ELU HARDSWISH HARDSIGMOID FLOOR CEIL ROUND TRUNC": f32_or_f16(0),
        "SSM_SCAN": all_of(
            f32(RESULT, 0, 1, 2, 3, 4, 5), types_of(6, I32), among(0, "ne0", *(1 << i for i in range(9)))
        ),
        "CONCAT": all_of(same_type(0, 1, RESULT), types_of(0, _WITHOUT_BLOCKS, NO_KERNEL)),
        "MUL_MAT": all_of(
            BEFORE[Op.MUL_MAT],
            saying(
                "it has no kernel for {ne1[1]} columns by {type0} of {ne0[0]} x {ne0[1]}",
                any_of(not_types(0, _WHOLE_WEIGHTS), at_most(1, "ne1", 511), _LARGE_PRODUCT),
            ),
        ),
    }
)
"""All that OpenCL runs."""
