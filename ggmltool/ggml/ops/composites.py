"""Functions of ggml's that build several nodes and have no op of their own name: convolutions by im2col, argsort_top_k.

They are written as any constructor and give the last node; the others hang on it as its sources. conv_2d, conv_2d_dw
and conv_3d are ops, too, and a scenario's node of that name is the op's; what ggml's function of that name builds ends
in _im2col here.
"""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.im2col import im2col, im2col_3d
from ggmltool.ggml.ops.matmul import mul_mat
from ggmltool.ggml.ops.operands import requirer
from ggmltool.ggml.ops.reduce import SORT_ORDERS, argsort
from ggmltool.ggml.ops.registry import COMPOSITES, Build, Constructor, int64_t
from ggmltool.ggml.ops.views import cont, permute, reshape, view
from ggmltool.ggml.tensor import Tensor


def _composite(op: Op) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        COMPOSITES[build.__name__] = Constructor(op, build.__name__, build=build)
        return build

    return register


def _columns_type(kernel: Tensor) -> DType:
    return F32 if kernel.type is BF16 else F16


@_composite(Op.RESHAPE)
def conv_1d(ctx: Context, a: Tensor, b: Tensor, s0: int, p0: int, d0: int) -> Tensor:
    """ggml_conv_1d: the kernel a [K, IC, OC] over the signals b [L, IC, N]; the result is [OL, OC, N]."""
    columns = im2col(ctx, a, b, s0, 0, p0, 0, d0, 0, False, _columns_type(a))
    k, n_out, n, _ = columns.ne
    flat = reshape(ctx, columns, ne=(k, n * n_out))
    kernel = reshape(ctx, a, ne=(a.ne[0] * a.ne[1], a.ne[2]))
    return reshape(ctx, mul_mat(ctx, flat, kernel), ne=(n_out, a.ne[2], n))


@_composite(Op.RESHAPE)
def conv_1d_ph(ctx: Context, a: Tensor, b: Tensor, s: int, d: int) -> Tensor:
    """ggml_conv_1d_ph: conv_1d with half of the kernel's size as padding."""
    return conv_1d(ctx, a, b, s, a.ne[0] // 2, d)


@_composite(Op.RESHAPE)
def conv_1d_dw(ctx: Context, a: Tensor, b: Tensor, s0: int, p0: int, d0: int) -> Tensor:
    """ggml_conv_1d_dw: a kernel of its own for each channel."""
    signals = reshape(ctx, b, ne=(b.ne[0], 1, b.ne[1], b.ne[2]))
    columns = im2col(ctx, a, signals, s0, 0, p0, 0, d0, 0, False, _columns_type(a))
    result = mul_mat(ctx, columns, a)
    return reshape(ctx, result, ne=(result.ne[0], result.ne[2], 1))


@_composite(Op.RESHAPE)
def conv_1d_dw_ph(ctx: Context, a: Tensor, b: Tensor, s0: int, d0: int) -> Tensor:
    """ggml_conv_1d_dw_ph: conv_1d_dw with half of the kernel's size as padding."""
    return conv_1d_dw(ctx, a, b, s0, a.ne[0] // 2, d0)


@_composite(Op.CONT)
def conv_2d_im2col(ctx: Context, a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int) -> Tensor:
    """ggml_conv_2d: the kernel a [KW, KH, IC, OC] over the images b [W, H, IC, N], as a product with b's patches."""
    columns = im2col(ctx, a, b, s0, s1, p0, p1, d0, d1, True, _columns_type(a))
    k, width, height, n = columns.ne
    flat = reshape(ctx, columns, ne=(k, n * height * width))
    kernel = reshape(ctx, a, ne=(a.ne[0] * a.ne[1] * a.ne[2], a.ne[3]))
    result = reshape(ctx, mul_mat(ctx, flat, kernel), ne=(width, height, n, a.ne[3]))
    return cont(ctx, permute(ctx, result, 0, 1, 3, 2))


@_composite(Op.RESHAPE)
def conv_2d_dw_im2col(
    ctx: Context, a: Tensor, b: Tensor, s0: int, s1: int, p0: int, p1: int, d0: int, d1: int
) -> Tensor:
    """ggml_conv_2d_dw: a kernel [KW, KH, 1, C] of its own for each channel of the images b [W, H, C, N]."""
    kernel = reshape(ctx, a, ne=(a.ne[0], a.ne[1], 1, a.ne[2] * a.ne[3]))
    images = reshape(ctx, b, ne=(b.ne[0], b.ne[1], 1, b.ne[2] * b.ne[3]))
    columns = im2col(ctx, kernel, images, s0, s1, p0, p1, d0, d1, True, _columns_type(a))
    k, width, height, _ = columns.ne
    flat = reshape(ctx, columns, ne=(k, height * width, b.ne[2], b.ne[3]))
    kernel = reshape(ctx, kernel, ne=(kernel.ne[0] * kernel.ne[1], kernel.ne[2], kernel.ne[3], 1))
    return reshape(ctx, mul_mat(ctx, kernel, flat), ne=(width, height, b.ne[2], b.ne[3]))


@_composite(Op.RESHAPE)
def conv_3d_im2col(
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
) -> Tensor:
    """ggml_conv_3d: the kernel a [KW, KH, KD, IC * OC] over the volumes b [W, H, D, IC * N]."""
    columns = im2col_3d(ctx, a, b, IC, s0, s1, s2, p0, p1, p2, d0, d1, d2, _columns_type(a))
    n_out, n = a.ne[3] // IC, b.ne[3] // IC
    k, width, height, depth = columns.ne
    flat = reshape(ctx, columns, ne=(k, depth * height * width))
    kernel = reshape(ctx, a, ne=(a.ne[0] * a.ne[1] * a.ne[2] * IC, n_out))
    result = reshape(ctx, mul_mat(ctx, flat, kernel), ne=(width * height, depth // n, n, n_out))
    result = cont(ctx, permute(ctx, result, 0, 1, 3, 2))
    return reshape(ctx, result, ne=(width, height, depth // n, n_out * n))


@_composite(Op.CONT)
def conv_2d_sk_p0(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_conv_2d_sk_p0: patches beside each other, as large as the kernel; no padding."""
    return conv_2d_im2col(ctx, a, b, a.ne[0], a.ne[1], 0, 0, 1, 1)


@_composite(Op.CONT)
def conv_2d_s1_ph(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_conv_2d_s1_ph: a patch around each element, with half of the kernel's size as padding."""
    return conv_2d_im2col(ctx, a, b, 1, 1, a.ne[0] // 2, a.ne[1] // 2, 1, 1)


@_composite(Op.VIEW)
def argsort_top_k(ctx: Context, a: Tensor, k: int) -> Tensor:
    """ggml_argsort_top_k: the places of the k largest elements of each row, in order: a view of an argsort."""
    requirer("ggml_argsort_top_k")(a.ne[0] >= k, "a->ne[0] >= k", "{} elements cannot be chosen from {}", k, a)
    order = argsort(ctx, a, SORT_ORDERS["desc"])
    return view(ctx, order, (k, *order.ne[1:]), order.nb[1:])
