"""Ops that compute each element from the ones at its place: add and its family, mul, scale, clamp, sqr, fill …

A second operand is repeated into the first (`ggml_can_repeat(b, a)`); the result has the first one's type and extents,
contiguous, or is a view of it where the op works in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import (
    flat,
    flat_operand,
    not_computable,
    operand,
    operands,
    param_f32,
    param_i32,
    require_same,
    requirer,
    same_as,
    show,
    sources_of,
)
from ggmltool.ggml.ops.registry import Arrays, Build, OpPart, constructor, float_bits, kernel, size_t, words
from ggmltool.ggml.tensor import (
    Tensor,
    can_repeat,
    is_contiguous,
    is_padded_1d,
    is_scalar,
    nelements,
)
from ggmltool.ggml.values.extent import strided
from ggmltool.ggml.version import SIZE_MAX


def _require_repeat(function: str, b: Tensor, a: Tensor) -> None:
    why = "{} cannot be repeated into {}: each extent of the first operand must be a multiple of the second's"
    requirer(function)(can_repeat(b, a), "ggml_can_repeat(b, a)", why, b, a)


def _require_padded_1d(function: str, a: Tensor) -> None:
    why = "{:nb} may have gaps between its rows only; make it contiguous first (cont)"
    requirer(function)(is_padded_1d(a), "ggml_is_padded_1d(a)", why, a)


@constructor(
    Op.ADD,
    inplace=True,
    canonical=True,
    unpack=lambda raw: {"type": raw.type},
    example="x: f32[8, 4]; bias: f32[8]; add(x, bias)",
    shape="b repeats into a -> a.type[a.ne]",
    means={"type": "type of the result; a's where left out"},
    prototype="tt",
)
def add(ctx: Context, a: Tensor, b: Tensor, type: DType | None = None, *, inplace: bool = False) -> Tensor:
    """ggml_add: a + b, with b repeated into a; with a `type` other than a's it is ggml_add_cast."""
    if type is not None and type is not a.type:
        return add_cast(ctx, a, b, type)
    _require_repeat("ggml_add_impl", b, a)
    return same_as(ctx, a, inplace).set_op(Op.ADD, (), a, b)


@constructor(Op.ADD)
def add_cast(ctx: Context, a: Tensor, b: Tensor, type: DType) -> Tensor:
    """ggml_add_cast: a + b in another type; a is quantized or half precision."""
    require = requirer("ggml_add_cast_impl")
    why = (
        "the rows of {} cannot be repeated into {}: ne[0] must be equal, every other extent of the first operand a "
        "multiple of the second's"
    )
    require(a.ne[0] == b.ne[0] and can_repeat(b, a), "ggml_can_repeat_rows(b, a)", why, b, a)
    condition = "ggml_is_quantized(a->type) || a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_BF16"
    why = "add_cast takes a quantized, f16 or bf16 tensor first, not {}"
    require(a.type.quantized or a.type is F16 or a.type is BF16, condition, why, a)
    return ctx.new_tensor(type, a.ne).set_op(Op.ADD, (), a, b)


@constructor(
    Op.ADD_ID,
    since="2025-08-05",
    example="a: f32[8, 2, 4]; b: f32[8, 16]; ids: i32[2, 4]; add_id(a, b, ids)",
    shape="a.ne[0] = b.ne[0]; a.ne[1] = ids.ne[0]; a.ne[2] = ids.ne[1]; ids.type = i32 -> a.type[a.ne]",
)
def add_id(ctx: Context, a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """ggml_add_id: adds row ids[i, j] of b to row i of matrix j of a (the biases of the experts chosen)."""
    require = requirer("ggml_add_id")
    require(a.ne[0] == b.ne[0], "a->ne[0] == b->ne[0]", "the rows of {} must be as long as {}'s", b, a)
    require(a.ne[1] == ids.ne[0], "a->ne[1] == ids->ne[0]", "{} must have one id per row of {}", ids, a)
    require(a.ne[2] == ids.ne[1], "a->ne[2] == ids->ne[1]", "{} must have one row per token: {}", ids, a)
    require(ids.type is I32, "ids->type == GGML_TYPE_I32", "the ids must be i32, not {}", ids)
    return ctx.dup_tensor(a).set_op(Op.ADD_ID, (), a, b, ids)


@constructor(
    Op.ADD1, inplace=True, example="x: f32[8, 4]; one: f32[1]; add1(x, one)", shape="b has one element -> a.type[a.ne]"
)
def add1(ctx: Context, a: Tensor, b: Tensor, *, inplace: bool = False) -> Tensor:
    """ggml_add1: adds the one element of b to every element of a."""
    requirer("ggml_add1_impl")(is_scalar(b), "ggml_is_scalar(b)", "{} must have exactly one element", b)
    _require_padded_1d("ggml_add1_impl", a)
    return same_as(ctx, a, inplace).set_op(Op.ADD1, (), a, b)


@constructor(
    Op.ACC,
    inplace=True,
    pack="i:nb1 i:nb2 i:nb3 i:offset",
    example="x: f32[8, 4]; part: f32[8]; acc(x, part, nb1=32, nb2=128, nb3=128, offset=64)",
    shape="b has no more elements than a; a is contiguous; a.type = f32; b.type = f32 -> a.type[a.ne]",
)
def acc(
    ctx: Context, a: Tensor, b: Tensor, nb1: size_t, nb2: size_t, nb3: size_t, offset: size_t, *, inplace: bool = False
) -> Tensor:
    """ggml_acc: a, with b added to the part of it that has strides nb1 … nb3 and starts at `offset` bytes."""
    require = requirer("ggml_acc_impl")
    why = "{} has more elements than {}"
    require(nelements(b) <= nelements(a), "ggml_nelements(b) <= ggml_nelements(a)", why, b, a)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    require(b.type is F32, "b->type == GGML_TYPE_F32", "{} must be f32", b)
    result = same_as(ctx, a, inplace)
    if ctx.rules.bounds_acc:
        _require_near("ggml_acc_impl", offset)
    return result.set_op(Op.ACC, words(nb1, nb2, nb3, offset, int(inplace)), a, b)


def _require_near(function: str, offset: int) -> None:
    if not 0 <= offset < 1 << 30:
        why = f"the offset is {offset}; it must be 0 or more, and less than 1 GiB"
        raise GgmlAssert(function, "offset < (size_t)(1 << 30)", why)


@constructor(
    Op.SET,
    inplace=True,
    canonical=True,
    pack="i:nb1 i:nb2 i:nb3 i:offset",
    example="x: f32[8, 4]; row: f32[8]; set(x, row, nb1=32, nb2=128, nb3=128, offset=64)",
    shape="b has no more elements than a -> a.type[a.ne]",
)
def set_(
    ctx: Context, a: Tensor, b: Tensor, nb1: size_t, nb2: size_t, nb3: size_t, offset: size_t, *, inplace: bool = False
) -> Tensor:
    """ggml_set: a, with the part of it that has strides nb1 … nb3 and starts at `offset` bytes replaced by b."""
    why = "{} has more elements than {}"
    requirer("ggml_set_impl")(nelements(a) >= nelements(b), "ggml_nelements(a) >= ggml_nelements(b)", why, b, a)
    result = same_as(ctx, a, inplace)
    _require_near("ggml_set_impl", offset)
    return result.set_op(Op.SET, words(nb1, nb2, nb3, offset, int(inplace)), a, b)


@constructor(Op.SET, inplace=True)
def set_1d(ctx: Context, a: Tensor, b: Tensor, offset: size_t, *, inplace: bool = False) -> Tensor:
    """ggml_set_1d: ggml_set with the strides of a."""
    return set_(ctx, a, b, a.nb[1], a.nb[2], a.nb[3], offset, inplace=inplace)


@constructor(Op.SET, inplace=True)
def set_2d(ctx: Context, a: Tensor, b: Tensor, nb1: size_t, offset: size_t, *, inplace: bool = False) -> Tensor:
    """ggml_set_2d: ggml_set with the strides of a but for nb1."""
    return set_(ctx, a, b, nb1, a.nb[2], a.nb[3], offset, inplace=inplace)


def _binary(op: Op, name: str, meaning: str, example: str) -> Build:
    function = f"ggml_{name}_impl"

    @constructor(op, name, inplace=True, example=example, shape="b repeats into a -> a.type[a.ne]")
    def build(ctx: Context, a: Tensor, b: Tensor, *, inplace: bool = False) -> Tensor:
        _require_repeat(function, b, a)
        return same_as(ctx, a, inplace).set_op(op, (), a, b)

    build.__doc__ = f"ggml_{name}: {meaning}, with b repeated into a."
    return build


sub = _binary(Op.SUB, "sub", "a - b", "a: f32[8, 4]; b: f32[8, 4]; sub(a, b)")
mul = _binary(Op.MUL, "mul", "a * b", "x: f32[8, 4]; weight: f32[8]; mul(x, weight)")
div = _binary(Op.DIV, "div", "a / b", "a: f32[8, 4]; b: f32[8, 4]; div(a, b)")


def _function(op: Op, name: str, meaning: str, since: str = "") -> Build:
    @constructor(op, name, inplace=True, since=since, example=f"x: f32[8, 4]; {name}(x)", shape="-> a.type[a.ne]")
    def build(ctx: Context, a: Tensor, *, inplace: bool = False) -> Tensor:
        return same_as(ctx, a, inplace).set_op(op, (), a)

    build.__doc__ = f"ggml_{name}: {meaning} of every element."
    return build


sqr = _function(Op.SQR, "sqr", "the square")
sqrt = _function(Op.SQRT, "sqrt", "the square root")
log = _function(Op.LOG, "log", "the natural logarithm")
sin = _function(Op.SIN, "sin", "the sine", since="2024-08-12")
cos = _function(Op.COS, "cos", "the cosine", since="2024-08-12")


@constructor(
    Op.SCALE,
    "scale",
    "scale_bias",
    inplace=True,
    pack="f:s f:b",
    example="x: f32[8, 4]; scale(x, s=0.125)",
    shape="-> a.type[a.ne]",
    means={"s": "factor", "b": "bias, added after the product"},
    parts=(OpPart("bias", "2025-07-09", words=(1,)),),
    prototype={"scale": "tf", "scale_bias": "tff"},
)
def scale(ctx: Context, a: Tensor, s: float, b: float = 0.0, *, inplace: bool = False) -> Tensor:
    """ggml_scale and ggml_scale_bias: a * s + b."""
    _require_padded_1d("ggml_scale_impl", a)
    return same_as(ctx, a, inplace).set_op(Op.SCALE, words(float_bits(s), float_bits(b)), a)


@constructor(
    Op.CLAMP,
    pack="f:min f:max",
    inplace=True,
    inplace_since="2026-08-26",
    example="x: f32[8, 4]; clamp(x, min=-1, max=1)",
    shape="-> a.type[a.ne]",
    means={"min": "smallest value", "max": "largest value"},
)
def clamp(ctx: Context, a: Tensor, min: float, max: float, *, inplace: bool = False) -> Tensor:
    """ggml_clamp: every element kept within [min, max]. Until August 2026 always in place: a view of a."""
    result = same_as(ctx, a, inplace or not ctx.rules.clamp_is_new)
    return result.set_op(Op.CLAMP, words(float_bits(min), float_bits(max)), a)


@constructor(
    Op.LEAKY_RELU,
    inplace=True,
    pack="f:negative_slope",
    example="x: f32[8, 4]; leaky_relu(x, negative_slope=0.1)",
    shape="-> a.type[a.ne]",
    means={"negative_slope": "factor where x is negative"},
    prototype={"leaky_relu": "tfb", "leaky_relu_inplace": ""},
)
def leaky_relu(ctx: Context, a: Tensor, negative_slope: float, *, inplace: bool = False) -> Tensor:
    """ggml_leaky_relu: x where positive, else negative_slope * x."""
    return same_as(ctx, a, inplace).set_op(Op.LEAKY_RELU, words(float_bits(negative_slope)), a)


@constructor(
    Op.FILL,
    inplace=True,
    pack="f:c",
    since="2025-11-13",
    example="x: f32[8, 4]; fill(x, c=0)",
    shape="a.type in (f32, f16); a is contiguous -> a.type[a.ne]",
    means={"c": "the value of every element"},
)
def fill(ctx: Context, a: Tensor, c: float, *, inplace: bool = False) -> Tensor:
    """ggml_fill: a tensor like a with every element c."""
    require = requirer("ggml_fill_impl")
    why = "{} must be f32 or f16"
    require(a.type is F32 or a.type is F16, "a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16", why, a)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    return same_as(ctx, a, inplace).set_op(Op.FILL, words(float_bits(c)), a)


@constructor(Op.SILU_BACK, example="grad: f32[8, 4]; x: f32[8, 4]; silu_back(grad, x)", shape="-> a.type[a.ne]")
def silu_back(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_silu_back: the gradient of silu at b, given the gradient a of its result."""
    return ctx.dup_tensor(a).set_op(Op.SILU_BACK, (), a, b)


def _binary_kernel(op: Op, compute: Callable[[Any, Any], Any]) -> None:
    @kernel(op)
    def run(x: Arrays, dst: Tensor) -> None:
        x.put(dst, compute(*operands(x, dst)))


_binary_kernel(Op.ADD, lambda a, b: a + b)
_binary_kernel(Op.SUB, lambda a, b: a - b)
_binary_kernel(Op.MUL, lambda a, b: a * b)
_binary_kernel(Op.DIV, lambda a, b: a / b)


def _function_kernel(op: Op, compute: Callable[[Any, Any], Any]) -> None:
    @kernel(op)
    def run(x: Arrays, dst: Tensor) -> None:
        x.put(dst, compute(x.xp, operand(x, dst)))


_function_kernel(Op.SQR, lambda xp, v: v * v)
_function_kernel(Op.SQRT, lambda xp, v: xp.sqrt(v))
_function_kernel(Op.LOG, lambda xp, v: xp.log(v))
_function_kernel(Op.SIN, lambda xp, v: xp.sin(v))
_function_kernel(Op.COS, lambda xp, v: xp.cos(v))


@kernel(Op.ADD1)
def _add1(x: Arrays, dst: Tensor) -> None:
    x.put(dst, sum(operands(x, dst)))


@kernel(Op.ADD_ID)
def _add_id(x: Arrays, dst: Tensor) -> None:
    a, b, ids = sources_of(dst)
    rows = x.raw(ids)[0, 0]
    if x.on_host and bool(((rows < 0) | (rows >= b.ne[1])).any()):
        raise GgmlAssert(
            "ggml_compute_forward_add_id_f32",
            "i11 >= 0 && i11 < ne11",
            f"{show(ids)} holds an id that is not a row of {show(b)}",
        )
    x.put(dst, x.f32(a) + x.f32(b)[0, 0][rows])


def _place(dst: Tensor) -> tuple[tuple[int, int, int, int], int]:
    """The strides and the offset of the part that acc and set write, as int32 become size_t: negative ones go back."""
    return (4, param_i32(dst, 0), param_i32(dst, 1), param_i32(dst, 2)), param_i32(dst, 3)


def _part(x: Arrays, values: Any, dst: Tensor, b: Tensor) -> Any:
    """The part of `values`, 4-byte elements without gaps like those of `dst`, that acc and set write b to."""
    nb, offset = _place(dst)
    return strided(x.xp, values, b.ne[::-1], nb[::-1], offset, dst.label)


def _last_byte(dst: Tensor, b: Tensor) -> int:
    """Where the last element of the part that acc and set write starts: a size_t, which wraps."""
    nb, offset = _place(dst)
    return (offset + sum(max(n - 1, 0) * stride for n, stride in zip(b.ne, nb, strict=True))) & SIZE_MAX


@kernel(Op.ACC)
def _acc(x: Arrays, dst: Tensor) -> None:
    a, b = sources_of(dst)
    condition = (
        "offset + (ne10 == 0 ? 0 : ne10-1)*nb0 + (ne11 == 0 ? 0 : ne11-1)*nb1 + (ne12 == 0 ? 0 : ne12-1)*nb2 + "
        "(ne13 == 0 ? 0 : ne13-1)*nb3 < ggml_nbytes(dst)"
    )
    why = "the part of {} that {} is added to leaves it"
    requirer("ggml_compute_forward_acc_f32")(_last_byte(dst, b) < dst.nbytes, condition, why, a, b)
    old = x.xp.array(x.f32(a), order="C")
    new = old.copy()
    _part(x, new, dst, b)[...] = _part(x, old, dst, b) + x.f32(b)
    x.put(dst, new)


@kernel(Op.SET)
def _set(x: Arrays, dst: Tensor) -> None:
    a, b = sources_of(dst)
    condition = "offset + im0*nb0 + im1*nb1 + im2*nb2 + im3*nb3 <= ggml_nbytes(dst)"
    why = "the part of {} that {} replaces leaves it"
    requirer("ggml_compute_forward_set_f32")(_last_byte(dst, b) <= dst.nbytes, condition, why, a, b)
    if dst.type.type_size != 4 or b.type.type_size != 4:
        raise not_computable(dst, f"it moves elements of 4 bytes, not {show(a)} and {show(b)}")
    new = x.xp.array(x.raw(a), order="C")
    # The bits are moved, whatever they mean.
    _part(x, new, dst, b)[...] = x.raw(b).view(new.dtype)
    x.put(dst, new)


@kernel(Op.SCALE)
def _scale(x: Arrays, dst: Tensor) -> None:
    s, b = x.xp.float32(param_f32(dst, 0)), x.xp.float32(param_f32(dst, 1))
    values = operand(x, dst) * s
    x.put(dst, values + b if b != 0 else values)


@kernel(Op.CLAMP)
def _clamp(x: Arrays, dst: Tensor) -> None:
    xp, by_strides = x.xp, x.rules.clamp_is_new
    values = operand(x, dst) if by_strides else flat_operand(x, dst)
    low, high = xp.float32(param_f32(dst, 0)), xp.float32(param_f32(dst, 1))
    values = xp.where(values < high, values, high)
    x.put(dst if by_strides else flat(x, dst), xp.where(values > low, values, low))


@kernel(Op.LEAKY_RELU)
def _leaky_relu(x: Arrays, dst: Tensor) -> None:
    xp, values = x.xp, flat_operand(x, dst)
    zero = xp.float32(0)
    positive, negative = xp.where(values > 0, values, zero), xp.where(values < 0, values, zero)
    x.put(flat(x, dst), positive + xp.float32(param_f32(dst, 0)) * negative)


@kernel(Op.FILL)
def _fill(x: Arrays, dst: Tensor) -> None:
    x.put(dst, x.xp.full(dst.ne[::-1], param_f32(dst, 0), dtype=x.xp.float32))


@kernel(Op.SILU_BACK)
def _silu_back(x: Arrays, dst: Tensor) -> None:
    require_same(dst, *sources_of(dst))
    grad, values = flat_operand(x, dst, 0), flat_operand(x, dst, 1)
    s = 1 / (1 + x.xp.exp(-values))
    x.put(dst, grad * s * (1 + values * (1 - s)))
