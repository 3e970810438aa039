"""The steps of an optimizer: opt_step_adamw and opt_step_sgd change a parameter in place by its gradient.

The parameters of the step lie in a tensor, since they change from step to step while the graph stays the same.
"""

from __future__ import annotations

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import memory, requirer, shadow, source
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor, are_same_shape, nelements


def _require_param(function: str, a: Tensor) -> None:
    why = "{} is not a parameter to be trained: give it the flag param (ggml_set_param)"
    requirer(function)(a.flags & FLAG_PARAM, "a->flags & GGML_TENSOR_FLAG_PARAM", why, a)


def _require_shape(function: str, name: str, a: Tensor, t: Tensor) -> None:
    requirer(function)(are_same_shape(a, t), f"ggml_are_same_shape(a, {name})", "{} and {} differ in shape", a, t)


def _require_numbers(function: str, name: str, params: Tensor, n: int, which: str) -> None:
    require = requirer(function)
    require(params.type is F32, f"{name}->type == GGML_TYPE_F32", "{} must be f32", params)
    require(nelements(params) == n, f"ggml_nelements({name}) == {n}", "{} must hold {}", params, which)


@constructor(
    Op.OPT_STEP_ADAMW,
    since="2024-09-20",
    example="a: {type: f32, ne: [8], flags: [param]}; grad: f32[8]; m: f32[8]; v: f32[8]; params: f32[7]; "
    "opt_step_adamw(a, grad, m, v, params)",
)
def opt_step_adamw(ctx: Context, a: Tensor, grad: Tensor, m: Tensor, v: Tensor, adamw_params: Tensor) -> Tensor:
    """ggml_opt_step_adamw: a step of AdamW. The result is a view of a; m and v, its momenta, are changed as well.

    adamw_params: alpha, beta1, beta2, eps, weight decay, 1 / (1 - beta1^t), 1 / (1 - beta2^t) at step t.
    """
    function = "ggml_opt_step_adamw"
    _require_param(function, a)
    for name, t in (("grad", grad), ("m", m), ("v", v)):
        _require_shape(function, name, a, t)
    which = "alpha, beta1, beta2, eps, weight decay, beta1h and beta2h"
    _require_numbers(function, "adamw_params", adamw_params, 7, which)
    return ctx.view_tensor(a).set_op(Op.OPT_STEP_ADAMW, (), a, grad, m, v, adamw_params)


@constructor(
    Op.OPT_STEP_SGD,
    since="2025-08-14",
    example="a: {type: f32, ne: [8], flags: [param]}; grad: f32[8]; params: f32[2]; opt_step_sgd(a, grad, params)",
)
def opt_step_sgd(ctx: Context, a: Tensor, grad: Tensor, params: Tensor) -> Tensor:
    """ggml_opt_step_sgd: a step of gradient descent; the result is a view of a. params: alpha, weight decay."""
    function = "ggml_opt_step_sgd"
    _require_param(function, a)
    _require_shape(function, "grad", a, grad)
    _require_numbers(function, "params", params, 2, "alpha and the weight decay")
    return ctx.view_tensor(a).set_op(Op.OPT_STEP_SGD, (), a, grad, params)


def _as_laid_out(t: Tensor, a: Tensor) -> Tensor:
    """`t` as ggml reads it: float32 with the strides of `a`, whatever its own are."""
    return shadow(t, F32, a.ne, a.nb)


@kernel(Op.OPT_STEP_ADAMW)
def _opt_step_adamw(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_opt_step_adamw: m, v and a, in float32 as C computes it."""
    f = x.xp.float32
    a = source(dst, 0)
    m, v = (_as_laid_out(source(dst, i), a) for i in (2, 3))
    weight, grad = x.f32(a), x.f32(_as_laid_out(source(dst, 1), a))
    alpha, beta1, beta2, eps, wd, beta1h, beta2h = memory(x, source(dst, 4), F32, 7)
    first = x.f32(m) * beta1 + grad * (f(1) - beta1)
    second = x.f32(v) * beta2 + grad * grad * (f(1) - beta2)
    x.put(m, first)
    x.put(v, second)
    step = alpha * (first * beta1h) / (x.xp.sqrt(second * beta2h) + eps)
    x.put(a, weight * (f(1) - alpha * wd) - step)


@kernel(Op.OPT_STEP_SGD)
def _opt_step_sgd(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_opt_step_sgd."""
    a = source(dst, 0)
    weight, grad = x.f32(a), x.f32(_as_laid_out(source(dst, 1), a))
    alpha, decay = memory(x, source(dst, 2), F32, 2)
    x.put(a, weight * (x.xp.float32(1) - alpha * decay) - alpha * grad)
