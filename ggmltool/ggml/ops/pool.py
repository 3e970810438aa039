"""Pooling: pool_1d, pool_2d and its backward pass; the largest or the average of a window."""

from __future__ import annotations

import struct
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.im2col import WINDOW, not_empty, window, with_strides
from ggmltool.ggml.ops.operands import not_computable, param_i32, requirer, show, source, sources_of
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor, contiguous_nb, nrows

POOL_MAX, POOL_AVG = 0, 1
POOLS = {"max": POOL_MAX, "avg": POOL_AVG}
"""ggml_op_pool."""

_MEANS = WINDOW | {"op": "which function", "k#": "size of the window in dimension #"}
_CHOICES = {"op": POOLS}
FLT_MAX = 3.4028234663852886e38


def _f32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def pool_output_size(size: int, kernel: int, stride: int, padding: float) -> int:
    """ggml_calc_pool_output_size: computed in float32, as C does because `padding` is a float."""
    n = _f32(_f32(_f32(size) + _f32(2 * _f32(padding))) - _f32(kernel))
    if stride == 0:
        return -1
    return int(_f32(_f32(n / _f32(stride)) + 1))


def _require_positive(function: str, i: int, size: int, a: Tensor) -> None:
    requirer(function)(size > 0, f"ne[{i}] > 0", "{} with its padding is smaller than the window in dimension {}", a, i)


@constructor(
    Op.POOL_1D,
    pack="i:op i:k0 i:s0 i:p0",
    choices=_CHOICES,
    example="x: f32[8, 4]; pool_1d(x, op=max, k0=2, s0=2, p0=0)",
    shape="-> f32[pool(a.ne[0], k0, s0, p0), a.ne[1], a.ne[2], a.ne[3]]",
    means=_MEANS,
)
def pool_1d(ctx: Context, a: Tensor, op: int, k0: int, s0: int, p0: int) -> Tensor:
    """ggml_pool_1d: windows of `k0` elements, `s0` apart, of rows padded by `p0` on both sides."""
    n0 = pool_output_size(a.ne[0], k0, s0, p0)
    _require_positive("ggml_pool_1d", 0, n0, a)
    return ctx.new_tensor(F32, (n0, *a.ne[1:])).set_op(Op.POOL_1D, words(op, k0, s0, p0), a)


@constructor(
    Op.POOL_2D,
    pack="i:op i:k0 i:k1 i:s0 i:s1 i:p0 i:p1",
    choices=_CHOICES,
    example="image: f32[8, 8, 2]; pool_2d(image, op=avg, k0=2, k1=2, s0=2, s1=2, p0=0, p1=0)",
    shape="-> f32[pool(a.ne[0], k0, s0, p0), pool(a.ne[1], k1, s1, p1), a.ne[2], a.ne[3]]",
    means=_MEANS,
)
def pool_2d(ctx: Context, a: Tensor, op: int, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float) -> Tensor:
    """ggml_pool_2d: windows of `k0` by `k1` elements. Paddings may be fractions; the node keeps their whole part."""
    n0 = pool_output_size(a.ne[0], k0, s0, p0)
    n1 = pool_output_size(a.ne[1], k1, s1, p1)
    _require_positive("ggml_pool_2d", 0, n0, a)
    _require_positive("ggml_pool_2d", 1, n1, a)
    result = ctx.new_tensor(F32, (n0, n1, a.ne[2], a.ne[3]))
    return result.set_op(Op.POOL_2D, words(op, k0, k1, s0, s1, int(p0), int(p1)), a)


@constructor(
    Op.POOL_2D_BACK,
    pack="i:op i:k0 i:k1 i:s0 i:s1 i:p0 i:p1",
    choices=_CHOICES,
    since="2024-07-30",
    example="grad: f32[4, 4, 2]; image: f32[8, 8, 2]; "
    "pool_2d_back(grad, image, op=avg, k0=2, k1=2, s0=2, s1=2, p0=0, p1=0)",
    shape="-> f32[af.ne]",
    means=_MEANS,
)
def pool_2d_back(
    ctx: Context, a: Tensor, af: Tensor, op: int, k0: int, k1: int, s0: int, s1: int, p0: float, p1: float
) -> Tensor:
    """ggml_pool_2d_back: the gradient of pool_2d(af), from the gradient a of its result."""
    return ctx.new_tensor(F32, af.ne).set_op(Op.POOL_2D_BACK, words(op, k0, k1, s0, s1, int(p0), int(p1)), a, af)


def _pool(xp: Any, op: int, image: Any, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> tuple[Any, Any]:
    """The largest or the sum of each window of image [..., h, w], and how many elements each window has."""
    iy, in_y = rows
    ix, in_x = columns
    image = not_empty(xp, image, 2)
    shape = (*image.shape[:-2], iy.shape[0], ix.shape[0])
    out = xp.full(shape, -FLT_MAX if op == POOL_MAX else 0, dtype="float32")
    count = xp.zeros(shape[-2:], dtype="int64")
    for ky in range(iy.shape[1]):
        for kx in range(ix.shape[1]):
            inside = in_y[:, ky][:, None] & in_x[:, kx][None, :]
            taken = image[..., iy[:, ky][:, None], ix[:, kx][None, :]]
            if op == POOL_MAX:
                out = xp.where(inside & ~(taken < out), taken, out)
            else:
                out = xp.where(inside, out + taken, out)
            count += inside
    return out, count


@kernel(Op.POOL_1D)
def pool_1d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_pool_1d: an average counts only the elements inside. Rows are nb1 apart throughout."""
    a = source(dst)
    op = param_i32(dst, 0)
    k0, s0, p0 = (param_i32(dst, i) for i in (1, 2, 3))
    n = nrows(a)
    rows = with_strides(a, (a.ne[0], n, 1, 1), (a.type.type_size, a.nb[1], a.nb[1] * n, a.nb[1] * n))
    columns = window(x.xp, dst.ne[0], k0, s0, p0, 1, a.ne[0])
    out, count = _pool(x.xp, op, x.f32(rows)[0, 0][:, None, :], window(x.xp, 1, 1, 1, 0, 1, 1), columns)
    if op == POOL_AVG:
        out = x.xp.where(count > 0, out / x.xp.maximum(count, 1), 0)
    x.put(dst, out.astype("float32").reshape(dst.ne[::-1]))


@kernel(Op.POOL_2D)
def pool_2d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_pool_2d: an average divides by the whole window. Planes are nb2 apart throughout."""
    a = source(dst)
    op = param_i32(dst, 0)
    k0, k1, s0, s1, p0, p1 = (param_i32(dst, i) for i in range(1, 7))
    n = a.ne[2] * a.ne[3]
    planes = with_strides(a, (a.ne[0], a.ne[1], n, 1), (a.type.type_size, a.nb[1], a.nb[2], a.nb[2] * n))
    rows = window(x.xp, dst.ne[1], k1, s1, p1, 1, a.ne[1])
    columns = window(x.xp, dst.ne[0], k0, s0, p0, 1, a.ne[0])
    out, _ = _pool(x.xp, op, x.f32(planes)[0], rows, columns)
    if op == POOL_AVG:
        out = out / x.xp.float32(k0 * k1)
    x.put(dst, out.reshape(dst.ne[::-1]))


@kernel(Op.POOL_2D_BACK)
def pool_2d_back_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_pool_2d_back: the gradient goes to the largest element of a window, or to all of them."""
    a, af = sources_of(dst)
    xp = x.xp
    op, k0, k1, s0, s1, p0, p1 = (param_i32(dst, i) for i in range(7))
    w, h, n = dst.ne[0], dst.ne[1], dst.ne[2] * dst.ne[3]
    if a.ne[2] * a.ne[3] < n or 0 in a.ne:
        raise not_computable(dst, f"{show(a)} has not the {n} planes of {show(af)}")
    gradient = x.f32(with_strides(a, a.ne, contiguous_nb(a.type, a.ne))).reshape(-1, a.ne[1], a.ne[0])[:n]
    image = x.f32(with_strides(af, dst.ne, dst.nb)).reshape(n, h, w)
    iy, in_y = window(xp, a.ne[1], k1, s1, p1, 1, h)
    ix, in_x = window(xp, a.ne[0], k0, s0, p0, 1, w)
    out = xp.zeros((n, h, w), dtype="float32")
    if op == POOL_AVG:
        part = gradient / xp.float32(k0 * k1)
        for ky in range(k1):
            for kx in range(k0):
                rows, columns = in_y[:, ky], in_x[:, kx]
                out[:, iy[rows, ky][:, None], ix[columns, kx][None, :]] += part[:, rows][:, :, columns]
        x.put(dst, out.reshape(dst.ne[::-1]))
        return
    largest = xp.full(gradient.shape, -FLT_MAX, dtype="float32")
    place = xp.full(gradient.shape, -1, dtype="int64")
    for ky in range(k1):
        for kx in range(k0):
            inside = in_y[:, ky][:, None] & in_x[:, kx][None, :]
            taken = image[:, iy[:, ky][:, None], ix[:, kx][None, :]]
            better = inside & ~(taken <= largest)
            largest = xp.where(better, taken, largest)
            place = xp.where(better, iy[:, ky][:, None] * w + ix[:, kx][None, :], place)
    plane = xp.broadcast_to(xp.arange(n)[:, None, None], place.shape)
    found = place >= 0
    xp.add.at(out.reshape(n, h * w), (plane[found], place[found]), gradient[found])
    x.put(dst, out.reshape(dst.ne[::-1]))
