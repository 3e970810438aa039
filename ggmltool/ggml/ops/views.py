"""The view ops: view, reshape, permute, transpose. They compute nothing: the result is another look at a's memory. And
the copies that make such a look real: dup, cont, cpy, cast.

A view of a view is a view of the root, with the offsets added; op_params of a VIEW keep the offset within a itself.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import read_ne, requirer, show, taking
from ggmltool.ggml.ops.registry import Arrays, Build, Raw, constructor, kernel, words
from ggmltool.ggml.tensor import MAX_DIMS, Dims, Tensor, cut_name, is_contiguous, nelements
from ggmltool.ggml.version import SIZE_MAX


def _view_params(raw: Raw) -> dict[str, Any]:
    low, high = raw.word(0) & 0xFFFFFFFF, raw.word(1) & 0xFFFFFFFF
    return {"ne": raw.ne, "nb": raw.nb[1:], "offset": high << 32 | low}


@constructor(
    Op.VIEW,
    canonical=True,
    unpack=_view_params,
    example="x: {type: f32, ne: [8, 4, 2], flags: [input]}; view(x, ne=[8, 2], nb=[32], offset=64)",
    shape="-> a.type[ne]",
    means={"nb": "byte strides from nb1 on; contiguous where left out"},
    prototype="",
)
def view(ctx: Context, a: Tensor, ne: Sequence[int], nb: Sequence[int] = (), offset: int = 0) -> Tensor:
    """ggml_view_1d … ggml_view_4d, by the length of `ne`: that many elements, from `offset` bytes within a on.

    `nb` are the byte strides from nb1 on (four of them: from nb0 on, which must be the type's size). The strides that
    are not given follow from the one before without a gap, as in ggml's constructors with fewer dimensions.
    """
    strides = list(nb)
    if len(strides) == MAX_DIMS:
        if strides[0] != a.type.type_size:
            raise ValueError(f"nb[0] of a view of {show(a)} is the type's size, {a.type.type_size}, not {strides[0]}")
        strides = strides[1:]
    if len(strides) >= MAX_DIMS:
        raise ValueError(f"a view takes at most {MAX_DIMS - 1} strides (nb1, nb2, nb3), not {len(strides)}")
    offset &= SIZE_MAX
    result = ctx.new_tensor(a.type, ne, a, offset)
    result.name = cut_name(f"{a.name} (view)")
    if strides:
        out = [result.nb[0], *[s & SIZE_MAX for s in strides]]
        while len(out) < MAX_DIMS:
            out.append(out[-1] * result.ne[len(out) - 1] & SIZE_MAX)
        result.set_layout(result.ne, (out[0], out[1], out[2], out[3]))
    return result.set_op(Op.VIEW, words(offset & 0xFFFFFFFF, offset >> 32), a)


def _by_numbers(name: str, op: Op, whole: Build, abouts: Sequence[str]) -> None:
    """The constructors `name`_1d and so on, as `abouts` have them: a number for each extent, and of a view for each
    stride, and where it begins."""

    def build(ctx: Context, a: Tensor, **numbers: int) -> Tensor:
        ne, nb = ([n for key, n in numbers.items() if key[:2] == kind] for kind in ("ne", "nb"))
        return whole(ctx, a, ne=ne) if op != Op.VIEW else whole(ctx, a, ne, nb, numbers["offset"])

    first = list(inspect.signature(build).parameters.values())[:2]
    for n, about in enumerate(abouts, 1):
        names = {f"ne{i}": "int64_t" for i in range(n)}
        if op == Op.VIEW:
            names |= dict.fromkeys((*(f"nb{i}" for i in range(1, n)), "offset"), "size_t")
        numbers = [first[0].replace(name=key, annotation=of) for key, of in names.items()]
        constructor(op, f"{name}_{n}d")(taking(build, [*first, *numbers], about))


_VIEWS = (
    "ggml_view_1d: `ne0` elements from `offset` bytes within a on.",
    "ggml_view_2d: rows `nb1` bytes apart.",
    "ggml_view_3d: rows `nb1`, matrices `nb2` bytes apart.",
    "ggml_view_4d: all strides but the first given.",
)
_by_numbers("view", Op.VIEW, view, _VIEWS)


def _reshaped(ctx: Context, a: Tensor, ne: Sequence[int], function: str, extents: str, want: int) -> Tensor:
    require = requirer(function)
    why = "{:nb} is not contiguous: make it so first (cont), or use cont with the new extents"
    require(is_contiguous(a), "ggml_is_contiguous(a)", why, a)
    why = "{} has {} elements, {} would have {}"
    require(nelements(a) == want, f"ggml_nelements(a) == {extents}", why, a, nelements(a), list(ne), want)
    result = ctx.new_tensor(a.type, ne, a, 0)
    result.name = cut_name(f"{a.name} (reshaped)")
    return result.set_op(Op.RESHAPE, (), a)


@constructor(
    Op.RESHAPE,
    canonical=True,
    unpack=read_ne,
    slots="a",
    example="x: {type: f32, ne: [8, 4, 2], flags: [input]}; reshape(x, ne=[4, 2, 8])",
    shape="a is contiguous; a has as many elements as ne -> a.type[ne]",
    prototype="tt",
)
def reshape(ctx: Context, a: Tensor, b: Tensor | None = None, ne: Sequence[int] | None = None) -> Tensor:
    """ggml_reshape to the extents of b (which is no source), or ggml_reshape_1d … _4d by the length of `ne`."""
    if b is not None:
        return _reshaped(ctx, a, b.ne, "ggml_reshape", "ggml_nelements(b)", nelements(b))
    if ne is None:
        raise ValueError("reshape needs the new extents: ne, or a tensor that has them")
    n = len(ne)
    extents = "*".join(f"ne{i}" for i in range(n))
    return _reshaped(ctx, a, ne, f"ggml_reshape_{n}d", extents, math.prod(ne))


_by_numbers("reshape", Op.RESHAPE, reshape, [f"ggml_reshape_{n}d." for n in range(1, 5)])


def _through_int(x: int, unsigned: bool) -> int:
    """What is left of a 64-bit number that a C int held for a moment (ggml_permute's strides from 2 GiB on)."""
    x = (x + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    return x & SIZE_MAX if unsigned else x


@constructor(
    Op.PERMUTE,
    pack="i:axis0 i:axis1 i:axis2 i:axis3",
    example="x: {type: f32, ne: [8, 4, 2], flags: [input]}; permute(x, 0, 2, 1, 3)",
    shape="-> a.type[a.ne], with dimension i of a as dimension axis_i",
    means={"axis#": "where dimension # goes"},
)
def permute(ctx: Context, a: Tensor, axis0: int, axis1: int, axis2: int, axis3: int) -> Tensor:
    """ggml_permute: dimension i of a becomes dimension `axis_i` of the result."""
    through_int = ctx.rules.permute_is_int
    axes = (axis0, axis1, axis2, axis3)
    require = requirer("ggml_permute")
    for i, axis in enumerate(axes):
        why = "axis{} is {}; the dimensions are 0 to 3"
        require(0 <= axis < MAX_DIMS, f"axis{i} >= 0 && axis{i} < GGML_MAX_DIMS", why, i, axis)
    for i in range(MAX_DIMS):
        for j in range(i + 1, MAX_DIMS):
            require(axes[i] != axes[j], f"axis{i} != axis{j}", "{} names dimension {} twice", list(axes), axes[i])
    result = ctx.view_tensor(a)
    result.name = cut_name(f"{a.name} (permuted)")
    ne, nb = [0] * MAX_DIMS, [0] * MAX_DIMS
    for i, axis in enumerate(axes):
        ne[axis] = _through_int(a.ne[i], unsigned=False) if through_int else a.ne[i]
        nb[axis] = _through_int(a.nb[i], unsigned=True) if through_int else a.nb[i]
    result.set_layout((ne[0], ne[1], ne[2], ne[3]), (nb[0], nb[1], nb[2], nb[3]))
    return result.set_op(Op.PERMUTE, words(*axes), a)


@constructor(
    Op.TRANSPOSE,
    example="x: {type: f32, ne: [8, 4, 2], flags: [input]}; transpose(x)",
    shape="-> a.type[a.ne[1], a.ne[0], a.ne[2], a.ne[3]]",
)
def transpose(ctx: Context, a: Tensor) -> Tensor:
    """ggml_transpose: dimensions 0 and 1 change places."""
    result = ctx.view_tensor(a)
    result.name = cut_name(f"{a.name} (transposed)")
    ne: Dims = (a.ne[1], a.ne[0], a.ne[2], a.ne[3])
    nb: Dims = (a.nb[1], a.nb[0], a.nb[2], a.nb[3])
    result.set_layout(ne, nb)
    return result.set_op(Op.TRANSPOSE, (), a)


@kernel(Op.NONE, Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE)
def nothing(x: Arrays, dst: Tensor) -> None:
    """A view's values are its source's."""


@constructor(Op.DUP, inplace=True, example="x: f32[8, 4]; dup(x)", shape="-> a.type[a.ne]")
def dup(ctx: Context, a: Tensor, *, inplace: bool = False) -> Tensor:
    """ggml_dup: a contiguous copy of a."""
    result = ctx.view_tensor(a) if inplace else ctx.dup_tensor(a)
    return result.set_op(Op.DUP, (), a)


@constructor(
    Op.CPY, example="x: f32[8, 4]; cache: f16[8, 4]; cpy(x, cache)", shape="a has as many elements as b -> b.type[b.ne]"
)
def cpy(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_cpy: a's elements into b's memory; the result is a view of b."""
    condition = "ggml_nelements(a) == ggml_nelements(b)"
    why = "{} has {} elements, {} has {}"
    requirer("ggml_cpy_impl")(nelements(a) == nelements(b), condition, why, a, nelements(a), b, nelements(b))
    result = ctx.view_tensor(b)
    result.name = cut_name(f"{b.name} (copy of {a.name})" if b.name else f"{a.name} (copy)")
    return result.set_op(Op.CPY, (), a, b)


@constructor(Op.CPY, slots="a self", unpack=lambda raw: {"type": raw.type}, shape="-> type[a.ne]")
def cast(ctx: Context, a: Tensor, type: DType) -> Tensor:
    """ggml_cast: a copy of a in another type, a CPY node that is its own second source."""
    result = ctx.new_tensor(type, a.ne)
    result.name = cut_name(f"{a.name} (copy)")
    return result.set_op(Op.CPY, (), a, result)


@constructor(Op.CONT, unpack=read_ne, example="x: f32[8, 4]; cont(x)", shape="-> a.type[a.ne]", prototype="t")
def cont(ctx: Context, a: Tensor, ne: Sequence[int] | None = None) -> Tensor:
    """ggml_cont, and with `ne` ggml_cont_1d … _4d: a contiguous copy, with other extents if they are given."""
    if ne is not None:
        dims = (*ne, 1, 1, 1)[:4]
        requirer("ggml_cont_4d")(
            nelements(a) == math.prod(dims),
            "ggml_nelements(a) == (ne0*ne1*ne2*ne3)",
            "{} has {} elements, {} would have {}",
            a,
            nelements(a),
            list(ne),
            math.prod(dims),
        )
    result = ctx.new_tensor(a.type, a.ne if ne is None else ne)
    result.name = cut_name(f"{a.name} (cont)")
    return result.set_op(Op.CONT, (), a)


_by_numbers("cont", Op.CONT, cont, [f"ggml_cont_{n}d." for n in range(1, 5)])


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
