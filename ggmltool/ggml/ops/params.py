"""How a kernel reads op_params: the words ggml_get_op_params_i32 and ggml_get_op_params_f32 give."""

from __future__ import annotations

from ggmltool.ggml.ops.registry import float_of
from ggmltool.ggml.tensor import Tensor


def param_i32(t: Tensor, i: int) -> int:
    """Word `i` of op_params (zero where none is stored)."""
    return t.op_params[i] if i < len(t.op_params) else 0


def param_f32(t: Tensor, i: int) -> float:
    """The float32 in word `i` of op_params."""
    return float_of(t.op_params[i]) if i < len(t.op_params) else 0.0
