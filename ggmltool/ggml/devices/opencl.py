"""The OpenCL device, such as Adreno: its ops and their conditions, and what its tensors take.

From ggml 0.20.2, src/ggml-opencl/ggml-opencl.cpp: ggml_opencl_supports_op,
ggml_backend_opencl_buffer_type_get_alloc_size.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices.combinators import (
    ALL_TYPES,
    ALWAYS,
    F32_OR_F16,
    QUANTIZED,
    Rule,
    all_of,
    among,
    any_of,
    at_least,
    at_most,
    by_op,
    contiguous,
    contiguous_rows,
    f32,
    f32_or_f16,
    holds,
    multiple,
    not_types,
    same_type,
    saying,
    types,
    types_of,
    unless,
)
from ggmltool.ggml.devices.conditions import RESULT, source, word
from ggmltool.ggml.devices.op_rules import (
    NO_KERNEL,
    PADS_WITH_ZEROS,
    ROW_NUMBERS,
    copies,
    multiplies,
    multiplies_by,
    same_ne,
    writes_rows,
)
from ggmltool.ggml.devices.profile import SizeFacts
from ggmltool.ggml.dtypes import F16, F32, I32
from ggmltool.ggml.tensor import Tensor

_WORKGROUP = 1024
_GAPS = 4
"""Gaps between the parts that a quantized tensor is taken apart into."""

_COPIES = {F32: F32_OR_F16, F16: F32_OR_F16, I32: types("i32")}
_HALF = types("f16 bf16")
_ANY_WEIGHTS = types("f32 q1_0 q4_0 q8_0")
_WHOLE_WEIGHTS = types("q4_1 q5_0 q5_1 mxfp4 iq4_nl q4_K q5_K q6_K")
_KV_TYPES = types("f16 f32 q4_0 q8_0")

_HEADS = all_of(
    among(0, "ne0", 40, 64, 80, 96, 112, 128, 192, 256, 512),
    any_of(same_ne(0, 0, 2), all_of(among(0, "ne0", 192), among(2, "ne0", 128))),
)
_HALF_ATTENTION = all_of(types_of((0, 1, 2, RESULT), F16), at_most(0, "ne0", 511))
_FULL_ATTENTION = all_of(
    f32(0, RESULT),
    types_of((1, 2), _KV_TYPES, NO_KERNEL),
    any_of(
        not_types(1, QUANTIZED),
        not_types(2, QUANTIZED),
        holds("K and V are {type1} and {type2}", lambda op: source(op, 1).type is not source(op, 2).type),
        multiple((0, 2), "ne0", 32),
    ),
    any_of(
        at_most(0, "ne0", 511),
        all_of(
            types_of((1, 2), F16),
            saying("one row with heads of 512 is faster on the CPU", at_least(0, "ne1", 2)),
        ),
    ),
)


def _scales_plainly(op: Tensor) -> bool:
    mode = word(op, 0)
    return not mode & 512 and mode & 255 <= 1


RULES: dict[int, Rule] = by_op(
    {
        "GET_ROWS": f32_or_f16(0),
        "SET_ROWS": all_of(writes_rows({F32: types("f16 f32 q8_0 q4_0")}), ROW_NUMBERS),
        "CPY DUP CONT": copies(_COPIES),
        "SET": all_of(types_of(RESULT, (F32, I32)), same_type(RESULT, 0, 1)),
        "SCALE SOLVE_TRI SUM_ROWS CUMSUM": all_of(f32(0), contiguous(0)),
        "MUL DIV SUB": all_of(f32_or_f16(RESULT), same_type(RESULT, 0, 1)),
        "ADD": all_of(
            f32_or_f16(RESULT), any_of(same_type(RESULT, 0, 1), all_of(types_of(RESULT, F16), f32_or_f16(0, 1)))
        ),
        "ADD_ID CLAMP MEAN": f32(0),
        "SQR SQRT": all_of(f32_or_f16(0), contiguous(0)),
        "GELU SILU RELU GELU_ERF GELU_QUICK": all_of(f32(0), contiguous(0)),
        "TANH NEG EXP EXPM1": f32(0),
        "ABS SOFTPLUS": f32_or_f16(0),
        "SIGMOID": contiguous(0),
        "GLU": all_of(contiguous(0, kind="from 1"), f32_or_f16(RESULT)),
        "TRI FILL": all_of(f32(RESULT), contiguous(RESULT)),
        "RMS_NORM": all_of(multiple(RESULT, "ne0", 4), contiguous_rows(0)),
        "L2_NORM": contiguous_rows(0),
        "REPEAT TIMESTEP_EMBEDDING": f32(0, RESULT),
        "PAD": all_of(PADS_WITH_ZEROS, f32(0, RESULT)),
        "UPSCALE": all_of(
            holds("it scales to the nearest or bilinear, without smoothing", _scales_plainly), f32(0, RESULT)
        ),
        "CONV_2D": any_of(types_of((0, 1, RESULT), F16), all_of(f32(1, RESULT), f32_or_f16(0))),
        "SSM_CONV CONCAT": f32(0, 1, RESULT),
        "GATED_DELTA_NET": all_of(f32(0, RESULT), among(2, "ne0", 16, 32, 64, 128)),
        "GROUP_NORM": contiguous(0),
        "MUL_MAT": all_of(
            multiplies_by(dict.fromkeys(_HALF, ALL_TYPES) | dict.fromkeys(_ANY_WEIGHTS | _WHOLE_WEIGHTS, types("f32"))),
            unless(types_of(0, _HALF | _ANY_WEIGHTS), contiguous(0, 1)),
        ),
        "MUL_MAT_ID": all_of(multiplies(types("q4_0 q8_0 mxfp4")), f32(1), contiguous(0, 1)),
        "DIAG_MASK_INF": among(RESULT, "ne3", 1),
        "ROPE": unless(holds("it rotates several sections", lambda op: not word(op, 2) & 8), f32_or_f16(0)),
        "ARGSORT": all_of(
            f32(0), saying("it sorts rows of up to 1024, and these have {ne[0]}", at_most(RESULT, "ne0", _WORKGROUP))
        ),
        "FLASH_ATTN_EXT": all_of(_HEADS, any_of(_HALF_ATTENTION, _FULL_ATTENTION)),
        "SOFT_MAX NORM DIAG IM2COL": ALWAYS,
    }
)
"""All that OpenCL runs."""


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_opencl_buffer_type_get_alloc_size: quantized tensors are taken apart into aligned parts."""
    more = _GAPS * memory.alignment

    def size_of(t: Tensor) -> int:
        return t.nbytes + more if t.type.quantized else t.nbytes

    return size_of
