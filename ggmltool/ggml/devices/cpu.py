"""The CPU device, built without extra buffer types: its ops and their conditions.

From ggml 0.20.2, src/ggml-cpu/ggml-cpu.cpp: ggml_backend_cpu_device_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.devices.combinators import (
    QUANTIZED,
    Rule,
    all_of,
    among,
    any_of,
    by_op,
    contiguous,
    f32,
    f32_or_f16,
    not_types,
    param,
    present,
    type_pairs,
    types,
    types_of,
)
from ggmltool.ggml.devices.op_rules import NO_ALIBI, same_ne
from ggmltool.ggml.devices.operands import RESULT
from ggmltool.ggml.dtypes import F16, F32, TYPES

CAN_WRITE = not_types(
    RESULT, types("iq3_xxs iq3_s iq2_xxs iq2_xs iq2_s iq1_s iq1_m"), "to which it has no conversion from f32"
)

MUL_MAT = type_pairs(
    0,
    1,
    {type: frozenset((F32, TYPES[type.vec_dot_type or "f32"])) for type in TYPES.values()},
    "it multiplies {type0} by f32 or by the type that it converts f32 to, not by {type1}",
)

SOFT_MAX_BACK = all_of(f32(0, 1), NO_ALIBI)

OUT_PROD = all_of(
    present(0, 1),
    f32(1, RESULT),
    any_of(f32(0), all_of(types_of(0, QUANTIZED | {F16}), same_ne(2, 0, 1), same_ne(3, 0, 1))),
)

RULES: dict[int, Rule] = by_op(
    {
        "CPY SET_ROWS": CAN_WRITE,
        "MUL_MAT": MUL_MAT,
        "SOFT_MAX_BACK": SOFT_MAX_BACK,
        "IM2COL_BACK": all_of(f32(0), f32_or_f16(1)),
        "GET_ROWS_BACK": f32_or_f16(0),
        "OUT_PROD": OUT_PROD,
        "CONV_2D": contiguous(0),
        "SSM_SCAN": any_of(param(0, (1,), "it keeps several states"), among(3, "ne0", 1)),
    }
)
"""The ops it runs only under a condition; it runs all others."""
