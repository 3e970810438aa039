"""Copies: cpy, cast, cont and dup. Elements keep their order and may change type, strides and extents."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.explain import show
from ggmltool.ggml.ops.registry import Arrays, constructor, int64_t, kernel
from ggmltool.ggml.tensor import Tensor, cut_name, nelements


@constructor(Op.DUP, inplace=True, example="x: f32[8, 4]; dup(x)", shape="-> a.type[a.ne]")
def dup(ctx: Context, a: Tensor, *, inplace: bool = False) -> Tensor:
    """ggml_dup: a contiguous copy of a."""
    result = ctx.view_tensor(a) if inplace else ctx.dup_tensor(a)
    result.set_op(Op.DUP, (), a)
    return result


@constructor(
    Op.CPY, example="x: f32[8, 4]; cache: f16[8, 4]; cpy(x, cache)", shape="a has as many elements as b -> b.type[b.ne]"
)
def cpy(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_cpy: a's elements into b's memory; the result is a view of b."""
    if nelements(a) != nelements(b):
        raise GgmlAssert(
            "ggml_cpy_impl",
            "ggml_nelements(a) == ggml_nelements(b)",
            f"{show(a)} has {nelements(a)} elements, {show(b)} has {nelements(b)}",
        )
    result = ctx.view_tensor(b)
    result.name = cut_name(f"{b.name} (copy of {a.name})" if b.name else f"{a.name} (copy)")
    result.set_op(Op.CPY, (), a, b)
    return result


@constructor(Op.CPY, slots="a self", unpack=lambda raw: {"type": raw.type}, shape="-> type[a.ne]")
def cast(ctx: Context, a: Tensor, type: DType) -> Tensor:
    """ggml_cast: a copy of a in another type, a CPY node that is its own second source."""
    result = ctx.new_tensor(type, a.ne)
    result.name = cut_name(f"{a.name} (copy)")
    result.set_op(Op.CPY, (), a, result)
    return result


@constructor(
    Op.CONT, unpack=lambda raw: {"ne": raw.ne}, example="x: f32[8, 4]; cont(x)", shape="-> a.type[a.ne]", prototype="t"
)
def cont(ctx: Context, a: Tensor, ne: Sequence[int] | None = None) -> Tensor:
    """ggml_cont, and with `ne` ggml_cont_1d … _4d: a contiguous copy, with other extents if they are given."""
    if ne is not None:
        dims = (*ne, 1, 1, 1)[:4]
        if nelements(a) != dims[0] * dims[1] * dims[2] * dims[3]:
            raise GgmlAssert(
                "ggml_cont_4d",
                "ggml_nelements(a) == (ne0*ne1*ne2*ne3)",
                f"{show(a)} has {nelements(a)} elements, {list(ne)} would have {dims[0] * dims[1] * dims[2] * dims[3]}",
            )
    result = ctx.new_tensor(a.type, a.ne if ne is None else ne)
    result.name = cut_name(f"{a.name} (cont)")
    result.set_op(Op.CONT, (), a)
    return result


@constructor(Op.CONT)
def cont_1d(ctx: Context, a: Tensor, ne0: int64_t) -> Tensor:
    """ggml_cont_1d."""
    return cont(ctx, a, (ne0,))


@constructor(Op.CONT)
def cont_2d(ctx: Context, a: Tensor, ne0: int64_t, ne1: int64_t) -> Tensor:
    """ggml_cont_2d."""
    return cont(ctx, a, (ne0, ne1))


@constructor(Op.CONT)
def cont_3d(ctx: Context, a: Tensor, ne0: int64_t, ne1: int64_t, ne2: int64_t) -> Tensor:
    """ggml_cont_3d."""
    return cont(ctx, a, (ne0, ne1, ne2))


@constructor(Op.CONT)
def cont_4d(ctx: Context, a: Tensor, ne0: int64_t, ne1: int64_t, ne2: int64_t, ne3: int64_t) -> Tensor:
    """ggml_cont_4d."""
    return cont(ctx, a, (ne0, ne1, ne2, ne3))


@kernel(Op.DUP, Op.CPY, Op.CONT)
def copy(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_dup: the elements in order, converted where the types differ."""
    src = dst.src[0]
    if src is None or not nelements(src):
        return
    if src.type is dst.type:
        out = x.raw(dst, "writes")
        out[...] = x.raw(src).reshape(out.shape)
        return
    values = x.f32(src) if src.type.quantized or src.type is BF16 else x.raw(src)
    x.put(dst, values.reshape(dst.ne[::-1]))
