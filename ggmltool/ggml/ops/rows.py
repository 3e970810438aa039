"""Rows by their numbers: get_rows (an embedding), set_rows (a KV cache), get_rows_back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, I32, I64
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import read_ne, requirer, show, sources_of
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel
from ggmltool.ggml.tensor import Tensor, is_contiguous_rows, is_matrix, is_vector
from ggmltool.ggml.values.extent import check


@constructor(
    Op.GET_ROWS,
    example="tokens: f16[64, 1000]; ids: i32[4]; get_rows(tokens, ids)",
    shape="a.ne[2] = b.ne[1]; a.ne[3] = b.ne[2]; b.ne[3] = 1; "
    "b.type = i32 -> f32, i32 of i32[a.ne[0], b.ne[0], b.ne[1], b.ne[2]]",
)
def get_rows(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_get_rows: the rows of a that b names, as f32 (i32 stays i32)."""

    require = requirer("ggml_get_rows")

    require(a.ne[2] == b.ne[1], "a->ne[2] == b->ne[1]", "{} must have a row of numbers per matrix of {}", b, a)
    require(a.ne[3] == b.ne[2], "a->ne[3] == b->ne[2]", "{} must have a matrix of numbers per block of {}", b, a)
    require(b.ne[3] == 1, "b->ne[3] == 1", "{} must have at most three dimensions", b)
    require(b.type is I32, "b->type == GGML_TYPE_I32", "the row numbers must be i32, not {}", b)
    result = ctx.new_tensor(I32 if a.type is I32 else F32, (a.ne[0], b.ne[0], b.ne[1], b.ne[2]))
    return result.set_op(Op.GET_ROWS, (), a, b)


@constructor(
    Op.GET_ROWS_BACK,
    slots="a b",
    unpack=read_ne,
    example="grad: f32[64, 4]; ids: i32[4]; get_rows_back(grad, ids, ne=[64, 1000])",
    shape="a is a matrix; b is a vector; b.type = i32; a.ne[0] = ne[0] -> f32[ne]",
    prototype="ttt",
)
def get_rows_back(
    ctx: Context, a: Tensor, b: Tensor, c: Tensor | None = None, ne: Sequence[int] | None = None
) -> Tensor:
    """ggml_get_rows_back: the rows of a added up at the places b names, in the extents of c (which is no source).

    `ne` stands for c if there is none: a node keeps its extents only.
    """
    require = requirer("ggml_get_rows_back")
    condition = "ggml_is_matrix(a) && ggml_is_vector(b) && b->type == GGML_TYPE_I32"
    why = "{} must be a matrix and {} a vector of i32"
    require(is_matrix(a) and is_vector(b) and (b.type is I32), condition, why, a, b)
    if c is not None:
        ne = c.ne
    if ne is None:
        raise ValueError("get_rows_back needs the extents of its result: a third source, or ne")
    n0, n1, n2, n3 = (*ne, 1, 1, 1)[:4]
    why = "the result {} must be a matrix with rows as long as those of {}"
    require(n2 == 1 and n3 == 1 and (a.ne[0] == n0), "ggml_is_matrix(c) && (a->ne[0] == c->ne[0])", why, list(ne), a)
    return ctx.new_tensor(F32, (n0, n1)).set_op(Op.GET_ROWS_BACK, (), a, b)


@constructor(
    Op.SET_ROWS,
    slots="b c a",
    since="2025-06-27",
    example="cache: f16[64, 32]; rows: f32[64, 4]; ids: i64[4]; set_rows(cache, rows, ids)",
    shape="a.ne[0] = b.ne[0]; a.ne[2] = b.ne[2]; a.ne[3] = b.ne[3]; b.ne[1] = c.ne[0]; b.ne[2] % c.ne[1] = 0; "
    "b.ne[3] % c.ne[2] = 0; c.ne[3] = 1; b.type in (f32, f16); c.type in (i64, i32) -> a.type[a.ne]",
)
def set_rows(ctx: Context, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """ggml_set_rows: the rows of b into a at the places c names; the result is a view of a.

    The node's sources are b, c, a, in this order.
    """

    require = requirer("ggml_set_rows")

    for i in (0, 2, 3):
        why = "{} and its destination {} may differ in ne[1] only"
        require(a.ne[i] == b.ne[i], f"a->ne[{i}] == b->ne[{i}]", why, b, a)
    require(b.ne[1] == c.ne[0], "b->ne[1] == c->ne[0]", "{} must have a number for each row of {}", c, b)
    why = "{} cannot be repeated over the matrices of {}"
    require(c.ne[1] != 0 and b.ne[2] % c.ne[1] == 0, "b->ne[2] % c->ne[1] == 0", why, c, b)
    why = "{} cannot be repeated over the blocks of {}"
    require(c.ne[2] != 0 and b.ne[3] % c.ne[2] == 0, "b->ne[3] % c->ne[2] == 0", why, c, b)
    require(c.ne[3] == 1, "c->ne[3] == 1", "{} must have at most three dimensions", c)
    why = "the rows to set must be f32 or f16, not {}"
    require(b.type is F32 or b.type is F16, "b->type == GGML_TYPE_F32 || b->type == GGML_TYPE_F16", why, b)
    why = "the row numbers must be i64 or i32: {}"
    require(c.type is I64 or c.type is I32, "c->type == GGML_TYPE_I64 || c->type == GGML_TYPE_I32", why, c)
    require(is_contiguous_rows(a), "ggml_is_contiguous_rows(a)", "the rows of {:nb} have gaps", a)
    require(is_contiguous_rows(b), "ggml_is_contiguous_rows(b)", "the rows of {:nb} have gaps", b)
    return ctx.view_tensor(a).set_op(Op.SET_ROWS, (), b, c, a)


def _check_numbers(
    x: Arrays, function: str, variable: str, limit: str, numbers: Any, rows: Tensor, ids: Tensor
) -> None:
    if not x.on_host:
        return
    n = rows.ne[1]
    wrong = numbers[(numbers < 0) | (numbers >= n)]
    if wrong.size:
        raise GgmlAssert(
            function,
            f"{variable} >= 0 && {variable} < {limit}",
            f"{show(ids)} names row {int(wrong[0])}, but {show(rows)} has rows 0 to {n - 1}",
        )


@kernel(Op.GET_ROWS)
def get_rows_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_get_rows: only the rows named are read and dequantized."""
    a, b = sources_of(dst)
    numbers = x.raw(b)[0].astype("int64")
    _check_numbers(x, "ggml_compute_forward_get_rows", "i01", "ne01", numbers, a, b)
    i12 = x.xp.arange(b.ne[2])[:, None, None]
    i11 = x.xp.arange(b.ne[1])[None, :, None]
    rows = x.raw(_rows_of(a))[i12, i11, numbers]
    x.put(dst, rows if a.type is I32 else x.decode(rows, a.type))


def _rows_of(a: Tensor) -> Tensor:
    """The tensor whose rows get_rows reads: a release build takes them as contiguous, whatever nb[0] says."""
    if a.nb[0] == a.type.type_size:
        return a
    rows = a.clone(a.index)
    rows.buffer, rows.data = a.buffer, a.data
    rows.set_layout(a.ne, (a.type.type_size, *a.nb[1:]))
    return rows


@kernel(Op.SET_ROWS)
def set_rows_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_set_rows: the rows of slot 0 into the view of slot 2, converted to its type."""
    values, ids = dst.src[0], dst.src[1]
    if values is None or ids is None or 0 in values.ne:
        return
    numbers = x.raw(ids)[0].astype("int64")
    _check_numbers(x, "ggml_compute_forward_set_rows", "i1", "ne1", numbers, dst, ids)
    n3, n2 = values.ne[3], values.ne[2]
    i03 = x.xp.arange(n3)[:, None, None]
    i02 = x.xp.arange(n2)[None, :, None]
    places = numbers[i03 % ids.ne[2], i02 % ids.ne[1], x.xp.arange(ids.ne[0])]
    rows = x.raw(values) if values.type is dst.type else x.encode(x.f32(values), dst.type)
    x.raw(dst, "writes")[i03, i02, places] = rows


@kernel(Op.GET_ROWS_BACK)
def get_rows_back_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_get_rows_back: row i of a is added to row b[i] of the result."""
    a, b = sources_of(dst)
    if 0 in b.ne:
        x.put(dst, 0)
        return
    numbers = x.raw(b).reshape(-1).astype("int64")
    check(a.label, 0, (numbers.size - 1) * a.nb[1] + a.type.row_size(a.ne[0]), a.nbytes)
    if x.on_host:
        low, high = int(numbers.min()), int(numbers.max())
        if x.rules.checks_rows_back and (low < 0 or high >= dst.ne[1]):
            raise GgmlAssert(
                f"ggml_compute_forward_get_rows_back_f32{'_f16' if a.type is F16 else ''}",
                "r >= 0 && r < dst->ne[1]",
                f"{show(b)} names row {low if low < 0 else high}, and the result has {dst.ne[1]}",
            )
        check(dst.label, min(low, 0) * dst.nb[1], max(high + 1, 0) * dst.nb[1], dst.nbytes, "writes")
    out = x.xp.zeros(dst.ne[::-1], dtype="float32")
    x.xp.add.at(out[0, 0], numbers, x.f32(a)[0, 0][: numbers.size])
    x.put(dst, out)
