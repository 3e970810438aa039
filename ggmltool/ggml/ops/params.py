"""How a kernel reads its node: the operands, and op_params (ggml_get_op_params_i32, ggml_get_op_params_f32)."""

from __future__ import annotations

from ggmltool.ggml.ops.registry import float_of
from ggmltool.ggml.tensor import Tensor


def operands(t: Tensor) -> list[Tensor]:
    """The sources of a node, without empty slots."""
    return [s for s in t.src if s is not None]


def param_i32(t: Tensor, i: int) -> int:
    """Word `i` of op_params (zero if none is stored)."""
    return t.op_params[i] if i < len(t.op_params) else 0


def param_f32(t: Tensor, i: int) -> float:
    """The float32 in word `i` of op_params."""
    return float_of(t.op_params[i]) if i < len(t.op_params) else 0.0
