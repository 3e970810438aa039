"""The CPU device of ggml 0.20.2, built without extra buffer types: its ops and their conditions."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.dtypes import F16, F32, TYPES, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous

_NO_FROM_FLOAT = frozenset(TYPES[name] for name in ("iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m"))


def _type(op: Tensor, i: int) -> DType | None:
    src = op.src[i] if i < len(op.src) else None
    return src.type if src is not None else None


def _word(op: Tensor, i: int) -> int:
    return op.op_params[i] if i < len(op.op_params) else 0


def _can_write(op: Tensor) -> bool:
    return op.type not in _NO_FROM_FLOAT


def _mul_mat(op: Tensor) -> bool:
    a, b = _type(op, 0), _type(op, 1)
    if b is F32:
        return True
    return a is not None and b is TYPES[a.vec_dot_type or "f32"]


def _soft_max_back(op: Tensor) -> bool:
    # -0.0 is a zero bias too.
    return _type(op, 0) is F32 and _type(op, 1) is F32 and _word(op, 1) in (0, -(2**31))


def _im2col_back(op: Tensor) -> bool:
    return _type(op, 0) is F32 and _type(op, 1) in (F32, F16)


def _get_rows_back(op: Tensor) -> bool:
    return _type(op, 0) in (F32, F16)


def _out_prod(op: Tensor) -> bool:
    a, b = op.src[0], op.src[1]
    if a is None or b is None:
        return False
    half = (a.type is F16 or a.type.quantized) and a.ne[2] == b.ne[2] and a.ne[3] == b.ne[3]
    return (a.type is F32 or half) and b.type is F32 and op.type is F32


def _conv_2d(op: Tensor) -> bool:
    return op.src[0] is not None and is_contiguous(op.src[0])


def _ssm_scan(op: Tensor) -> bool:
    a = op.src[3] if len(op.src) > 3 else None
    return _word(op, 0) == 1 or (a is not None and a.ne[0] == 1)


RULES: dict[int, OpRule] = {
    Op.CPY: _can_write,
    Op.SET_ROWS: _can_write,
    Op.MUL_MAT: _mul_mat,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.IM2COL_BACK: _im2col_back,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.OUT_PROD: _out_prod,
    Op.CONV_2D: _conv_2d,
    Op.SSM_SCAN: _ssm_scan,
}
"""The ops the CPU runs only under a condition; it runs all others (ggml_backend_cpu_device_supports_op)."""
