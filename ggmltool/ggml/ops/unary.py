"""UNARY: the 22 functions of one variable that share an op; word 0 of op_params says which."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.ops.cpu import mathfn
from ggmltool.ggml.ops.operands import f32, operand, param_f32, param_i32, require_same, requirer, same_as, sources_of
from ggmltool.ggml.ops.registry import Arrays, Build, constructor, float_bits, kernel, words
from ggmltool.ggml.tensor import Tensor, is_contiguous_rows

NAMES: dict[str, int] = {u.name.lower(): int(u) for u in UnaryOp}
"""The functions by the names of their constructors."""

NO_INPLACE = frozenset((UnaryOp.HARDSWISH, UnaryOp.HARDSIGMOID, UnaryOp.XIELU))
"""The functions whose constructor has no `_inplace` twin."""

SINCE = {
    UnaryOp.HARDSWISH: "2024-01-22",
    UnaryOp.HARDSIGMOID: "2024-01-22",
    UnaryOp.SIGMOID: "2024-05-01",
    UnaryOp.EXP: "2024-09-01",
    UnaryOp.GELU_ERF: "2025-05-21",
    UnaryOp.FLOOR: "2025-10-15",
    UnaryOp.CEIL: "2025-10-15",
    UnaryOp.ROUND: "2025-10-15",
    UnaryOp.TRUNC: "2025-10-15",
    UnaryOp.EXPM1: "2025-11-13",
    UnaryOp.SOFTPLUS: "2025-11-13",
}
"""The day of each function that is younger than 2024."""

_SHAPE = "a is contiguous in its rows -> a.type[a.ne]"


def _build(ctx: Context, a: Tensor, op: int, inplace: bool) -> Tensor:
    why = "the elements of a row of {:nb} must lie side by side; make it contiguous first (cont)"
    requirer("ggml_unary_impl")(is_contiguous_rows(a), "ggml_is_contiguous_rows(a)", why, a)
    return same_as(ctx, a, inplace).set_op(Op.UNARY, words(op), a)


@constructor(
    Op.UNARY,
    inplace=True,
    canonical=True,
    # The words of xielu hold softplus of its parameters; they cannot be told back exactly.
    unpack=lambda raw: None if raw.word(0) == UnaryOp.XIELU else {"op": raw.word(0)},
    choices={"op": NAMES},
    example="x: f32[8, 4]; unary(x, op=silu)",
    shape=_SHAPE,
    means={"op": "which function"},
    note="the functions are listed below the ops; each is written by its own name too",
)
def unary(ctx: Context, a: Tensor, op: int, *, inplace: bool = False) -> Tensor:
    """ggml_unary: the function `op` (a name or ggml's number) of every element; the rows of a are contiguous."""
    return _build(ctx, a, op, inplace)


def _named(op: UnaryOp) -> Build:
    def build(ctx: Context, a: Tensor, *, inplace: bool = False) -> Tensor:
        return _build(ctx, a, op, inplace)

    name = op.name.lower()
    build.__doc__ = f"ggml_{name}: the function of every element."
    return constructor(
        Op.UNARY,
        name,
        inplace=op not in NO_INPLACE,
        since=SINCE.get(op, ""),
        example=f"x: f32[8, 4]; {name}(x)",
        shape=_SHAPE,
    )(build)


for _op in UnaryOp:
    if _op != UnaryOp.XIELU:
        _named(_op)


def softplus_f32(x: float) -> float:
    """ggml_compute_softplus_f32: logf(1 + expf(x)), x above 20, in float32 steps."""
    x = f32(x)
    if x > 20 or math.isnan(x):
        return x
    return f32(math.log(f32(1 + f32(math.exp(x)))))


@constructor(
    Op.UNARY,
    unpack=lambda raw: None,
    since="2025-10-02",
    example="x: f32[8, 4]; xielu(x, alpha_n=0.8, alpha_p=0.8, beta=0.5, eps=-1e-6)",
    shape="-> a.type[a.ne]",
    means={
        "alpha_n": "its softplus, plus beta, is the factor where x is negative",
        "alpha_p": "its softplus is the factor of x² where x is positive",
        "beta": "factor of x",
        "eps": "largest x of which expm1 is taken where x is negative",
    },
)
def xielu(ctx: Context, a: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """ggml_xielu: alpha_p x² + beta x where positive, else (expm1(min(x, eps)) - x) alpha_n + beta x.

    The alphas are softplus of the parameters, that of alpha_n plus beta.
    """
    result = ctx.dup_tensor(a)
    stored = (beta_n := f32(beta)) + softplus_f32(alpha_n), softplus_f32(alpha_p), beta_n, eps
    return result.set_op(Op.UNARY, words(UnaryOp.XIELU, *(float_bits(v) for v in stored)), a)


FUNCTIONS: dict[int, Callable[[Any, Any], Any]] = {
    UnaryOp.ABS: lambda xp, v: xp.abs(v),
    UnaryOp.SGN: lambda xp, v: (v > 0).astype(xp.float32) - (v < 0).astype(xp.float32),
    UnaryOp.NEG: lambda xp, v: -v,
    UnaryOp.STEP: lambda xp, v: (v > 0).astype(xp.float32),
    UnaryOp.TANH: mathfn.tanh,
    UnaryOp.ELU: lambda xp, v: xp.where(v > 0, v, xp.expm1(v)),
    UnaryOp.RELU: lambda xp, v: xp.where(v > 0, v, xp.float32(0)),
    UnaryOp.SIGMOID: mathfn.sigmoid,
    UnaryOp.GELU_QUICK: mathfn.gelu_quick_table,
    UnaryOp.SILU: mathfn.silu,
    UnaryOp.HARDSWISH: lambda xp, v: v * mathfn.hard_sigmoid(xp, v),
    UnaryOp.HARDSIGMOID: mathfn.hard_sigmoid,
    UnaryOp.EXP: mathfn.exp,
    UnaryOp.EXPM1: lambda xp, v: mathfn.exp(xp, v) - 1,
    UnaryOp.SOFTPLUS: mathfn.softplus,
    UnaryOp.GELU_ERF: mathfn.gelu_erf,
    UnaryOp.FLOOR: lambda xp, v: xp.floor(v),
    UnaryOp.CEIL: lambda xp, v: xp.ceil(v),
    UnaryOp.ROUND: mathfn.round_half_away,
    UnaryOp.TRUNC: lambda xp, v: xp.trunc(v),
}
"""The functions that need nothing but their argument: (xp, float32 values) -> float32 values."""

OF_BF16 = {UnaryOp.GELU: mathfn.gelu, UnaryOp.GELU_QUICK: mathfn.gelu_quick}
"""The functions that have no table for bf16: every value is computed."""


def _xielu(x: Arrays, dst: Tensor) -> Any:
    xp, v = x.xp, operand(x, dst)
    alpha_n, alpha_p, beta, eps = (xp.float32(param_f32(dst, i)) for i in (1, 2, 3, 4))
    # A fused multiply-add: where both products overflow, the first does not yet.
    negative = (xp.expm1(xp.fmin(v, eps)) - v).astype(xp.float64) * alpha_n + beta * v
    negative = negative.astype(xp.float32)
    return xp.where(v > 0, alpha_p * v * v + beta * v, negative)


@kernel(Op.UNARY)
def _unary(x: Arrays, dst: Tensor) -> None:
    op, a = param_i32(dst, 0), dst.src[0]
    require_same(dst, *sources_of(dst), dst)
    if op == UnaryOp.XIELU:
        x.put(dst, _xielu(x, dst))
    elif a is not None and a.type is BF16 and op in OF_BF16:
        x.put(dst, OF_BF16[UnaryOp(op)](x.xp, operand(x, dst)))
    elif op == UnaryOp.GELU:
        x.put(dst, mathfn.gelu_table(x.xp, operand(x, dst), a is not None and a.type is F16))
    elif op in FUNCTIONS:
        x.put(dst, FUNCTIONS[op](x.xp, operand(x, dst)))
    else:
        raise GgmlAbort("ggml_compute_forward_unary", "fatal error", explanation=f"there is no unary function {op}")
