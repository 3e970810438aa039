"""Ops that reduce, count or order the elements of rows: sum, mean, cumsum, argmax, argsort, top_k, repeat_back …"""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32, I64
from ggmltool.ggml.errors import GgmlAbort, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import (
    flat_operand,
    new_tensor,
    operand,
    packed_operand,
    param_i32,
    read_ne,
    requirer,
    shadow,
    sources_of,
    target_shape,
)
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor, are_same_shape, can_repeat, is_matrix

INT32_MAX = 2**31 - 1
SORT_ORDERS: dict[str, int] = {"asc": 0, "desc": 1}
"""ggml_sort_order."""


@constructor(Op.SUM, example="x: f32[8, 4]; sum(x)", shape="-> a.type[1]")
def sum_(ctx: Context, a: Tensor) -> Tensor:
    """ggml_sum: the sum of all elements; one element of a's type."""
    return ctx.new_tensor(a.type, (1,)).set_op(Op.SUM, (), a)


@constructor(Op.SUM_ROWS, example="x: f32[8, 4]; sum_rows(x)", shape="-> a.type[1, a.ne[1], a.ne[2], a.ne[3]]")
def sum_rows(ctx: Context, a: Tensor) -> Tensor:
    """ggml_sum_rows: the sum of each row, [1, ne1, ne2, ne3]."""
    return ctx.new_tensor(a.type, (1, *a.ne[1:])).set_op(Op.SUM_ROWS, (), a)


@constructor(Op.MEAN, example="x: f32[8, 4]; mean(x)", shape="-> f32[1, a.ne[1], a.ne[2], a.ne[3]]")
def mean(ctx: Context, a: Tensor) -> Tensor:
    """ggml_mean: the mean of each row, [1, ne1, ne2, ne3] in f32."""
    return ctx.new_tensor(F32, (1, *a.ne[1:])).set_op(Op.MEAN, (), a)


@constructor(Op.CUMSUM, since="2025-11-13", example="x: f32[8, 4]; cumsum(x)", shape="a.type = f32 -> a.type[a.ne]")
def cumsum(ctx: Context, a: Tensor) -> Tensor:
    """ggml_cumsum: the running sum along each row."""
    requirer("ggml_cumsum")(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    return ctx.dup_tensor(a).set_op(Op.CUMSUM, (), a)


@constructor(Op.ARGMAX, example="x: f32[8, 4]; argmax(x)", shape="a is a matrix -> i32[a.ne[1]]")
def argmax(ctx: Context, a: Tensor) -> Tensor:
    """ggml_argmax: the place of the largest element of each row of a matrix, i32[ne1]."""
    require = requirer("ggml_argmax")
    require(is_matrix(a), "ggml_is_matrix(a)", "{} has more than two dimensions", a)
    require(a.ne[0] <= INT32_MAX, "a->ne[0] <= INT32_MAX", "the rows of {} are too long for an i32 place", a)
    return ctx.new_tensor(I32, (a.ne[1],)).set_op(Op.ARGMAX, (), a)


@constructor(
    Op.COUNT_EQUAL,
    since="2024-10-03",
    example="a: i32[8, 4]; b: i32[8, 4]; count_equal(a, b)",
    shape="a and b have one shape -> i64[1]",
)
def count_equal(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_count_equal: how many elements of a equal b's, one i64."""
    requirer("ggml_count_equal")(are_same_shape(a, b), "ggml_are_same_shape(a, b)", "{} and {} differ in shape", a, b)
    return ctx.new_tensor(I64, (1,)).set_op(Op.COUNT_EQUAL, (), a, b)


@constructor(
    Op.REPEAT_BACK,
    unpack=read_ne,
    slots="a",
    example="x: f32[8, 4]; repeat_back(x, ne=[8, 1])",
    shape="ne repeats into a -> a.type[ne]",
    prototype="tt",
)
def repeat_back(ctx: Context, a: Tensor, b: Tensor | None = None, ne: list[int] | None = None) -> Tensor:
    """ggml_repeat_back: sums a over the repetitions of b's shape. b gives only the shape, as `ne` does."""
    dims = target_shape("repeat_back", b, ne)
    small = b if b is not None else Tensor(a.type, dims)
    why = "{} is not a repetition of the shape {}: each extent must be a multiple"
    requirer("ggml_repeat_back")(can_repeat(small, a), "ggml_can_repeat(b, a)", why, a, list(dims))
    return ctx.new_tensor(a.type, dims).set_op(Op.REPEAT_BACK, (), a)


@constructor(
    Op.ARGSORT,
    pack="i:order",
    choices={"order": SORT_ORDERS},
    example="x: f32[8, 4]; argsort(x, order=desc)",
    shape="-> i32[a.ne]",
    means={"order": "the smallest (asc) or the largest (desc) first"},
)
def argsort(ctx: Context, a: Tensor, order: int) -> Tensor:
    """ggml_argsort: the places of each row's elements in the `order` asc or desc, i32."""
    why = "the rows of {} are too long for i32 places"
    requirer("ggml_argsort")(a.ne[0] <= INT32_MAX, "a->ne[0] <= INT32_MAX", why, a)
    return ctx.new_tensor(I32, a.ne).set_op(Op.ARGSORT, words(order), a)


@constructor(
    Op.TOP_K,
    unpack=lambda raw: {"k": raw.ne[0]},
    since="2025-11-25",
    example="x: f32[8, 4]; top_k(x, k=2)",
    shape="k <= a.ne[0] -> i32[k, a.ne[1], a.ne[2], a.ne[3]]",
    means={"k": "how many elements"},
)
def top_k(ctx: Context, a: Tensor, k: int) -> Tensor:
    """ggml_top_k: the places of the k largest elements of each row, i32[k, …]; their order means nothing."""
    why = "{} elements cannot be chosen from the rows of {}"
    requirer("ggml_top_k")(a.ne[0] >= k, "a->ne[0] >= k", why, k, a)
    return new_tensor(ctx, I32, (k, *a.ne[1:])).set_op(Op.TOP_K, (), a)


def _running_sum(x: Arrays, values: Any, type: Any) -> Any:
    """The sum over the last axis, added up one after the other as C does it."""
    if values.shape[-1] == 0:
        return x.xp.zeros(values.shape[:-1], dtype=type)
    return x.xp.cumsum(values, axis=-1, dtype=type)[..., -1]


def _row_sums(x: Arrays, dst: Tensor) -> Any:
    """The sum of each row, in double and then rounded to float32."""
    return _running_sum(x, packed_operand(x, dst), x.xp.float64).astype(x.xp.float32)[..., None]


@kernel(Op.SUM)
def _sum(x: Arrays, dst: Tensor) -> None:
    values = packed_operand(x, dst)
    type_ = x.xp.float64 if dst.type is F32 else x.xp.float32
    x.put(dst, _running_sum(x, _running_sum(x, values, type_).reshape(-1), type_))


@kernel(Op.SUM_ROWS)
def _sum_rows(x: Arrays, dst: Tensor) -> None:
    x.put(dst, _row_sums(x, dst))


@kernel(Op.MEAN)
def _mean(x: Arrays, dst: Tensor) -> None:
    sums = _row_sums(x, dst)
    a = dst.src[0]
    x.put(dst, sums / x.xp.float32(a.ne[0] if a is not None else 1))


@kernel(Op.CUMSUM)
def _cumsum(x: Arrays, dst: Tensor) -> None:
    x.put(dst, x.xp.cumsum(operand(x, dst), axis=-1, dtype=x.xp.float32))


@kernel(Op.ARGMAX)
def _argmax(x: Arrays, dst: Tensor) -> None:
    # ggml goes through a row with max = MAX(max, v), noting the place wherever v equals it: of equal elements the
    # last counts, and NaN makes it start anew behind it (but for NaN at the end).
    xp, values = x.xp, packed_operand(x, dst)[0, 0]
    if not values.size:
        x.put(dst, xp.zeros(dst.ne[::-1], dtype="int32"))
        return
    places = xp.arange(values.shape[-1])
    nan = xp.isnan(values)
    end = xp.where(nan, -1, places).max(axis=-1, keepdims=True)
    start = xp.where(nan & (places < end), places, -1).max(axis=-1, keepdims=True)
    counts = (places > start) & (places <= end)
    largest = xp.where(counts, values, -xp.inf).max(axis=-1, keepdims=True)
    x.put(dst, xp.where(counts & (values == largest), places, 0).max(axis=-1))


def _rows_counted(x: Arrays, t: Tensor) -> Any:
    """The rows of an i32 tensor that ggml's count_equal looks at, [rows, ne0].

    It finds the place of row `ir` by subtracting the wrong extents, so of a tensor of several planes it may look at
    some rows twice and at others not at all. Where it would leave the tensor's buffer, and on a GPU, these are the rows
    meant.
    """
    if not x.on_host:
        return x.raw(t).reshape(-1, t.ne[0])
    xp = x.xp
    _, n1, n2, n3 = t.ne
    row = xp.arange(n1 * n2 * n3)
    i3 = row // (n2 * n1)
    i2 = (row - i3 * n3) // n1
    i1 = row - i3 * n3 - i2 * n2
    offsets = (i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3])[:, None] + xp.arange(t.ne[0]) * t.nb[0]
    first, last = int(offsets.min()), int(offsets.max())
    try:
        memory = x.raw(shadow(t, t.type, ((last - first) // 4 + 1, 1, 1, 1), (4, 4, 4, 4), first))
    except NotComputable:
        return x.raw(t).reshape(-1, t.ne[0])
    return memory[0, 0, 0][(offsets - first) // 4]


@kernel(Op.COUNT_EQUAL)
def _count_equal(x: Arrays, dst: Tensor) -> None:
    a, b = sources_of(dst)
    x.put(dst, (_rows_counted(x, a) == _rows_counted(x, b)).sum(dtype=x.xp.int64))


@kernel(Op.REPEAT_BACK)
def _repeat_back(x: Arrays, dst: Tensor) -> None:
    values = operand(x, dst)
    shape: list[int] = []
    for total, n in zip(values.shape, dst.ne[::-1], strict=True):
        shape += [total // n if n else 0, n]
    x.put(dst, values.reshape(shape).sum(axis=(0, 2, 4, 6), dtype=x.xp.float32))


def _order(x: Arrays, values: Any, descending: bool) -> Any:
    """The places in order; equal elements keep their order, as in ggml for rows of up to 16 elements."""
    return x.xp.argsort(-values if descending else values, axis=-1, kind="stable")


@kernel(Op.ARGSORT)
def _argsort(x: Arrays, dst: Tensor) -> None:
    order = param_i32(dst, 0)
    if order not in SORT_ORDERS.values():
        raise GgmlAbort("ggml_compute_forward_argsort_f32", "invalid sort order")
    x.put(dst, _order(x, flat_operand(x, dst), order == SORT_ORDERS["desc"]))


@kernel(Op.TOP_K)
def _top_k(x: Arrays, dst: Tensor) -> None:
    places = _order(x, flat_operand(x, dst), True)[..., : dst.ne[0]]
    if dst.ne[0] > 1:
        # ggml swaps the first two, to show that the order is not to be relied on.
        places = x.xp.concatenate([places[..., 1:2], places[..., 0:1], places[..., 2:]], axis=-1)
    x.put(dst, places)
