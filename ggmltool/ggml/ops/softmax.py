"""Rows and groups made comparable: softmax with its causal masks, the cross entropy loss, norms, and the gradients."""

from __future__ import annotations

import math
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import (
    flat,
    flat_operand,
    operand,
    operands,
    param_f32,
    param_i32,
    require_same,
    requirer,
    same_as,
    sources_of,
)
from ggmltool.ggml.ops.registry import Arrays, Build, OpPart, constructor, float_bits, kernel, words
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous, is_scalar


def _check_mask(a: Tensor, mask: Tensor) -> None:
    require = requirer("ggml_soft_max_impl")
    condition = "mask->type == GGML_TYPE_F16 || mask->type == GGML_TYPE_F32"
    require(mask.type is F16 or mask.type is F32, condition, "the mask must be f16 or f32, not {}", mask)
    require(is_contiguous(mask), "ggml_is_contiguous(mask)", "the mask {:nb} must be contiguous", mask)
    why = "the rows of the mask {} must be as long as {}'s"
    require(mask.ne[0] == a.ne[0], "mask->ne[0] == a->ne[0]", why, mask, a)
    require(mask.ne[1] >= a.ne[1], "mask->ne[1] >= a->ne[1]", "the mask {} has fewer rows than a matrix of {}", mask, a)
    for i in (2, 3):
        why = "the mask {} cannot be repeated along dimension {} of {}"
        require(mask.ne[i] != 0 and a.ne[i] % mask.ne[i] == 0, f"a->ne[{i}]%mask->ne[{i}] == 0", why, mask, i, a)


@constructor(
    Op.SOFT_MAX,
    "soft_max",
    "soft_max_ext",
    inplace=True,
    pack="f:scale f:max_bias",
    example="kq: f32[32, 4, 2]; mask: f16[32, 4]; soft_max(kq, mask, scale=0.125)",
    shape="a is contiguous; mask.type in (f16, f32); mask is contiguous; mask.ne[0] = a.ne[0]; "
    "mask.ne[1] >= a.ne[1]; a.ne[2] % mask.ne[2] = 0; a.ne[3] % mask.ne[3] = 0; sinks.ne[0] = a.ne[2]; "
    "sinks.type = f32 -> a.type[a.ne]",
    means={"scale": "factor of the scores", "max_bias": "largest slope of ALiBi; 0 for no slopes"},
    parts=(OpPart("sinks", "2025-08-05", source=2),),
    prototype={"soft_max": "t", "soft_max_ext": "ttff"},
)
def soft_max_ext(
    ctx: Context,
    a: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float = 1.0,
    max_bias: float = 0.0,
    *,
    inplace: bool = False,
) -> Tensor:
    """ggml_soft_max, ggml_soft_max_ext and ggml_soft_max_add_sinks: softmax of the rows of scale * a + slope * mask.

    The slope is 1, or that of ALiBi where `max_bias` > 0; `sinks` has one more logit per head (dimension 2 of a).
    """
    require = requirer("ggml_soft_max_add_sinks")
    requirer("ggml_soft_max_impl")(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    if mask is not None:
        _check_mask(a, mask)
    elif max_bias > 0:
        raise GgmlAssert("ggml_soft_max_impl", "mask", f"max_bias is {max_bias}, but there is no mask to apply it to")
    result = same_as(ctx, a, inplace)
    if sinks is not None:
        why = "the sinks {} must have one element for each of the {} heads of {}"
        require(a.ne[2] == sinks.ne[0], "a->src[0]->ne[2] == sinks->ne[0]", why, sinks, a.ne[2], a)
        require(sinks.type is F32, "sinks->type == GGML_TYPE_F32", "the sinks must be f32, not {}", sinks)
    return result.set_op(Op.SOFT_MAX, words(float_bits(scale), float_bits(max_bias)), a, mask, sinks)


@constructor(
    Op.SOFT_MAX_BACK,
    "soft_max_ext_back",
    "soft_max_back",
    inplace=True,
    pack="f:scale f:max_bias",
    canonical=True,
    example="grad: f32[8, 4]; p: f32[8, 4]; soft_max_back(grad, p)",
    shape="-> a.type[a.ne]",
    means={"scale": "factor of the scores", "max_bias": "largest slope of ALiBi; 0 for no slopes"},
    prototype={"soft_max_ext_back": "ttff"},
)
def soft_max_ext_back(
    ctx: Context, a: Tensor, b: Tensor, scale: float = 1.0, max_bias: float = 0.0, *, inplace: bool = False
) -> Tensor:
    """ggml_soft_max_ext_back: the gradient of soft_max_ext, whose result is b, given the gradient a of that result."""
    return same_as(ctx, a, inplace).set_op(Op.SOFT_MAX_BACK, words(float_bits(scale), float_bits(max_bias)), a, b)


def _diag_mask(op: Op, name: str, value: str) -> Build:
    @constructor(
        op,
        name,
        inplace=True,
        pack="i:n_past",
        example=f"kq: f32[8, 8, 2]; {name}(kq, n_past=0)",
        shape="-> a.type[a.ne]",
        means={"n_past": "columns that are never masked"},
    )
    def build(ctx: Context, a: Tensor, n_past: int, *, inplace: bool = False) -> Tensor:
        return same_as(ctx, a, inplace).set_op(op, words(n_past), a)

    build.__doc__ = f"ggml_{name}: {value} wherever the column is beyond n_past + the row."
    return build


diag_mask_inf = _diag_mask(Op.DIAG_MASK_INF, "diag_mask_inf", "minus infinity")
diag_mask_zero = _diag_mask(Op.DIAG_MASK_ZERO, "diag_mask_zero", "zero")


@constructor(
    Op.CROSS_ENTROPY_LOSS,
    example="logits: f32[8, 4]; labels: f32[8, 4]; cross_entropy_loss(logits, labels)",
    shape="a and b have one shape -> a.type[1]",
)
def cross_entropy_loss(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_cross_entropy_loss: the mean over rows of the cross entropy of the labels b and softmax(a); one element."""
    why = "{} and {} differ in shape"
    requirer("ggml_cross_entropy_loss")(are_same_shape(a, b), "ggml_are_same_shape(a, b)", why, a, b)
    return ctx.new_tensor(a.type, (1,)).set_op(Op.CROSS_ENTROPY_LOSS, (), a, b)


@constructor(
    Op.CROSS_ENTROPY_LOSS_BACK,
    example="grad: f32[1]; logits: f32[8, 4]; labels: f32[8, 4]; cross_entropy_loss_back(grad, logits, labels)",
    shape="a has one element; b and c have one shape -> b.type[b.ne]",
)
def cross_entropy_loss_back(ctx: Context, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """ggml_cross_entropy_loss_back: the gradient at the logits b with labels c, given the gradient a of the loss."""
    require = requirer("ggml_cross_entropy_loss_back")
    require(is_scalar(a), "ggml_is_scalar(a)", "{} must have exactly one element", a)
    require(are_same_shape(b, c), "ggml_are_same_shape(b, c)", "{} and {} differ in shape", b, c)
    return ctx.dup_tensor(b).set_op(Op.CROSS_ENTROPY_LOSS_BACK, (), a, b, c)


def alibi_slopes(xp: Any, max_bias: float, n_head: int) -> Any:
    """The slope of each head, float32[n_head]: all 1 without a bias."""
    if max_bias <= 0 or n_head == 0:
        return xp.ones(n_head, dtype=xp.float32)
    n_log2 = 1 << int(math.log2(n_head))
    m0 = xp.float32(2.0 ** (-max_bias / n_log2))
    m1 = xp.float32(2.0 ** (-max_bias / 2.0 / n_log2))
    h = xp.arange(n_head)
    slopes = xp.where(h < n_log2, xp.float64(m0) ** (h + 1), xp.float64(m1) ** (2 * (h - n_log2) + 1))
    return slopes.astype(xp.float32)


def _row_max(xp: Any, values: Any) -> Any:
    # C's MAX forgets a NaN that a number follows; what comes of the row is NaN either way.
    values = xp.where(xp.isnan(values), xp.float32(-xp.inf), values)
    return values.max(axis=-1, keepdims=True) if values.size else xp.zeros((*values.shape[:-1], 1), dtype=values.dtype)


def _exponentials(xp: Any, values: Any, largest: Any) -> tuple[Any, Any]:
    """exp(values - largest) in float32, and its sum over the rows in double."""
    out = xp.exp(values - largest)
    return out, out.sum(axis=-1, keepdims=True, dtype=xp.float64)


def _masked(x: Arrays, dst: Tensor, mask: Tensor, values: Any) -> Any:
    """values + slope * mask, the mask repeated over dimensions 2 and 3."""
    n3, n2, n1, _ = values.shape
    rows = x.f32(mask)[:, :, :n1]
    repeats = (n3 // rows.shape[0], n2 // rows.shape[1], 1, 1)
    if any(r > 1 and n > 1 for r, n in zip(repeats, rows.shape, strict=True)):
        rows = x.xp.tile(rows, repeats)
    slopes = alibi_slopes(x.xp, param_f32(dst, 1), n2)
    return values + slopes[None, :, None, None] * rows


@kernel(Op.SOFT_MAX)
def _soft_max(x: Arrays, dst: Tensor) -> None:
    xp = x.xp
    mask, sinks = (dst.src[i] if len(dst.src) > i else None for i in (1, 2))
    values = operand(x, dst) * xp.float32(param_f32(dst, 0))
    if mask is not None:
        values = _masked(x, dst, mask, values)
    largest = _row_max(xp, values)
    if sinks is None:
        out, total = _exponentials(xp, values, largest)
    else:
        sink = x.f32(sinks)[0, 0, 0][None, :, None, None]
        largest = xp.fmax(largest, sink)
        out, total = _exponentials(xp, values, largest)
        total = total + xp.exp(sink - largest)
    x.put(dst, out * (1 / total).astype(xp.float32))


@kernel(Op.SOFT_MAX_BACK)
def _soft_max_back(x: Arrays, dst: Tensor) -> None:
    why = "its gradient is not implemented in ggml"
    requirer("ggml_compute_forward_soft_max_ext_back_f32")(param_f32(dst, 1) == 0, "max_bias == 0.0f", why)
    require_same(dst, *sources_of(dst))
    grad, y = flat_operand(x, dst, 0), flat_operand(x, dst, 1)
    dot = (y * grad).sum(axis=-1, keepdims=True, dtype=x.xp.float64).astype(x.xp.float32)
    x.put(dst, (grad - dot) * y * x.xp.float32(param_f32(dst, 0)))


def _mask_kernel(op: Op, value: float) -> None:
    @kernel(op)
    def run(x: Arrays, dst: Tensor) -> None:
        xp, n_past = x.xp, param_i32(dst, 0)
        requirer("ggml_compute_forward_diag_mask_f32")(n_past >= 0, "n_past >= 0", "n_past is {}", n_past)
        a = dst.src[0]
        if a is None:
            raise ValueError(f"{dst!r} lacks its operand")
        out = flat(x, dst, 2) if a.data == dst.data else dst
        values = x.f32(a if out is dst else out)
        beyond = xp.arange(values.shape[3]) > n_past + xp.arange(values.shape[2])[:, None]
        x.put(out, xp.where(beyond, xp.float32(value), values))


_mask_kernel(Op.DIAG_MASK_INF, -math.inf)
_mask_kernel(Op.DIAG_MASK_ZERO, 0.0)


@kernel(Op.CROSS_ENTROPY_LOSS)
def _cross_entropy_loss(x: Arrays, dst: Tensor) -> None:
    xp = x.xp
    logits, labels = flat_operand(x, dst, 0), flat_operand(x, dst, 1)
    shifted = logits - _row_max(xp, logits)
    total = xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True, dtype=xp.float64).astype(xp.float32))
    rows = ((shifted - total) * labels).sum(axis=-1, dtype=xp.float64).astype(xp.float32)
    x.put(dst, rows.sum(dtype=xp.float32) * (xp.float32(-1) / xp.float32(rows.size)))


@kernel(Op.CROSS_ENTROPY_LOSS_BACK)
def _cross_entropy_loss_back(x: Arrays, dst: Tensor) -> None:
    xp = x.xp
    grad = operand(x, dst)
    logits, labels = flat_operand(x, dst, 1), flat_operand(x, dst, 2)
    n_rows = logits.shape[0] * logits.shape[1] * logits.shape[2]
    out, total = _exponentials(xp, logits, _row_max(xp, logits))
    out = out * (1 / total).astype(xp.float32) - labels
    x.put(dst, out * (grad.reshape(-1)[0] / xp.float32(n_rows)))


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
