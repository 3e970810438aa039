"""solve_tri: a triangular system of equations for every matrix of a batch."""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.explain import requirer
from ggmltool.ggml.ops.registry import Arrays, Raw, constructor, kernel
from ggmltool.ggml.tensor import Tensor, is_contiguous

_require = requirer("ggml_solve_tri")


def _the_only_variant(raw: Raw) -> dict[str, Any]:
    # ggml stores none of the three: it builds no other variant.
    return {"left": True, "lower": True, "uni": False}


@constructor(
    Op.SOLVE_TRI,
    unpack=_the_only_variant,
    since="2025-11-13",
    example="a: f32[4, 4]; b: f32[8, 4]; solve_tri(a, b)",
    shape="a.type = f32; b.type = f32; a is contiguous; b is contiguous; a.ne[0] = a.ne[1]; a.ne[1] = b.ne[1]; "
    "a.ne[2] = b.ne[2]; a.ne[3] = b.ne[3] -> f32[b.ne]",
    means={
        "left": "a stands left of x; true is all ggml has",
        "lower": "a is lower triangular; true is all ggml has",
        "uni": "the diagonal of a is ones; false is all ggml has",
    },
)
def solve_tri(ctx: Context, a: Tensor, b: Tensor, left: bool = True, lower: bool = True, uni: bool = False) -> Tensor:
    """ggml_solve_tri: x of a x = b, where a [n, n] is lower triangular and b [k, n]; f32, the same batches."""
    require = _require
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    require(b.type is F32, "b->type == GGML_TYPE_F32", "{} must be f32", b)
    require(a.ne[0] == a.ne[1], "a->ne[0] == a->ne[1]", "{} must be square", a)
    require(a.ne[1] == b.ne[1], "a->ne[1] == b->ne[1]", "{} and {} must have as many rows", a, b)
    for i in (2, 3):
        require(a.ne[i] == b.ne[i], f"a->ne[{i}] == b->ne[{i}]", "{} and {} must have the same ne[2] and ne[3]", a, b)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{} must be contiguous", a)
    require(is_contiguous(b), "ggml_is_contiguous(b)", "{} must be contiguous", b)
    variant = f"ggml solves for left, lower and not uni only, not left={left}, lower={lower}, uni={uni}"
    require(lower and left and not uni, "lower && left && !uni", variant)
    result = ctx.new_tensor(F32, b.ne)
    result.set_op(Op.SOLVE_TRI, (), a, b)
    return result


@kernel(Op.SOLVE_TRI)
def solve_tri_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_solve_tri: row after row, all columns and matrices at once."""
    a_, b_ = dst.src
    if a_ is None or b_ is None or 0 in dst.ne:
        return
    a, b = x.f32(a_), x.f32(b_)
    out = x.xp.empty(b.shape, dtype="float32")
    for i in range(b.shape[2]):
        known = a[:, :, i, None, :i] @ out[:, :, :i]
        out[:, :, i] = (b[:, :, i] - known[:, :, 0]) / a[:, :, i, i, None]
    x.put(dst, out)
