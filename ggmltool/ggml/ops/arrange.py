"""Ops that repeat, join, pad, roll or cut out elements, and those that make rows of numbers (arange …)."""

from __future__ import annotations

import math

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import (
    f32,
    new_tensor,
    operand,
    param_f32,
    param_i32,
    read_ne,
    require_elements,
    requirer,
    show,
    source,
    sources_of,
    target_shape,
)
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, float_bits, int64_t, kernel, words
from ggmltool.ggml.tensor import Tensor, can_repeat, is_contiguous, is_empty

INT64_MIN = -(2**63)
TRI_TYPES: dict[str, int] = {"upper_diag": 0, "upper": 1, "lower_diag": 2, "lower": 3}
"""ggml_tri_type: the triangle that is kept."""


@constructor(
    Op.REPEAT,
    canonical=True,
    unpack=read_ne,
    slots="a",
    example="row: f32[8]; repeat(row, ne=[8, 4])",
    shape="a repeats into ne -> a.type[ne]",
    prototype="tt",
)
def repeat(ctx: Context, a: Tensor, b: Tensor | None = None, ne: list[int] | None = None) -> Tensor:
    """ggml_repeat: a repeated until it has b's shape, or the extents `ne`. b is no source of the node."""
    if b is None:
        return repeat_4d(ctx, a, *target_shape("repeat", None, ne))
    why = "{} cannot be repeated into {}: each extent must be a multiple"
    requirer("ggml_repeat")(can_repeat(a, b), "ggml_can_repeat(a, b)", why, a, b)
    return ctx.new_tensor(a.type, b.ne).set_op(Op.REPEAT, (), a)


@constructor(Op.REPEAT, unpack=lambda raw: {f"ne{i}": n for i, n in enumerate(raw.ne)})
def repeat_4d(ctx: Context, a: Tensor, ne0: int64_t, ne1: int64_t = 1, ne2: int64_t = 1, ne3: int64_t = 1) -> Tensor:
    """ggml_repeat_4d: a repeated until it has the extents ne0 … ne3."""
    ne = (ne0, ne1, ne2, ne3)
    requirer("ggml_repeat_4d")(
        is_empty(a) or not any((n % m for n, m in zip(ne, a.ne, strict=True))),
        "can_repeat",
        "{} cannot be repeated into {}: each extent must be a multiple",
        a,
        list(ne),
    )
    return new_tensor(ctx, a.type, ne).set_op(Op.REPEAT, (), a)


@constructor(
    Op.CONCAT,
    pack="i:dim",
    example="a: f32[8, 4]; b: f32[8, 4]; concat(a, b, dim=1)",
    shape="a.type = b.type; a and b have one shape but for ne[dim] -> a.type[a.ne], with a.ne[dim] + b.ne[dim]",
    means={"dim": "the dimension along which b follows a"},
)
def concat(ctx: Context, a: Tensor, b: Tensor, dim: int) -> Tensor:
    """ggml_concat: b behind a along dimension `dim`."""
    require = requirer("ggml_concat")
    require(0 <= dim < 4, "dim >= 0 && dim < GGML_MAX_DIMS", "there is no dimension {}; they are 0 to 3", dim)
    require(a.type is b.type, "a->type == b->type", "{} and {} differ in type", a, b)
    ne = list(a.ne)
    for d in range(4):
        if d == dim:
            ne[d] += b.ne[d]
        elif a.ne[d] != b.ne[d]:
            raise GgmlAssert(
                "ggml_concat",
                "a->ne[d] == b->ne[d]",
                f"{show(a)} and {show(b)} differ in dimension {d}; only dimension {dim}, along which they are joined, "
                "may differ",
            )
    return new_tensor(ctx, a.type, ne).set_op(Op.CONCAT, words(dim), a, b)


@constructor(
    Op.PAD,
    example="x: f32[8, 4]; pad(x, 0, 2, 0, 0)",
    shape="-> a.type[a.ne[0] + p0, a.ne[1] + p1, a.ne[2] + p2, a.ne[3] + p3]",
    means={"p#": "zeros behind the elements of dimension #"},
    parts=(
        OpPart("padding on the left", "2025-09-04", words=(0, 2, 4, 6)),
        OpPart("circular padding", "2025-12-06", words=(8,)),
    ),
)
def pad(ctx: Context, a: Tensor, p0: int, p1: int, p2: int, p3: int) -> Tensor:
    """ggml_pad: zeros behind the elements of each dimension."""
    return pad_ext(ctx, a, 0, p0, 0, p1, 0, p2, 0, p3)


@constructor(Op.PAD)
def pad_circular(ctx: Context, a: Tensor, p0: int, p1: int, p2: int, p3: int) -> Tensor:
    """ggml_pad_circular: each dimension goes on from its beginning."""
    return pad_ext(ctx, a, 0, p0, 0, p1, 0, p2, 0, p3, True)


@constructor(
    Op.PAD,
    canonical=True,
    pack="i:lp0 i:rp0 i:lp1 i:rp1 i:lp2 i:rp2 i:lp3 i:rp3 i:circular",
    means={
        "lp#": "elements before those of dimension #",
        "rp#": "elements behind those of dimension #",
        "circular": "whether a dimension goes on from its other end instead of with zeros",
    },
    prototype="tiiiiiiii",
)
def pad_ext(
    ctx: Context,
    a: Tensor,
    lp0: int,
    rp0: int,
    lp1: int,
    rp1: int,
    lp2: int,
    rp2: int,
    lp3: int,
    rp3: int,
    circular: bool = False,
) -> Tensor:
    """ggml_pad_ext: zeros before (lp) and behind (rp) the elements of each dimension, or the other end's elements."""
    pads = (lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3)
    ne = [n + pads[2 * i] + pads[2 * i + 1] for i, n in enumerate(a.ne)]
    return new_tensor(ctx, a.type, ne).set_op(Op.PAD, words(*pads, int(circular)), a)


@constructor(
    Op.PAD, means={"lp#": "elements before those of dimension #", "rp#": "elements behind those of dimension #"}
)
def pad_ext_circular(
    ctx: Context, a: Tensor, lp0: int, rp0: int, lp1: int, rp1: int, lp2: int, rp2: int, lp3: int, rp3: int
) -> Tensor:
    """ggml_pad_ext_circular: pad_ext with the elements of the other end."""
    return pad_ext(ctx, a, lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3, True)


@constructor(
    Op.PAD_REFLECT_1D,
    pack="i:p0 i:p1",
    since="2024-12-03",
    example="x: f32[8, 4]; pad_reflect_1d(x, p0=2, p1=2)",
    shape="a.type = f32; a is contiguous; p0 < a.ne[0]; "
    "p1 < a.ne[0] -> f32[a.ne[0] + p0 + p1, a.ne[1], a.ne[2], a.ne[3]]",
    means={"p0": "elements in front", "p1": "elements behind"},
)
def pad_reflect_1d(ctx: Context, a: Tensor, p0: int, p1: int) -> Tensor:
    """ggml_pad_reflect_1d: each row mirrored at its ends, by p0 elements in front and p1 behind."""
    require = requirer("ggml_pad_reflect_1d")
    for name, p in (("p0", p0), ("p1", p1)):
        require(p >= 0, f"{name} >= 0", "{} is {}; it must be 0 or more", name, p)
    for name, p in (("p0", p0), ("p1", p1)):
        require(p < a.ne[0], f"{name} < a->ne[0]", "{} is {}: a row of {} has too few elements to mirror", name, p, a)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    return ctx.new_tensor(a.type, (a.ne[0] + p0 + p1, *a.ne[1:])).set_op(Op.PAD_REFLECT_1D, words(p0, p1), a)


@constructor(
    Op.ROLL,
    pack="i:shift0 i:shift1 i:shift2 i:shift3",
    since="2025-06-18",
    example="x: f32[8, 4]; roll(x, 1, 0, 0, 0)",
    shape="abs(shift0) < a.ne[0]; abs(shift1) < a.ne[1]; abs(shift2) < a.ne[2]; abs(shift3) < a.ne[3] -> a.type[a.ne]",
    means={"shift#": "places that elements move along dimension #"},
)
def roll(ctx: Context, a: Tensor, shift0: int, shift1: int, shift2: int, shift3: int) -> Tensor:
    """ggml_roll: the elements moved by a shift in each dimension; what leaves at one end comes in at the other."""
    require = requirer("ggml_roll")
    why = "the elements of a row of {:nb} must lie side by side"
    require(a.nb[0] == a.type.type_size, "a->nb[0] == ggml_type_size(a->type)", why, a)
    shifts = (shift0, shift1, shift2, shift3)
    for i, shift in enumerate(shifts):
        why = "{} cannot be moved by {} in dimension {}"
        require(abs(shift) < a.ne[i], f"abs(shift{i}) < a->ne[{i}]", why, a, shift, i)
    return ctx.dup_tensor(a).set_op(Op.ROLL, words(*shifts), a)


@constructor(
    Op.DIAG, example="x: f32[8, 1, 2]; diag(x)", shape="a.ne[1] = 1 -> a.type[a.ne[0], a.ne[0], a.ne[2], a.ne[3]]"
)
def diag(ctx: Context, a: Tensor) -> Tensor:
    """ggml_diag: a matrix with the row a on its diagonal, zero elsewhere."""
    requirer("ggml_diag")(a.ne[1] == 1, "a->ne[1] == 1", "{} must have one row per matrix", a)
    return ctx.new_tensor(a.type, (a.ne[0], a.ne[0], a.ne[2], a.ne[3])).set_op(Op.DIAG, (), a)


@constructor(
    Op.TRI,
    pack="i:type",
    choices={"type": TRI_TYPES},
    since="2025-11-13",
    example="x: f32[8, 8]; tri(x, type=lower_diag)",
    shape="a.type = f32; a is contiguous; a.ne[0] = a.ne[1] -> f32[a.ne]",
    means={"type": "which triangle is kept"},
)
def tri(ctx: Context, a: Tensor, type: int) -> Tensor:
    """ggml_tri: the triangle `type` of each square matrix of a (upper_diag, upper, lower_diag, lower), else zero."""
    require = requirer("ggml_tri")
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    require(a.ne[0] == a.ne[1], "a->ne[0] == a->ne[1]", "the matrices of {} must be square", a)
    return ctx.dup_tensor(a).set_op(Op.TRI, words(type), a)


def _arange_steps(start: float, stop: float, step: float) -> int:
    """(int64_t) ceilf((stop - start) / step), as x86 converts what does not fit."""
    span, step = f32(f32(stop) - f32(start)), f32(step)
    quotient = math.copysign(math.inf, span * math.copysign(1, step)) if step == 0 else f32(span / step)
    return math.ceil(quotient) if abs(quotient) < 2.0**63 else INT64_MIN


@constructor(
    Op.ARANGE,
    pack="f:start f:stop f:step",
    since="2024-03-03",
    example="arange(start=0, stop=8, step=1)",
    shape="stop > start -> f32[ceil((stop - start) / step)]",
    means={"start": "first value", "stop": "end, not reached", "step": "difference of two values"},
)
def arange(ctx: Context, start: float, stop: float, step: float) -> Tensor:
    """ggml_arange: start, start + step … below stop, in f32. It has no source."""
    why = "there is nothing from {} to {}; stop must be greater"
    requirer("ggml_arange")(f32(stop) > f32(start), "stop > start", why, start, stop)
    result = new_tensor(ctx, F32, (_arange_steps(start, stop, step),))
    return result.set_op(Op.ARANGE, words(float_bits(start), float_bits(stop), float_bits(step)))


@constructor(
    Op.TIMESTEP_EMBEDDING,
    pack="i:dim i:max_period",
    since="2024-03-03",
    example="t: f32[4]; timestep_embedding(t, dim=16, max_period=10000)",
    shape="-> f32[dim, timesteps.ne[0], 1, 1]",
    means={"dim": "length of a row of the result", "max_period": "longest period"},
)
def timestep_embedding(ctx: Context, timesteps: Tensor, dim: int, max_period: int) -> Tensor:
    """ggml_timestep_embedding: for each timestep the cosines and sines of `dim` / 2 frequencies, f32[dim, steps]."""
    return new_tensor(ctx, F32, (dim, timesteps.ne[0])).set_op(Op.TIMESTEP_EMBEDDING, words(dim, max_period), timesteps)


@kernel(Op.REPEAT)
def _repeat(x: Arrays, dst: Tensor) -> None:
    values, out = x.raw(source(dst)), x.raw(dst, "writes")
    if values.size and out.size:
        out[...] = x.xp.tile(values, [n // m for n, m in zip(out.shape, values.shape, strict=True)])


@kernel(Op.CONCAT)
def _concat(x: Arrays, dst: Tensor) -> None:
    a, b = sources_of(dst)
    if a.type.quantized:
        for i, t in enumerate((a, b)):
            requirer("ggml_compute_forward_concat")(
                t.ne[0] % t.type.block_size == 0,
                f"src{i}->ne[0] % ggml_blck_size(src{i}->type) == 0",
                "the rows of {} are not whole blocks of {}",
                t,
                t.type.block_size,
            )
    axis = 3 - param_i32(dst, 0)
    x.raw(dst, "writes")[...] = x.xp.concatenate([x.raw(a), x.raw(b)], axis=axis)


@kernel(Op.PAD)
def _pad(x: Arrays, dst: Tensor) -> None:
    values, out = x.raw(source(dst)), x.raw(dst, "writes")
    circular = param_i32(dst, 8) != 0
    inside: list[slice] = []
    for axis in range(4):
        left, right = param_i32(dst, 2 * (3 - axis)), param_i32(dst, 2 * (3 - axis) + 1)
        n, m = values.shape[axis], out.shape[axis]
        if circular:
            values = values.take((x.xp.arange(m) - left) % n, axis=axis)
        else:
            first, last = max(left, 0), min(m - right, m)
            inside.append(slice(first, last))
            cut = [slice(None)] * 4
            cut[axis] = slice(first - left, max(last - left, first - left))
            values = values[tuple(cut)]
    if circular:
        out[...] = values
    else:
        padded = x.xp.zeros(out.shape, dtype=out.dtype)
        padded[tuple(inside)] = values
        out[...] = padded


@kernel(Op.PAD_REFLECT_1D)
def _pad_reflect_1d(x: Arrays, dst: Tensor) -> None:
    values = operand(x, dst)
    n = values.shape[-1]
    places = x.xp.abs(x.xp.arange(dst.ne[0]) - param_i32(dst, 0))
    x.put(dst, values[..., x.xp.where(places < n, places, 2 * (n - 1) - places)])


@kernel(Op.ROLL)
def _roll(x: Arrays, dst: Tensor) -> None:
    shifts = tuple(param_i32(dst, 3 - axis) for axis in range(4))
    x.raw(dst, "writes")[...] = x.xp.roll(x.raw(source(dst)), shifts, axis=(0, 1, 2, 3))


@kernel(Op.DIAG)
def _diag(x: Arrays, dst: Tensor) -> None:
    values = operand(x, dst)
    x.put(dst, x.xp.where(x.xp.eye(dst.ne[0], dtype=bool), values[:, :, :1], x.xp.float32(0)))


@kernel(Op.TRI)
def _tri(x: Arrays, dst: Tensor) -> None:
    xp, kept = x.xp, param_i32(dst, 0)
    if kept not in TRI_TYPES.values():
        explanation = f"the type is {kept}; ggml knows {TRI_TYPES}"
        raise GgmlAbort("ggml_compute_forward_tri_f32", "invalid tri type", explanation=explanation)
    column = xp.arange(dst.ne[0])
    row = column[:, None]
    keep = (column >= row, column > row, column <= row, column < row)[kept]
    x.put(dst, xp.where(keep, operand(x, dst), xp.float32(0)))


@kernel(Op.ARANGE)
def _arange(x: Arrays, dst: Tensor) -> None:
    xp = x.xp
    start, step = xp.float32(param_f32(dst, 0)), xp.float32(param_f32(dst, 2))
    x.put(dst, start + step * xp.arange(dst.ne[0]).astype(xp.float32))


@kernel(Op.TIMESTEP_EMBEDDING)
def _timestep_embedding(x: Arrays, dst: Tensor) -> None:
    require_elements(dst, *sources_of(dst))
    xp, f = x.xp, x.xp.float32
    dim, max_period = param_i32(dst, 0), param_i32(dst, 1)
    half = dim // 2
    steps = operand(x, dst)[0, 0, 0][:, None]
    frequencies = xp.exp(-xp.log(f(max_period)) * xp.arange(half).astype(f) / f(half))
    angle = steps * frequencies
    parts = [xp.cos(angle), xp.sin(angle)]
    if dim % 2:
        parts.append(xp.zeros_like(steps))
    x.put(dst, xp.concatenate(parts, axis=1))
