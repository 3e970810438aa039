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


def _can_write(op: Tensor) -> str | None:
    return "it cannot convert to {type}" if op.type in _NO_FROM_FLOAT else None


def _mul_mat(op: Tensor) -> str | None:
    a, b = _type(op, 0), _type(op, 1)
    if b is F32 or (a is not None and b is TYPES[a.vec_dot_type or "f32"]):
        return None
    return "it multiplies {type0} by f32 or by the type that it converts f32 to, not by {type1}"


def _soft_max_back(op: Tensor) -> str | None:
    if _type(op, 0) is not F32 or _type(op, 1) is not F32:
        return "the sources are {type0} and {type1}, not both f32"
    # -0.0 is a zero bias too.
    return None if _word(op, 1) in (0, -(2**31)) else "max_bias is not 0"


def _im2col_back(op: Tensor) -> str | None:
    if _type(op, 0) is F32 and _type(op, 1) in (F32, F16):
        return None
    return "it wants f32 and f32 or f16, not {type0} and {type1}"


def _get_rows_back(op: Tensor) -> str | None:
    return None if _type(op, 0) in (F32, F16) else "source 0 is {type0}, neither f32 nor f16"


def _out_prod(op: Tensor) -> str | None:
    a, b = (*op.src, None, None)[:2]
    if a is None or b is None:
        return "a source is missing"
    if b.type is not F32 or op.type is not F32:
        return "source 1 is {type1} and the result {type}, not both f32"
    if a.type is F32:
        return None
    if a.type is not F16 and not a.type.quantized:
        return "source 0 is {type0}, neither f32, f16 nor quantized"
    same = a.ne[2] == b.ne[2] and a.ne[3] == b.ne[3]
    return None if same else "source 0 is {type0} and has to be repeated over ne[2] or ne[3]; only f32 can"


def _conv_2d(op: Tensor) -> str | None:
    a = op.src[0] if op.src else None
    return None if a is not None and is_contiguous(a) else "source 0 is not contiguous"


def _ssm_scan(op: Tensor) -> str | None:
    a = op.src[3] if len(op.src) > 3 else None
    if _word(op, 0) == 1 or (a is not None and a.ne[0] == 1):
        return None
    return "it keeps several states, and source 3 has ne[0] = {ne3[0]}, not 1"


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
