"""Direct convolutions: conv_2d, conv_2d_dw, conv_3d and the transposed ones.

The kernel is the first source, [kw, kh, channels in, channels out], the image the second, [w, h, channels, batch].
Strides, paddings and dilations are s, p, d; 0 means along the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.im2col import (
    WINDOW,
    contiguous_planes,
    conv_output_size,
    not_empty,
    patches,
    window,
    windows_of,
    with_strides,
)
from ggmltool.ggml.ops.operands import (
    f32,
    not_computable,
    param_i32,
    require_stride,
    requirer,
    show,
    source,
    sources_of,
)
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor, contiguous_nb, is_contiguous, is_contiguous_channels, is_matrix, nrows
from ggmltool.ggml.values.product import times

_SPD = "i:s0 i:s1 i:p0 i:p1 i:d0 i:d1"


@constructor(
    Op.CONV_2D,
    "conv_2d",
    "conv_2d_direct",
    pack=_SPD,
    since="2025-06-30",
    example="kernel: f16[3, 3, 2, 4]; image: f32[8, 8, 2]; conv_2d(kernel, image, s0=1, s1=1, p0=1, p1=1)",
    shape="a.ne[2] = b.ne[2] -> b.type[out(b.ne[0], a.ne[0], s0, p0, d0), out(b.ne[1], a.ne[1], s1, p1, d1), "
    "a.ne[3], b.ne[3]]",
    means=WINDOW,
)
def conv_2d(ctx: Context, a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int = 1, d1: int = 1) -> Tensor:
    """ggml_conv_2d_direct: the op CONV_2D (ggml_conv_2d is im2col and mul_mat instead)."""
    why = "{} and {}: the channels (ne[2]) differ"
    requirer("ggml_conv_2d_direct")(a.ne[2] == b.ne[2], "a->ne[2] == b->ne[2]", why, a, b)
    ow = conv_output_size(b.ne[0], a.ne[0], s0, p0, d0)
    oh = conv_output_size(b.ne[1], a.ne[1], s1, p1, d1)
    return ctx.new_tensor(b.type, (ow, oh, a.ne[3], b.ne[3])).set_op(Op.CONV_2D, words(s0, s1, p0, p1, d0, d1), a, b)


@constructor(
    Op.CONV_2D_DW,
    "conv_2d_dw",
    "conv_2d_dw_direct",
    pack="i:stride0 i:stride1 i:pad0 i:pad1 i:dilation0 i:dilation1",
    since="2025-04-17",
    example="kernel: f16[3, 3, 1, 2]; image: f32[8, 8, 2]; "
    "conv_2d_dw(kernel, image, stride0=1, stride1=1, pad0=1, pad1=1)",
    shape="a.ne[2] = 1; "
    "a.ne[3] = b.ne[2] -> b.type[out(b.ne[0], a.ne[0], stride0, pad0, dilation0), out(b.ne[1], a.ne[1], "
    "stride1, pad1, dilation1), b.ne[2], b.ne[3]]",
    means={
        "stride#": "the kernel moves on by so many elements in dimension #",
        "pad#": "zeros beside the elements of dimension #, on both sides",
        "dilation#": "elements of the kernel lie so far apart in dimension #",
    },
)
def conv_2d_dw(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    stride0: int,
    stride1: int,
    pad0: int,
    pad1: int,
    dilation0: int = 1,
    dilation1: int = 1,
) -> Tensor:
    """ggml_conv_2d_dw_direct: each channel with its own kernel, a [kw, kh, 1, channels].

    Where the channels of b lie innermost, so do those of the result.
    """
    require = requirer("ggml_conv_2d_dw_direct")
    require(a.ne[2] == 1, "a->ne[2] == 1", "{} must have one kernel per channel: ne[2] is 1", a)
    require(a.ne[3] == b.ne[2], "a->ne[3] == b->ne[2]", "{} must have a kernel per channel of {}", a, b)
    ow = conv_output_size(b.ne[0], a.ne[0], stride0, pad0, dilation0)
    oh = conv_output_size(b.ne[1], a.ne[1], stride1, pad1, dilation1)
    result = ctx.new_tensor(b.type, (ow, oh, b.ne[2], b.ne[3]))
    if is_contiguous_channels(b):
        require(result.type.block_size == 1, "ggml_blck_size(result->type) == 1", "{} is quantized", b)
        ts = result.type.type_size
        nb0 = result.ne[2] * ts
        result.set_layout(result.ne, (nb0, result.ne[0] * nb0, ts, result.nb[3]))
    return result.set_op(Op.CONV_2D_DW, words(stride0, stride1, pad0, pad1, dilation0, dilation1), a, b)


@constructor(
    Op.CONV_3D,
    "conv_3d",
    "conv_3d_direct",
    pack="i:s0 i:s1 i:s2 i:p0 i:p1 i:p2 i:d0 i:d1 i:d2 i:c i:n i:oc",
    since="2025-08-22",
    example="kernel: f16[3, 3, 3, 8]; volume: f32[8, 8, 8, 2]; "
    "conv_3d(kernel, volume, s0=1, s1=1, s2=1, p0=1, p1=1, p2=1, d0=1, d1=1, d2=1, c=2, n=1, oc=4)",
    shape="a.ne[3] = c * oc; "
    "b.ne[3] = c * n -> f32[out(b.ne[0], a.ne[0], s0, p0, d0), out(b.ne[1], a.ne[1], s1, p1, d1), "
    "out(b.ne[2], a.ne[2], s2, p2, d2), oc * n]",
    means=WINDOW | {"c": "channels in", "n": "volumes in a batch", "oc": "channels out"},
)
def conv_3d(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    d0: int,
    d1: int,
    d2: int,
    c: int,
    n: int,
    oc: int,
) -> Tensor:
    """ggml_conv_3d_direct: kernel a [kw, kh, kd, c * oc], volumes b [w, h, d, c * n] (ggml_conv_3d is other nodes)."""
    require = requirer("ggml_conv_3d_direct")
    require(a.ne[3] == c * oc, "a->ne[3] == (int64_t) c * oc", "{} must have {} times {} kernels", a, c, oc)
    require(b.ne[3] == c * n, "b->ne[3] == (int64_t) c * n", "{} must have {} times {} channels", b, c, n)
    ow, oh, od = (
        conv_output_size(b.ne[i], a.ne[i], s, p, d)
        for i, (s, p, d) in enumerate(((s0, p0, d0), (s1, p1, d1), (s2, p2, d2)))
    )
    result = ctx.new_tensor(F32, (ow, oh, od, oc * n))
    return result.set_op(Op.CONV_3D, words(s0, s1, s2, p0, p1, p2, d0, d1, d2, c, n, oc), a, b)


@constructor(
    Op.CONV_TRANSPOSE_1D,
    pack="i:s0 i:p0 i:d0",
    example="kernel: f32[3, 4, 2]; x: f32[8, 2]; conv_transpose_1d(kernel, x, s0=2)",
    shape="a.ne[2] = b.ne[1]; a.ne[3] = 1; b is a matrix -> f32[(b.ne[0] - 1) * s0 + a.ne[0], a.ne[1], 1, 1]",
    means={"s0": "places between two elements of the signal in the result", "p0": "must be 0", "d0": "must be 1"},
)
def conv_transpose_1d(ctx: Context, a: Tensor, b: Tensor, s0: int, p0: int = 0, d0: int = 1) -> Tensor:
    """ggml_conv_transpose_1d: kernel a [k, channels out, channels in], signal b [length, channels in]."""

    require = requirer("ggml_conv_transpose_1d")

    require(is_matrix(b), "ggml_is_matrix(b)", "{} must be a matrix: length, channels", b)
    require(a.ne[2] == b.ne[1], "a->ne[2] == b->ne[1]", "{} and {}: the channels differ", a, b)
    require(a.ne[3] == 1, "a->ne[3] == 1", "{} must have at most three dimensions", a)
    require(p0 == 0, "p0 == 0", "ggml has no padding here, p0 is {}", p0)
    require(d0 == 1, "d0 == 1", "ggml has no dilation here, d0 is {}", d0)
    result = ctx.new_tensor(F32, ((b.ne[0] - 1) * s0 + (a.ne[0] - 1) + 1, a.ne[1], b.ne[2], 1))
    return result.set_op(Op.CONV_TRANSPOSE_1D, words(s0, p0, d0), a, b)


@constructor(
    Op.CONV_TRANSPOSE_2D,
    "conv_transpose_2d",
    "conv_transpose_2d_p0",
    pack="i:stride",
    example="kernel: f16[3, 3, 4, 2]; image: f32[8, 8, 2]; conv_transpose_2d(kernel, image, stride=2)",
    shape="a.ne[3] = b.ne[2] -> f32[(b.ne[0] - 1) * stride + a.ne[0], (b.ne[1] - 1) * stride + a.ne[1], a.ne[2], "
    "b.ne[3]]",
    means={"stride": "places between two elements of the image in the result"},
    prototype={"conv_transpose_2d_p0": "tti"},
)
def conv_transpose_2d(ctx: Context, a: Tensor, b: Tensor, stride: int) -> Tensor:
    """ggml_conv_transpose_2d_p0: kernel a [kw, kh, channels out, channels in], no padding."""
    why = "{} and {}: the channels differ"
    requirer("ggml_conv_transpose_2d_p0")(a.ne[3] == b.ne[2], "a->ne[3] == b->ne[2]", why, a, b)
    ow, oh = ((b.ne[i] - 1) * stride + a.ne[i] for i in (0, 1))
    return ctx.new_tensor(F32, (ow, oh, a.ne[2], b.ne[3])).set_op(Op.CONV_TRANSPOSE_2D, words(stride), a, b)


def _as_kernel(x: Arrays, a: Tensor, b: Tensor) -> Any:
    """The image b in f32, rounded to the kernel's type where that is a half-precision one."""
    return x.decode(x.encode(x.f32(b), a.type), a.type)


def _convolve(x: Arrays, dst: Tensor, windows: Sequence[Any], n: int, c: int, oc: int) -> None:
    """Patches times kernels, one of `n` images of `c` channels at a time; a half-precision kernel rounds b."""
    a, b = sources_of(dst)
    images = _as_kernel(x, a, b).reshape(n, c, *b.ne[len(windows) - 1 :: -1])
    kernels = x.f32(a).reshape(oc, -1)
    out = x.xp.empty(dst.ne[::-1], dtype="float32")
    parts = out.reshape(n, oc, -1)
    for i in range(n):
        taken = x.xp.moveaxis(patches(x.xp, images[i], *windows), 0, len(windows)).reshape(parts.shape[-1], -1)
        parts[i] = times(kernels, taken.T)
    x.put(dst, out)


@kernel(Op.CONV_2D)
def conv_2d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_conv_2d."""
    a, b = sources_of(dst)
    _convolve(x, dst, windows_of(x.xp, dst, dst.ne[:2]), b.ne[3], b.ne[2], a.ne[3])


@kernel(Op.CONV_2D_DW)
def conv_2d_dw_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_conv_2d_dw: a sum over the kernel's elements, for all channels at once."""
    a, b = sources_of(dst)
    kernels = x.f32(with_strides(a, a.ne, contiguous_nb(a.type, a.ne)) if is_contiguous(b) else a)
    xp = x.xp
    (iy, in_y), (ix, in_x) = windows_of(xp, dst, dst.ne[:2])
    image = x.f32(b)
    out = xp.zeros(dst.ne[::-1], dtype="float32")
    for ky in range(a.ne[1]):
        for kx in range(a.ne[0]):
            inside = in_y[:, ky][:, None] & in_x[:, kx][None, :]
            taken = xp.where(inside, image[:, :, iy[:, ky][:, None], ix[:, kx][None, :]], xp.float32(0))
            out += taken * kernels[:, 0, ky, kx][None, :, None, None]
    x.put(dst, out)


@kernel(Op.CONV_3D)
def conv_3d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_conv_3d."""
    c, n, oc = (param_i32(dst, i) for i in (9, 10, 11))
    _convolve(x, dst, windows_of(x.xp, dst, dst.ne[:3]), n, c, oc)


@kernel(Op.CONV_TRANSPOSE_1D)
def conv_transpose_1d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_conv_transpose_1d: each element of the signal adds a scaled kernel to the result."""
    a, b = sources_of(dst)
    signal = _as_kernel(x, a, b)
    kernels = x.f32(a)
    stride, length = param_i32(dst, 0), b.ne[0]
    require_stride(dst, stride)
    out = x.xp.zeros((dst.ne[1], dst.ne[0]), dtype="float32")
    for i in range(a.ne[0]):
        out[:, i : i + (length - 1) * stride + 1 : stride] += kernels[0, :, :, i].T @ signal[0, 0]
    x.put(dst, out)


@kernel(Op.CONV_TRANSPOSE_2D)
def conv_transpose_2d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_conv_transpose_2d: all images of the batch; in older ggml only the first one, and the others
    stay zero.
    """
    a, b = sources_of(dst)
    image = _as_kernel(x, a, b)
    kernels = x.f32(contiguous_planes(a))
    stride, (w, h) = param_i32(dst, 0), b.ne[:2]
    require_stride(dst, stride)
    out = x.xp.zeros(dst.ne[::-1], dtype="float32")
    for i in range(b.ne[3] if x.rules.transposes_batches else 1):
        flat = image[i].reshape(b.ne[2], h * w)
        for ky in range(a.ne[1]):
            for kx in range(a.ne[0]):
                part = (kernels[:, :, ky, kx].T @ flat).reshape(dst.ne[2], h, w)
                rows = slice(ky, ky + (h - 1) * stride + 1, stride)
                columns = slice(kx, kx + (w - 1) * stride + 1, stride)
                out[i, :, rows, columns] += part
    x.put(dst, out)


POOL_MAX, POOL_AVG = 0, 1
POOLS = {"max": POOL_MAX, "avg": POOL_AVG}
"""ggml_op_pool."""

_MEANS = WINDOW | {"op": "which function", "k#": "size of the window in dimension #"}
_CHOICES = {"op": POOLS}
FLT_MAX = 3.4028234663852886e38


def pool_output_size(size: int, kernel: int, stride: int, padding: float) -> int:
    """ggml_calc_pool_output_size: computed in float32, as C does because `padding` is a float."""
    n = f32(f32(f32(size) + f32(2 * f32(padding))) - f32(kernel))
    if stride == 0:
        return -1
    return int(f32(f32(n / f32(stride)) + 1))


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
