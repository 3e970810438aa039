"""The BLAS device: matrix products large enough to be worth it, on host memory."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.dtypes import F32, NO_TO_FLOAT
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_matrix, is_transposed

MIN_BATCH = 32

_NO_TO_FLOAT = NO_TO_FLOAT - {F32}

_HINT_HADAMARD = 1


def _mul_mat(op: Tensor) -> str | None:
    if len(op.op_params) > 1 and op.op_params[1] == _HINT_HADAMARD:
        return "source 0 is a Hadamard matrix, which the CPU multiplies faster"
    return large_product(op)


def large_product(op: Tensor) -> str | None:
    """Whether a product is large enough to be worth it, and of operands that BLAS takes."""
    a, b = (*op.src, None, None)[:2]
    if a is None or b is None:
        return "a source is missing"
    if not is_contiguous(a):
        return "source 0 is not contiguous"
    if not is_contiguous(b):
        return "source 1 is not contiguous"
    if b.type is not F32:
        return "source 1 is {type1}, not f32"
    if op.ne[0] < MIN_BATCH:
        return "too small to be worth it: ne[0] of the result is {ne[0]}, less than 32"
    if op.ne[1] < MIN_BATCH:
        return "too small to be worth it: ne[1] of the result is {ne[1]}, less than 32"
    if b.ne[0] < MIN_BATCH:
        return "too small to be worth it: ne[0] of the sources is {ne1[0]}, less than 32"
    return "{type0} cannot be converted to f32" if a.type in _NO_TO_FLOAT else None


def _out_prod(op: Tensor) -> str | None:
    a, b = (*op.src, None, None)[:2]
    if a is None or b is None:
        return "a source is missing"
    if a.type is not F32 or b.type is not F32:
        return "the sources are {type0} and {type1}, not both f32"
    if not (is_matrix(a) and is_matrix(b)):
        return "a source has more than two dimensions"
    if not is_contiguous(a):
        return "source 0 is not contiguous"
    return None if is_contiguous(b) or is_transposed(b) else "source 1 is neither contiguous nor transposed"


RULES: dict[int, OpRule] = {Op.MUL_MAT: _mul_mat, Op.OUT_PROD: _out_prod}
"""All that BLAS runs (ggml_backend_blas_device_supports_op)."""
