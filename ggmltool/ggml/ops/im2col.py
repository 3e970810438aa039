"""im2col and its like: an image unfolded into the patches that lie under a kernel, and patches folded back.

The other convolutions and the pools share with them the extents as C computes them, windows and patches.

The kernel is the first source, [kw, kh, channels in, channels out], the image the second, [w, h, channels, batch].
Strides, paddings and dilations are s, p, d; 0 means along the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import and_
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import not_computable, param_i32, requirer, show, source, sources_of
from ggmltool.ggml.ops.registry import Arrays, Raw, constructor, int64_t, kernel, words
from ggmltool.ggml.tensor import Dims, Tensor, is_contiguous, is_matrix, nelements

WINDOW = {
    "s#": "the kernel moves on by so many elements in dimension #",
    "p#": "zeros beside the elements of dimension #, on both sides",
    "d#": "elements of the kernel lie so far apart in dimension #",
}
"""What the parameters of a window mean, for all ops that move one."""


def conv_output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """ggml_calc_conv_output_size, with C's division, which rounds towards zero."""
    if stride == 0:
        raise GgmlAbort(
            "ggml_calc_conv_output_size", "division by zero", explanation="the stride is 0; ggml divides by it"
        )
    n = size + 2 * padding - dilation * (kernel - 1) - 1
    quotient = abs(n) // abs(stride)
    return (quotient if (n < 0) == (stride < 0) else -quotient) + 1


def with_strides(t: Tensor, ne: Dims, nb: Dims) -> Tensor:
    """Another look at `t`'s memory: kernels of ggml that do not honour all strides read it so."""
    other = Tensor(t.type, ne, nb, name=t.name, id=t.id)
    other.buffer, other.data = t.buffer, t.data
    return other


def contiguous_planes(t: Tensor) -> Tensor:
    """`t` with dimensions 0 and 1 taken for contiguous, whatever nb1 says."""
    ts = t.type.type_size
    return with_strides(t, t.ne, (ts, ts * t.ne[0], t.nb[2], t.nb[3]))


def window(xp: Any, n_out: int, kernel: int, stride: int, padding: int, dilation: int, size: int) -> tuple[Any, Any]:
    """For each output place and kernel element the input place, clipped to the input, and whether it lies inside."""
    places = xp.arange(n_out)[:, None] * stride + xp.arange(kernel)[None, :] * dilation - padding
    inside = (places >= 0) & (places < size)
    return xp.clip(places, 0, max(size - 1, 0)), inside


def windows_of(xp: Any, dst: Tensor, places: Sequence[int]) -> list[tuple[Any, Any]]:
    """The windows of a convolution with so many places in each dimension, the width first; the width's comes last.

    Its first parameters are the strides, paddings and dilations of all dimensions.
    """
    a, b = sources_of(dst)
    n = len(places)
    s, p, d = ([param_i32(dst, k * n + i) for i in range(n)] for k in range(3))
    return [window(xp, places[i], a.ne[i], s[i], p[i], d[i], b.ne[i]) for i in reversed(range(n))]


def patches(xp: Any, image: Any, *windows: tuple[Any, Any]) -> Any:
    """image [..., h, w] to [..., oh, ow, kh, kw], zero outside, or as many dimensions as there are windows."""
    n = len(windows)
    image = not_empty(xp, image, n)
    spread = [tuple(slice(None) if d % n == i else None for d in range(2 * n)) for i in range(n)]
    inside = reduce(and_, (is_in[by] for (_, is_in), by in zip(windows, spread, strict=True)))
    taken = image[(..., *(at[by] for (at, _), by in zip(windows, spread, strict=True)))]
    return xp.where(inside, taken, xp.zeros((), dtype=taken.dtype))


def not_empty(xp: Any, image: Any, n_dims: int) -> Any:
    """The image, or if it has no places in its last dimensions one that has, none of which lies inside."""
    if 0 not in image.shape[-n_dims:]:
        return image
    return xp.zeros((*image.shape[:-n_dims], *(max(n, 1) for n in image.shape[-n_dims:])), dtype=image.dtype)


_TOO_SMALL = '"b too small compared to a"'


def _window_params(raw: Raw) -> dict[str, Any]:
    names = ("s0", "s1", "p0", "p1", "d0", "d1")
    return {**{name: raw.word(i) for i, name in enumerate(names)}, "is_2D": raw.word(6) == 1}


def _too_small(function: str, condition: str, a: Tensor, b: Tensor) -> GgmlAssert:
    return GgmlAssert(
        function,
        condition,
        f"the image {show(b)} with its padding is smaller than the kernel {show(a)} with its dilation",
    )


@constructor(
    Op.IM2COL,
    unpack=lambda raw: {**_window_params(raw), "dst_type": raw.type},
    example="kernel: f16[3, 3, 2, 4]; image: f32[8, 8, 2]; "
    "im2col(kernel, image, s0=1, s1=1, p0=1, p1=1, d0=1, d1=1, is_2D=true, dst_type=f16)",
    shape="a.ne[2] = b.ne[2] where is_2D; a.ne[1] = b.ne[1] where not is_2D; "
    "b.ne[3] = 1 where not is_2D -> dst_type[a.ne[0] * a.ne[1] * a.ne[2], out(b.ne[0], a.ne[0], s0, p0, "
    "d0), out(b.ne[1], a.ne[1], s1, p1, d1), b.ne[3]], in 1D dst_type[a.ne[0] * a.ne[1], out(b.ne[0], "
    "a.ne[0], s0, p0, d0), b.ne[2], 1]",
    means=WINDOW | {"is_2D": "whether the image has two dimensions", "dst_type": "type of the result"},
)
def im2col(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    s0: int,
    s1: int,
    p0: int,
    p1: int,
    d0: int,
    d1: int,
    is_2D: bool,  # noqa: N803 - ggml's name
    dst_type: DType,
) -> Tensor:
    """ggml_im2col: for each place of the kernel on the image a row with what lies under it.

    2D: [ic * kh * kw, ow, oh, n]; 1D: [ic * k, ow, n].
    """
    require = requirer("ggml_im2col")
    if is_2D:
        require(a.ne[2] == b.ne[2], "a->ne[2] == b->ne[2]", "{} and {}: the channels differ", a, b)
    else:
        require(b.ne[1] == a.ne[1], "b->ne[1] == a->ne[1]", "{} and {}: the channels differ", a, b)
        require(b.ne[3] == 1, "b->ne[3] == 1", "{} must have at most three dimensions", b)
    oh = conv_output_size(b.ne[1], a.ne[1], s1, p1, d1) if is_2D else 0
    ow = conv_output_size(b.ne[0], a.ne[0], s0, p0, d0)
    if is_2D and oh <= 0:
        raise _too_small("ggml_im2col", f"(!is_2D || OH > 0) && {_TOO_SMALL}", a, b)
    if ow <= 0:
        raise _too_small("ggml_im2col", f"(OW > 0) && {_TOO_SMALL}", a, b)
    kernel_size = a.ne[1] * a.ne[0]
    result = ctx.new_tensor(dst_type, (a.ne[2] * kernel_size, ow, oh, b.ne[3]) if is_2D else (kernel_size, ow, b.ne[2]))
    return result.set_op(Op.IM2COL, words(s0, s1, p0, p1, d0, d1, int(is_2D)), a, b)


@constructor(
    Op.IM2COL_BACK,
    unpack=lambda raw: {**_window_params(raw), "ne": raw.ne},
    since="2024-07-30",
    example="grad: f32[18, 8, 8]; kernel: f32[3, 3, 2, 4]; "
    "im2col_back(grad, kernel, ne=[8, 8, 2, 1], s0=1, s1=1, p0=1, p1=1, d0=1, d1=1, is_2D=true)",
    shape="-> f32[ne]",
    means=WINDOW | {"is_2D": "whether the image has two dimensions"},
)
def im2col_back(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    ne: Sequence[int],
    s0: int,
    s1: int,
    p0: int,
    p1: int,
    d0: int,
    d1: int,
    is_2D: bool,  # noqa: N803 - ggml's name
) -> Tensor:
    """ggml_im2col_back: a, the gradient of an im2col with kernel b, folded back into an image with the extents `ne`."""
    return ctx.new_tensor(F32, ne).set_op(Op.IM2COL_BACK, words(s0, s1, p0, p1, d0, d1, int(is_2D)), a, b)


def _im2col_3d_params(raw: Raw) -> dict[str, Any]:
    names = ("s0", "s1", "s2", "p0", "p1", "p2", "d0", "d1", "d2", "IC")
    return {**{name: raw.word(i) for i, name in enumerate(names)}, "dst_type": raw.type}


@constructor(
    Op.IM2COL_3D,
    unpack=_im2col_3d_params,
    since="2025-09-04",
    example="kernel: f16[3, 3, 3, 8]; volume: f32[8, 8, 8, 2]; "
    "im2col_3d(kernel, volume, IC=2, s0=1, s1=1, s2=1, p0=1, p1=1, p2=1, d0=1, d1=1, d2=1, dst_type=f16)",
    means=WINDOW | {"IC": "channels in", "dst_type": "type of the result"},
)
def im2col_3d(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    IC: int64_t,  # noqa: N803 - ggml's name
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    d0: int,
    d1: int,
    d2: int,
    dst_type: DType,
) -> Tensor:
    """ggml_im2col_3d: im2col for volumes b [w, h, d, n * IC], kernel a [kw, kh, kd, oc * IC]."""
    if IC == 0 or b.ne[3] // IC == 0:
        raise GgmlAbort("ggml_im2col_3d", "division by zero", explanation=f"{show(b)} has no {IC} channels")
    od = conv_output_size(b.ne[2], a.ne[2], s2, p2, d2)
    oh = conv_output_size(b.ne[1], a.ne[1], s1, p1, d1)
    ow = conv_output_size(b.ne[0], a.ne[0], s0, p0, d0)
    for name, size in (("OD", od), ("OH", oh), ("OW", ow)):
        if size <= 0:
            raise _too_small("ggml_im2col_3d", f"({name} > 0) && {_TOO_SMALL}", a, b)
    ne = (a.ne[0] * a.ne[1] * a.ne[2] * IC, ow, oh, od * (b.ne[3] // IC))
    return ctx.new_tensor(dst_type, ne).set_op(Op.IM2COL_3D, words(s0, s1, s2, p0, p1, p2, d0, d1, d2, IC), a, b)


@constructor(
    Op.COL2IM_1D,
    pack="i:s0 i:oc i:p0",
    since="2026-06-09",
    example="columns: f32[12, 8]; col2im_1d(columns, s0=2, oc=4, p0=0)",
    means={
        "s0": "places between two columns in the result",
        "oc": "channels out",
        "p0": "elements of the result that are cut off on both sides",
    },
)
def col2im_1d(ctx: Context, a: Tensor, s0: int, oc: int, p0: int) -> Tensor:
    """ggml_col2im_1d: the columns a [k * oc, length] added up into a signal [length of the result, oc]."""

    require = requirer("ggml_col2im_1d")

    def refuse(condition: str, why: str) -> GgmlAssert:
        return GgmlAssert("ggml_col2im_1d", condition, why)

    require(is_matrix(a), "ggml_is_matrix(a)", "{} must be a matrix", a)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    if a.type not in (F32, F16, BF16):
        condition = "a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_BF16"
        raise refuse(condition, f"{show(a)} must be f32, f16 or bf16")
    for name, value, low in (("s0", s0, 1), ("oc", oc, 1), ("p0", p0, 0)):
        require(value >= low, f"{name} >= 0" if low == 0 else f"{name} > 0", "{} is {}", name, value)
    k = a.ne[0] // oc
    length = (a.ne[1] - 1) * s0 + k - 2 * p0
    require(a.ne[0] == k * oc, "K_OC == K * oc", "the rows of {} cannot be divided by {} channels", a, oc)
    require(k > 0 and length > 0, "K > 0 && T_out > 0", "nothing is left of {}", a)
    return ctx.new_tensor(a.type, (length, oc)).set_op(Op.COL2IM_1D, words(s0, oc, p0), a)


@kernel(Op.IM2COL)
def im2col_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_im2col: it takes the planes of b for contiguous."""
    b = source(dst, 1)
    xp = x.xp
    rows, columns = windows_of(xp, dst, dst.ne[1:3])
    if param_i32(dst, 6) == 1:
        image = x.f32(contiguous_planes(b))
    else:
        image = x.f32(b)[0][:, :, None, :]
        rows = window(xp, 1, 1, 1, 0, 1, 1)
    taken = patches(xp, image, rows, columns)
    x.put(dst, xp.moveaxis(taken, 1, 3).reshape(dst.ne[::-1]))


@kernel(Op.IM2COL_BACK)
def im2col_back_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_im2col_back_f32: each element of the kernel adds its part of the gradient to the image."""
    a, b = sources_of(dst)
    s0, s1, p0, p1, d0, d1, is_2d = (param_i32(dst, i) for i in range(7))
    xp = x.xp
    w, h, channels, n = dst.ne if is_2d == 1 else (dst.ne[0], 1, dst.ne[1], dst.ne[2])
    kw, kh, ow, oh = b.ne[0], b.ne[1] if is_2d == 1 else 1, a.ne[1], a.ne[2] if is_2d == 1 else 1
    shape = (n, oh, ow, channels, kh, kw)
    if nelements(a) < prod(shape):
        raise not_computable(dst, f"{show(a)} has {nelements(a)} of the {prod(shape)} elements that are read")
    gradient = x.f32(a).reshape(-1)[: prod(shape)].reshape(shape).transpose(0, 3, 4, 5, 1, 2)
    ix, in_x = window(xp, ow, kw, s0, p0, d0, w)
    iy, in_y = window(xp, oh, kh, s1, p1, d1, h) if is_2d == 1 else window(xp, 1, 1, 1, 0, 1, 1)
    out = xp.zeros((n, channels, h, w), dtype="float32")
    for ky in range(kh):
        for kx in range(kw):
            rows, columns = in_y[:, ky], in_x[:, kx]
            part = gradient[:, :, ky, kx][:, :, rows][:, :, :, columns]
            out[:, :, iy[rows, ky][:, None], ix[columns, kx][None, :]] += part
    x.put(dst, out.reshape(dst.ne[::-1]))


@kernel(Op.IM2COL_3D)
def im2col_3d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_im2col_3d."""
    b, channels = source(dst, 1), param_i32(dst, 9)
    xp = x.xp
    n = b.ne[3] // channels
    volume = x.f32(b)[: n * channels].reshape(n, channels, *b.ne[2::-1])
    windows = windows_of(xp, dst, (dst.ne[1], dst.ne[2], dst.ne[3] // n))
    for i in range(n):
        taken = xp.moveaxis(patches(xp, volume[i], *windows), 0, 3)
        part = taken.reshape(dst.ne[3] // n, dst.ne[2], dst.ne[1], dst.ne[0])
        x.raw(dst, "writes")[i * part.shape[0] : (i + 1) * part.shape[0]] = x.encode(part, dst.type)


@kernel(Op.COL2IM_1D)
def col2im_1d_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_col2im_1d: overlapping columns are added up in f32, the padding is cut off."""
    a = source(dst)
    s0, oc, p0 = (param_i32(dst, i) for i in range(3))
    k, n = a.ne[0] // oc, a.ne[1]
    columns = x.f32(a)[0, 0].reshape(n, oc, k)
    whole = x.xp.zeros((oc, (n - 1) * s0 + k), dtype="float32")
    for i in range(k):
        whole[:, i : i + (n - 1) * s0 + 1 : s0] += columns[:, :, i].T
    x.put(dst, whole[:, p0 : p0 + dst.ne[0]])
