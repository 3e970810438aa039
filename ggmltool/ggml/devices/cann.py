"""The CANN device (Ascend) of ggml 0.20.2: its ops and their conditions, and which ops it asks for."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import pinned
from ggmltool.ggml.devices.rule_parts import (
    F32_OR_F16,
    FLOATS,
    contiguous_rows,
    f32_sources,
    half_or_full,
    ops,
    optional,
    source,
    types,
    word,
    yes,
)
from ggmltool.ggml.dtypes import F16
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor, is_contiguous

ROW_PADDING = 512
"""MATRIX_ROW_PADDING: elements that rows of quantized tensors are padded to."""

_LONGEST_ROTATION = 896
_ZERO = (0, -(2**31))
"""The words of 0.0 and -0.0."""

_QUANTIZED = types("q8_0 q4_0")
_GET_ROWS_TYPES = FLOATS | types("q8_0")
_U = UnaryOp
_FUNCTIONS = frozenset(
    FIRST_UNARY_KEY + function
    for function in (
        _U.ABS, _U.NEG, _U.GELU, _U.SILU, _U.RELU, _U.SIGMOID, _U.HARDSIGMOID, _U.HARDSWISH, _U.GELU_QUICK, _U.TANH,
        _U.EXP, _U.ELU, _U.SGN, _U.STEP, _U.GELU_ERF, _U.SOFTPLUS,
    )
)  # fmt: skip


def _mul_mat(op: Tensor) -> str | None:
    a = source(op, 0)
    if a.type in (FLOATS if op.op == Op.MUL_MAT else F32_OR_F16):
        return None
    if a.type not in _QUANTIZED:
        return "source 0 is {type0}, which it cannot multiply"
    whole = is_contiguous(a) and is_contiguous(source(op, 1))
    return None if whole else "a source is not contiguous, and source 0 is {type0}"


def _get_rows(op: Tensor) -> str | None:
    return None if source(op, 0).type in _GET_ROWS_TYPES else "source 0 is {type0}, of which it takes no rows"


def _set_rows(op: Tensor) -> str | None:
    return None if op.type in FLOATS else "it writes no rows into {type}"


def _float(op: Tensor) -> str | None:
    return None if source(op, 0).type in FLOATS else "source 0 is {type0}"


def _copy(op: Tensor) -> str | None:
    return None if op.type in FLOATS and source(op, 0).type in FLOATS else "it copies no {type0} to {type}"


def _rope(op: Tensor) -> str | None:
    long = source(op, 0).ne[0] > _LONGEST_ROTATION
    return "it rotates heads of up to 896, and these have {ne0[0]}" if long else None


def _upscale(op: Tensor) -> str | None:
    a = source(op, 0)
    if a.ne[2] * op.ne[3] != a.ne[3] * op.ne[2]:
        return "channels and images are not scaled alike"
    return "it scales to the nearest only" if word(op, 0) else None


def _pool_2d(op: Tensor) -> str | None:
    fits = word(op, 5) <= _half(word(op, 1)) and word(op, 6) <= _half(word(op, 2))
    return None if fits else "the padding is more than half of the window"


def _half(n: int) -> int:
    """As C divides: towards zero."""
    return n // 2 if n >= 0 else -(-n // 2)


def _pad(op: Tensor) -> str | None:
    return "it pads with zeros, not in a circle" if word(op, 8) else None


def _scale(op: Tensor) -> str | None:
    return None if word(op, 1) in _ZERO else "it adds no bias"


def _soft_max(op: Tensor) -> str | None:
    return "it has no sinks" if optional(op, 2) is not None else None


def _flash_attn(op: Tensor) -> str | None:
    k, v = source(op, 1), source(op, 2)
    if k.type is not F16 or v.type is not F16:
        return "K is {type1} and V is {type2}, not both f16"
    if op.type not in FLOATS:
        return "the result is {type}"
    if optional(op, 4) is not None:
        return "it has no sinks"
    if k.ne[0] != v.ne[0]:
        return "heads of {ne1[0]} in K and {ne2[0]} in V"
    return None if word(op, 2) in _ZERO else "it has no softcap"


RULES: dict[int, OpRule] = {
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _float,
    Op.ROPE: _rope,
    Op.UPSCALE: _upscale,
    Op.POOL_2D: _pool_2d,
    Op.SUM: contiguous_rows(0),
    Op.PAD: _pad,
    Op.OUT_PROD: half_or_full,
    Op.SCALE: _scale,
    Op.SOFT_MAX: _soft_max,
    Op.FLASH_ATTN_EXT: _flash_attn,
    **dict.fromkeys(ops("CUMSUM TRI FILL DIAG SOLVE_TRI"), f32_sources(0)),
    **dict.fromkeys(
        ops(
            "UNARY GLU L2_NORM CROSS_ENTROPY_LOSS DUP IM2COL CONCAT REPEAT NORM ADD ADD1 SUB MUL DIV RMS_NORM SQR SQRT "
            "CLAMP DIAG_MASK_INF SUM_ROWS ARGSORT ACC SET GROUP_NORM ARANGE TIMESTEP_EMBEDDING LEAKY_RELU ARGMAX COS "
            "SIN LOG MEAN PAD_REFLECT_1D COUNT_EQUAL GATED_LINEAR_ATTN CONV_TRANSPOSE_1D SSM_CONV"
        ),
        yes,
    ),
}
"""All that CANN runs (ggml_backend_cann_supports_op), but for the 310P, which runs less."""

_GATES = frozenset(FIRST_GLU_KEY + function for function in GluOp if function != GluOp.SWIGLU_OAI)
KEYS: frozenset[int] = frozenset(int(op) for op in RULES) | _FUNCTIONS | _GATES
RULE_KEYS: frozenset[int] = frozenset(int(op) for op, rule in RULES.items() if rule is not yes)


def batch_size(op: Tensor) -> int:
    """The batch size CANN looks at before it asks for an op: columns, also of MUL_MAT_ID (-1: never for rows)."""
    return -1 if op.op == Op.GET_ROWS else op.ne[1]


EXTRA = (pinned("CANN_Host"),)
