"""Normalizations of rows (norm, rms_norm, l2_norm) and of groups of channels (group_norm)."""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import (
    operand,
    operands,
    param_f32,
    param_i32,
    require_same,
    requirer,
    same_as,
    sources_of,
)
from ggmltool.ggml.ops.registry import Arrays, Build, constructor, float_bits, kernel, words
from ggmltool.ggml.tensor import Tensor

_EPS = "added to the variance, so that nothing is divided by zero"


def _row_norm(op: Op, name: str, meaning: str, since: str = "", eps: str = _EPS) -> Build:
    @constructor(
        op,
        name,
        inplace=True,
        pack="f:eps",
        since=since,
        example=f"x: f32[8, 4]; {name}(x, eps={'1e-5' if op == Op.NORM else '1e-6'})",
        shape="-> a.type[a.ne]",
        means={"eps": eps},
    )
    def build(ctx: Context, a: Tensor, eps: float, *, inplace: bool = False) -> Tensor:
        return same_as(ctx, a, inplace).set_op(op, words(float_bits(eps)), a)

    build.__doc__ = f"ggml_{name}: {meaning}."
    return build


norm = _row_norm(Op.NORM, "norm", "each row minus its mean, divided by sqrt(variance + eps)")
rms_norm = _row_norm(Op.RMS_NORM, "rms_norm", "each row divided by sqrt(mean of squares + eps)")
l2_norm = _row_norm(
    Op.L2_NORM,
    "l2_norm",
    "each row divided by its length, or by eps where that is larger",
    "2025-03-18",
    "smallest length that a row is divided by",
)


@constructor(
    Op.RMS_NORM_BACK,
    pack="f:eps",
    example="grad: f32[8, 4]; x: f32[8, 4]; rms_norm_back(grad, x, eps=1e-6)",
    shape="-> a.type[a.ne]",
    means={"eps": _EPS},
)
def rms_norm_back(ctx: Context, a: Tensor, b: Tensor, eps: float) -> Tensor:
    """ggml_rms_norm_back: the gradient of rms_norm at b, given the gradient a of its result."""
    return ctx.dup_tensor(a).set_op(Op.RMS_NORM_BACK, words(float_bits(eps)), a, b)


@constructor(
    Op.GROUP_NORM,
    inplace=True,
    pack="i:n_groups f:eps",
    example="x: f32[8, 8, 4]; group_norm(x, n_groups=2, eps=1e-6)",
    shape="-> a.type[a.ne]",
    means={"n_groups": "groups of channels", "eps": _EPS},
)
def group_norm(ctx: Context, a: Tensor, n_groups: int, eps: float, *, inplace: bool = False) -> Tensor:
    """ggml_group_norm: norm over `n_groups` groups of the channels (dimension 2) of a."""
    return same_as(ctx, a, inplace).set_op(Op.GROUP_NORM, words(n_groups, float_bits(eps)), a)


def _eps(x: Arrays, dst: Tensor, function: str) -> Any:
    eps = x.xp.float32(param_f32(dst, 0))
    requirer(function)(eps >= 0, "eps >= 0.0f", "eps is {}; it must be 0 or more", eps)
    return eps


def _mean_square(x: Arrays, values: Any) -> Any:
    """The mean of the squares of each row: squares in float32, their sum in double, as ggml does."""
    return ((values * values).sum(axis=-1, keepdims=True, dtype=x.xp.float64) / values.shape[-1]).astype(x.xp.float32)


@kernel(Op.NORM)
def _norm(x: Arrays, dst: Tensor) -> None:
    xp, values = x.xp, operand(x, dst)
    eps = _eps(x, dst, "ggml_compute_forward_norm_f32")
    total = values.sum(axis=-1, keepdims=True, dtype=xp.float64).astype(xp.float32)
    centred = values - total / xp.float32(values.shape[-1])
    x.put(dst, centred * (1 / xp.sqrt(_mean_square(x, centred) + eps)))


@kernel(Op.RMS_NORM)
def _rms_norm(x: Arrays, dst: Tensor) -> None:
    values = operand(x, dst)
    eps = _eps(x, dst, "ggml_compute_forward_rms_norm_f32")
    x.put(dst, values * (1 / x.xp.sqrt(_mean_square(x, values) + eps)))


@kernel(Op.L2_NORM)
def _l2_norm(x: Arrays, dst: Tensor) -> None:
    xp, values = x.xp, operand(x, dst)
    eps = _eps(x, dst, "ggml_compute_forward_l2_norm_f32")
    length = xp.sqrt((values * values).sum(axis=-1, keepdims=True, dtype=xp.float64)).astype(xp.float32)
    x.put(dst, values * (1 / xp.fmax(length, eps)))


@kernel(Op.RMS_NORM_BACK)
def _rms_norm_back(x: Arrays, dst: Tensor) -> None:
    xp = x.xp
    require_same(dst, *sources_of(dst))
    grad, values = operands(x, dst)
    eps, n = xp.float32(param_f32(dst, 0)), xp.float32(values.shape[-1])
    sum_xx = (values * values).sum(axis=-1, keepdims=True, dtype=xp.float64).astype(xp.float32)
    sum_xdz = (values * grad).sum(axis=-1, keepdims=True, dtype=xp.float64).astype(xp.float32)
    x.put(dst, (grad + values * (-sum_xdz / (sum_xx + eps * n))) * (1 / xp.sqrt(sum_xx / n + eps)))


@kernel(Op.GROUP_NORM)
def _group_norm(x: Arrays, dst: Tensor) -> None:
    xp, values = x.xp, operand(x, dst)
    eps, n_groups = xp.float32(param_f32(dst, 1)), param_i32(dst, 0)
    if n_groups <= 0:
        raise GgmlAbort(
            "ggml_compute_forward_group_norm_f32", "division by zero", explanation=f"n_groups is {n_groups}"
        )
    channels = values.shape[1]
    per_group = -(-channels // n_groups)
    missing = n_groups * per_group - channels
    group = xp.arange(channels) // per_group
    # The last groups may be short of channels, or have none.
    size = xp.clip(channels - xp.arange(n_groups) * per_group, 0, per_group) * (values.shape[2] * values.shape[3])

    def mean(of: Any) -> Any:
        sums = xp.pad(of.sum(axis=(2, 3), dtype=xp.float64), ((0, 0), (0, missing)))
        means = (sums.reshape(-1, n_groups, per_group).sum(axis=2) / xp.maximum(size, 1)).astype(xp.float32)
        return means[:, group][:, :, None, None]

    centred = values - mean(values)
    x.put(dst, centred * (1 / xp.sqrt(mean(centred * centred) + eps)))
