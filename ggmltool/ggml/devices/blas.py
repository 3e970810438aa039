"""The BLAS device: matrix products large enough to be worth it, on host memory."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_matrix, is_transposed

MIN_BATCH = 32

_NO_TO_FLOAT = frozenset(TYPES[name] for name in ("i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"))

_HINT_HADAMARD = 1


def _mul_mat(op: Tensor) -> bool:
    a, b = op.src[0], op.src[1]
    if a is None or b is None:
        return False
    hint = op.op_params[1] if len(op.op_params) > 1 else 0
    return (
        hint != _HINT_HADAMARD
        and is_contiguous(a)
        and is_contiguous(b)
        and b.type is F32
        and op.ne[0] >= MIN_BATCH
        and op.ne[1] >= MIN_BATCH
        and b.ne[0] >= MIN_BATCH
        and a.type not in _NO_TO_FLOAT
    )


def _out_prod(op: Tensor) -> bool:
    a, b = op.src[0], op.src[1]
    if a is None or b is None:
        return False
    return (
        a.type is F32
        and b.type is F32
        and is_matrix(a)
        and is_matrix(b)
        and is_contiguous(a)
        and (is_contiguous(b) or is_transposed(b))
    )


RULES: dict[int, OpRule] = {Op.MUL_MAT: _mul_mat, Op.OUT_PROD: _out_prod}
"""All that BLAS runs (ggml_backend_blas_device_supports_op)."""
