"""The OpenCL device, such as Adreno: its ops and their conditions, and what its tensors take.

From ggml 0.20.2, src/ggml-opencl/ggml-opencl.cpp: ggml_opencl_supports_op,
ggml_backend_opencl_buffer_type_get_alloc_size.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, source, word
from ggmltool.ggml.devices.profile import Profile, SizeFacts
from ggmltool.ggml.devices.unsupported import asserts
from ggmltool.ggml.dtypes import F16, F32, I32
from ggmltool.ggml.tensor import Tensor

_WORKGROUP = 1024
_GAPS = 4
"""Gaps between the parts that a quantized tensor is taken apart into."""

_COPIES = {F32: r.F32_OR_F16, F16: r.F32_OR_F16, I32: r.types("i32")}
_HALF = r.types("f16 bf16")
_ANY_WEIGHTS = r.types("f32 q1_0 q4_0 q8_0")
_WHOLE_WEIGHTS = r.types("q4_1 q5_0 q5_1 mxfp4 iq4_nl q4_K q5_K q6_K")
_KV_TYPES = r.types("f16 f32 q4_0 q8_0")

_HEADS = r.all_of(
    r.among(0, "ne0", 40, 64, 80, 96, 112, 128, 192, 256, 512),
    r.any_of(o.same_ne(0, 0, 2), r.all_of(r.among(0, "ne0", 192), r.among(2, "ne0", 128))),
)
_HALF_ATTENTION = r.all_of(r.types_of((0, 1, 2, RESULT), F16), r.at_most(0, "ne0", 511))
_FULL_ATTENTION = r.all_of(
    r.f32(0, RESULT),
    r.types_of((1, 2), _KV_TYPES, o.NO_KERNEL),
    r.any_of(
        r.not_types(1, r.QUANTIZED),
        r.not_types(2, r.QUANTIZED),
        r.holds("K and V are {type1} and {type2}", lambda op: source(op, 1).type is not source(op, 2).type),
        r.multiple((0, 2), "ne0", 32),
    ),
    r.any_of(
        r.at_most(0, "ne0", 511),
        r.all_of(
            r.types_of((1, 2), F16),
            r.saying("one row with heads of 512 is faster on the CPU", r.at_least(0, "ne1", 2)),
        ),
    ),
)


def _scales_plainly(op: Tensor) -> bool:
    mode = word(op, 0)
    return not mode & 512 and mode & 255 <= 1


RULES: dict[int, r.Rule] = r.by_op(
    {
        "GET_ROWS": r.f32_or_f16(0),
        "SET_ROWS": r.all_of(o.writes_rows({F32: r.types("f16 f32 q8_0 q4_0")}), o.ROW_NUMBERS),
        "CPY DUP CONT": o.copies(_COPIES),
        "SET": r.all_of(r.types_of(RESULT, (F32, I32)), r.same_type(RESULT, 0, 1)),
        "SCALE SOLVE_TRI SUM_ROWS CUMSUM": r.all_of(r.f32(0), r.contiguous(0)),
        "MUL DIV SUB": r.all_of(r.f32_or_f16(RESULT), r.same_type(RESULT, 0, 1)),
        "ADD": r.all_of(
            r.f32_or_f16(RESULT),
            r.any_of(r.same_type(RESULT, 0, 1), r.all_of(r.types_of(RESULT, F16), r.f32_or_f16(0, 1))),
        ),
        "ADD_ID CLAMP MEAN": r.f32(0),
        "SQR SQRT": r.all_of(r.f32_or_f16(0), r.contiguous(0)),
        "GELU SILU RELU GELU_ERF GELU_QUICK": r.all_of(r.f32(0), r.contiguous(0)),
        "TANH NEG EXP EXPM1": r.f32(0),
        "ABS SOFTPLUS": r.f32_or_f16(0),
        "SIGMOID": r.contiguous(0),
        "GLU": r.all_of(r.contiguous(0, kind="from 1"), r.f32_or_f16(RESULT)),
        "TRI FILL": r.all_of(r.f32(RESULT), r.contiguous(RESULT)),
        "RMS_NORM": r.all_of(r.multiple(RESULT, "ne0", 4), r.contiguous_rows(0)),
        "L2_NORM": r.contiguous_rows(0),
        "REPEAT TIMESTEP_EMBEDDING": r.f32(0, RESULT),
        "PAD": r.all_of(o.PADS_WITH_ZEROS, r.f32(0, RESULT)),
        "UPSCALE": r.all_of(
            r.holds("it scales to the nearest or bilinear, without smoothing", _scales_plainly), r.f32(0, RESULT)
        ),
        "CONV_2D": r.any_of(r.types_of((0, 1, RESULT), F16), r.all_of(r.f32(1, RESULT), r.f32_or_f16(0))),
        "SSM_CONV CONCAT": r.f32(0, 1, RESULT),
        "GATED_DELTA_NET": r.all_of(r.f32(0, RESULT), r.among(2, "ne0", 16, 32, 64, 128)),
        "GROUP_NORM": r.contiguous(0),
        "MUL_MAT": r.all_of(
            o.multiplies_by(
                dict.fromkeys(_HALF, r.ALL_TYPES) | dict.fromkeys(_ANY_WEIGHTS | _WHOLE_WEIGHTS, r.types("f32"))
            ),
            r.unless(r.types_of(0, _HALF | _ANY_WEIGHTS), r.contiguous(0, 1)),
        ),
        "MUL_MAT_ID": r.all_of(o.multiplies(r.types("q4_0 q8_0 mxfp4")), r.f32(1), r.contiguous(0, 1)),
        "DIAG_MASK_INF": r.among(RESULT, "ne3", 1),
        "ROPE": r.unless(r.holds("it rotates several sections", lambda op: not word(op, 2) & 8), r.f32_or_f16(0)),
        "ARGSORT": r.all_of(
            r.f32(0),
            r.saying("it sorts rows of up to 1024, and these have {ne[0]}", r.at_most(RESULT, "ne0", _WORKGROUP)),
        ),
        "FLASH_ATTN_EXT": r.all_of(_HEADS, r.any_of(_HALF_ATTENTION, _FULL_ATTENTION)),
        "SOFT_MAX NORM DIAG IM2COL": r.ALWAYS,
    }
)
"""All that OpenCL runs."""


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_opencl_buffer_type_get_alloc_size: quantized tensors are taken apart into aligned parts."""
    more = _GAPS * memory.alignment

    def size_of(t: Tensor) -> int:
        return t.nbytes + more if t.type.quantized else t.nbytes

    return size_of


PROFILE = Profile(
    "OpenCL",
    others=False,
    rules=RULES,
    alloc_size=alloc_size,
    alloc_more="room for the gaps between the parts of a quantized tensor",
    unsupported=asserts("ggml_backend_opencl_graph_compute", "error: "),
)
