"""The Metal device of ggml in March 2025: what it ran on Apple's GPUs (M1 and later), and under which conditions.

From ggml ffed2f04, src/ggml-metal/ggml-metal.m: ggml_metal_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.combinators import (
    ALWAYS,
    Rule,
    all_of,
    among,
    by_op,
    contiguous,
    f32,
    holds,
    multiple,
    not_types,
    same_type,
    types,
    types_of,
    unless,
)
from ggmltool.ggml.devices.extra import ExtraBuft
from ggmltool.ggml.devices.metal import FAMILY
from ggmltool.ggml.devices.op_rules import copies
from ggmltool.ggml.devices.operands import RESULT, word
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import BF16, F16, F32, I32

FEATURES = ("bfloat",)
"""What a build may have: GGML_METAL_USE_BF16, on a GPU that knows the type."""

_MROPE = 8


def no_bfloat(_: BufferType, hardware: Hardware) -> OpRule | None:
    """A build without bfloat runs nothing, not even a view, that has a bf16 source among the first three."""
    return None if "bfloat" in hardware.features else not_types((0, 1, 2), BF16, "and the build has no bfloat").ask


_TO_FLOAT = types("f32 f16")
_COPIES = {
    F32: types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl"),
    F16: _TO_FLOAT,
    BF16: types("f32 bf16"),
} | dict.fromkeys(types("q4_0 q4_1 q5_0 q5_1 q8_0"), _TO_FLOAT)

RULES: dict[int, Rule] = by_op(
    {
        "TANH RELU SIGMOID GELU GELU_QUICK SILU ELU SQR SQRT SIN COS": all_of(contiguous(0), f32(0)),
        "ADD SUB MUL DIV CLAMP POOL_2D UPSCALE PAD PAD_REFLECT_1D TIMESTEP_EMBEDDING ARGSORT LEAKY_RELU": f32(0),
        "SUM_ROWS SOFT_MAX GROUP_NORM": contiguous(0),
        "RMS_NORM NORM": all_of(multiple(RESULT, "ne0", 4), contiguous(0, kind="from 1")),
        "ROPE": holds("it has no rope of several sections", lambda op: not word(op, 2) & _MROPE),
        "IM2COL": types_of(0, F16),
        "FLASH_ATTN_EXT": same_type(1, 2),
        "MUL_MAT MUL_MAT_ID": unless(not_types(0, F32), f32(1)),
        "CPY DUP CONT": copies(_COPIES),
        "SET": types_of(0, (F32, I32)),
        "DIAG_MASK_INF GET_ROWS": among(RESULT, "ne3", 1),
        "CONCAT ACC REPEAT SCALE CONV_TRANSPOSE_1D ARGMAX ARANGE SSM_CONV SSM_SCAN": ALWAYS,
    }
)
"""All that it ran."""

EXTRA = (ExtraBuft("Metal_Mapped", FAMILY, alignment=None, max_size=None, host=True),)
"""Memory of the host that the GPU uses where it is."""
