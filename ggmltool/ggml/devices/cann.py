"""The CANN device (Ascend) but for the 310P, which runs less: its ops and their conditions, and which ops it offloads.

From ggml 0.20.2, src/ggml-cann/ggml-cann.cpp: ggml_backend_cann_supports_op, ggml_backend_cann_offload_op.
"""

from __future__ import annotations

from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, source, word
from ggmltool.ggml.devices.op_rules import NO_SOFTCAP, PADS_WITH_ZEROS, ZERO, multiplies, same_ne, takes_rows_of
from ggmltool.ggml.devices.profile import MATRIX_ROW_PADDING, Profile, pinned
from ggmltool.ggml.devices.unsupported import asserts
from ggmltool.ggml.dtypes import F16, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor

_LONGEST_ROTATION = 896
_QUANTIZED = r.types("q8_0 q4_0")


def _product(plain: frozenset[DType]) -> r.Rule:
    """MUL_MAT or MUL_MAT_ID; weights that are not plain have to be contiguous."""
    return r.all_of(multiplies(plain | _QUANTIZED), r.unless(r.types_of(0, plain), r.contiguous(0, 1)))


def _no_sinks(slot: int) -> r.Rule:
    return r.saying("it has no sinks", r.absent(slot))


def _scales_alike(op: Tensor) -> bool:
    a = source(op, 0)
    return a.ne[2] * op.ne[3] == a.ne[3] * op.ne[2]


def _pads_half_a_window(op: Tensor) -> bool:
    return word(op, 5) <= _half(word(op, 1)) and word(op, 6) <= _half(word(op, 2))


def _half(n: int) -> int:
    """As C divides: towards zero."""
    return n // 2 if n >= 0 else -(-n // 2)


RULES: dict[int, r.Rule] = r.by_op(
    {
        "MUL_MAT": _product(r.FLOATS),
        "MUL_MAT_ID": _product(r.F32_OR_F16),
        "GET_ROWS": takes_rows_of(r.FLOATS | r.types("q8_0")),
        "SET_ROWS": r.floats(RESULT),
        "CPY": r.floats(0, RESULT),
        "CONT": r.floats(0),
        "ROPE": r.saying(
            "it rotates heads of up to 896, and these have {ne0[0]}", r.at_most(0, "ne0", _LONGEST_ROTATION)
        ),
        "UPSCALE": r.all_of(
            r.holds("channels and images are not scaled alike", _scales_alike),
            r.param(0, (0,), "it scales to the nearest only"),
        ),
        "POOL_2D": r.holds("the padding is more than half of the window", _pads_half_a_window),
        "SUM": r.contiguous_rows(0),
        "PAD": PADS_WITH_ZEROS,
        "OUT_PROD": r.f32_or_f16(0),
        "SCALE": r.param(1, ZERO, "it adds no bias"),
        "SOFT_MAX": _no_sinks(2),
        "FLASH_ATTN_EXT": r.all_of(
            r.types_of((1, 2), F16),
            r.floats(RESULT),
            _no_sinks(4),
            same_ne(0, 1, 2),
            NO_SOFTCAP,
        ),
        "CUMSUM TRI FILL DIAG SOLVE_TRI": r.f32(0),
        "ABS NEG GELU SILU RELU SIGMOID HARDSIGMOID HARDSWISH GELU_QUICK TANH EXP ELU SGN STEP GELU_ERF SOFTPLUS "
        "GLU L2_NORM CROSS_ENTROPY_LOSS DUP IM2COL CONCAT REPEAT NORM ADD ADD1 SUB MUL DIV RMS_NORM SQR SQRT "
        "CLAMP DIAG_MASK_INF SUM_ROWS ARGSORT ACC SET GROUP_NORM ARANGE TIMESTEP_EMBEDDING LEAKY_RELU ARGMAX COS "
        "SIN LOG MEAN PAD_REFLECT_1D COUNT_EQUAL GATED_LINEAR_ATTN CONV_TRANSPOSE_1D SSM_CONV": r.ALWAYS,
        "SWIGLU_OAI": r.NEVER,
    }
)
"""All that CANN runs."""


def batch_size(op: Tensor) -> int:
    """The batch size by which CANN offloads an op: columns, also of MUL_MAT_ID (-1: GET_ROWS is never offloaded)."""
    return -1 if op.op == Op.GET_ROWS else op.ne[1]


PROFILE = Profile(
    "CANN",
    row_padding=MATRIX_ROW_PADDING,
    others=False,
    rules=RULES,
    offload_min_batch=32,
    batch_size=batch_size,
    events=True,
    copies_async=True,
    extra=(pinned("CANN_Host"),),
    caps=frozenset(("host_buffer", "mmap_support")),
    unsupported=asserts("evaluate_and_capture_cann_graph"),
)
