"""Which nodes a backend computes with the one before them: the chains that ggml's GPUs fuse, in their simple form.

CUDA, Vulkan and Metal each fuse some chains of their own; these are what CUDA's ggml_cuda_try_fuse takes most often,
and the others have most of them. What is wanted is how many kernels are launched, not which.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.op import IS_VIEW_OP, Op
from ggmltool.ggml.tensor import Tensor, root_of

_ALWAYS = {
    (Op.RMS_NORM, Op.MUL),
    (Op.RMS_NORM, Op.SCALE),
    (Op.NORM, Op.MUL),
    (Op.MUL, Op.ADD),
    (Op.MUL, Op.ROPE),
    (Op.ADD, Op.ADD),
    (Op.ROPE, Op.SET_ROWS),
    (Op.SCALE, Op.UNARY),
    (Op.UNARY, Op.SCALE),
    (Op.UNARY, Op.MUL),
    (Op.UNARY, Op.SQR),
    (Op.SSM_CONV, Op.ADD),
    (Op.SSM_CONV, Op.UNARY),
    (Op.SOFT_MAX, Op.ARGSORT),
    (Op.ARGSORT, Op.GET_ROWS),
    (Op.GET_ROWS, Op.SUM_ROWS),
    (Op.SUM_ROWS, Op.CLAMP),
    (Op.CLAMP, Op.DIV),
}
"""A node of the second op that uses a node of the first right before it."""

_FEW = {
    (Op.MUL_MAT, Op.ADD),
    (Op.MUL_MAT, Op.GLU),
    (Op.MUL_MAT_ID, Op.ADD_ID),
    (Op.MUL_MAT_ID, Op.GLU),
    (Op.ADD_ID, Op.GLU),
}
"""The same behind a product by few columns, which runs as products of vectors."""


def fused(nodes: Sequence[Tensor]) -> list[float | None]:
    """For every node, None if it is launched on its own, else the columns of its product (0: of none)."""
    out: list[float | None] = []
    before: Tensor | None = None
    columns = 0.0
    for n in nodes:
        if IS_VIEW_OP[n.op] or n.op == Op.NONE:
            out.append(None)
            continue
        here: float | None = None
        if before is not None and any(s is not None and _made_by(s, before) for s in n.src):
            pair = (before.op, n.op)
            here = 0.0 if pair in _ALWAYS else columns if pair in _FEW else None
        elif before is not None and _gated(before, n):
            here = _columns(n)
        if n.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
            columns = _columns(n)
        out.append(here)
        before = n
    return out


def _made_by(s: Tensor, n: Tensor) -> bool:
    return s is n or root_of(s) is n


def _gated(before: Tensor, n: Tensor) -> bool:
    """Whether two products are the halves of a gated feed-forward: alike, of the same columns."""
    return (
        n.op in (Op.MUL_MAT, Op.MUL_MAT_ID)
        and before.op == n.op
        and before.src[1] is n.src[1]
        and before.ne == n.ne
        and before.src[0] is not None
        and n.src[0] is not None
        and before.src[0].type is n.src[0].type
    )


def _columns(n: Tensor) -> float:
    return float(n.ne[1] * n.ne[2] * n.ne[3] if n.op == Op.MUL_MAT else n.ne[2])
