"""What a node takes to compute, as facts of its op: bytes that are really read and written, and operations.

Weights and caches are read once, however many columns they are multiplied with; of a cache only the cells that hold
something; of the experts of a MUL_MAT_ID only those that some token chose; of a GET_ROWS only its rows. Views take
nothing. Operations are counted as ggml's own test-backend-ops does where it counts any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ggmltool.estimate.cells import Cells
from ggmltool.ggml.dtypes import BF16, F16, DType
from ggmltool.ggml.op import IS_VIEW_OP, Op
from ggmltool.ggml.ops.operands import param_i32
from ggmltool.ggml.tensor import Tensor, nelements, root_of

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
    """For every node, None if it is launched on its own, else the columns of its product (0: of none).

    CUDA, Vulkan and Metal each fuse some chains of their own; these are what CUDA's ggml_cuda_try_fuse takes most
    often, and the others have most of them. What is wanted is how many kernels are launched, not which.
    """
    out: list[float | None] = []
    before: Tensor | None = None
    columns = 0.0
    for n in nodes:
        if IS_VIEW_OP[n.op] or n.op == Op.NONE:
            out.append(None)
            continue
        here: float | None = None
        if before is not None and any(s is not None and (s is before or root_of(s) is before) for s in n.src):
            pair = (before.op, n.op)
            here = 0.0 if pair in _ALWAYS else columns if pair in _FEW else None
        elif before is not None and _gated(before, n):
            here = _columns(n)
        if n.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
            columns = _columns(n)
        out.append(here)
        before = n
    return out


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


class Kind(IntEnum):
    """Whose rate a node's operations go by."""

    ELEMENTS = 0
    ATTENTION = 1
    QUANTIZED = 2
    F16 = 3
    BF16 = 4
    F32 = 5


class NodeWork(NamedTuple):
    """What a node takes: `nbytes` read and written, `operations` (a multiply-add is two), and how.

    `columns`: with how many columns each matrix is multiplied, 0 for what is no product; for experts, those of one.
    `fused`: the node is computed with the one before it by a backend that fuses, if so many columns are few for it;
    None: it never is.
    """

    kind: Kind
    nbytes: float
    operations: float
    columns: float = 0.0
    fused: float | None = None


VIEW = NodeWork(Kind.ELEMENTS, 0.0, 0.0)
"""A node that computes nothing and is not launched."""


def work_of(nodes: Sequence[Tensor], cells: Cells) -> list[NodeWork]:
    """What each node of a graph takes, if `cells` of its caches are looked at."""
    chained = fused(nodes)
    out = []
    for n, columns in zip(nodes, chained, strict=True):
        if IS_VIEW_OP[n.op] or n.op == Op.NONE:
            out.append(VIEW)
        else:
            out.append(_work(n, cells)._replace(fused=columns))
    return out


def used_experts(n_expert: int, per_token: int, n_tokens: int) -> float:
    """How many of `n_expert` experts a batch uses, on average, if each token chooses any `per_token` of them."""
    if n_expert <= 0:
        return 0.0
    missed = (1 - min(per_token, n_expert) / n_expert) ** n_tokens
    return float(n_expert * (1 - missed))


def read_nbytes(t: Tensor) -> int:
    """The bytes of a tensor's elements, without the gaps between its rows."""
    return t.type.row_size(t.ne[0]) * t.ne[1] * t.ne[2] * t.ne[3]


def _work(n: Tensor, cells: Cells) -> NodeWork:
    special = _SPECIAL.get(n.op)
    if special is not None and len(n.src) > 1 and None not in n.src[:2]:
        return special(n, cells)
    count = _OPERATIONS.get(n.op, nelements)
    return NodeWork(Kind.ELEMENTS, _touched(n, cells), cells.of(n).read * count(n))


def _touched(n: Tensor, cells: Cells, skip: tuple[int, ...] = ()) -> float:
    """The bytes of a node's sources and of the node."""
    nbytes = cells.of(n).read * read_nbytes(n)
    for i, s in enumerate(n.src):
        if s is not None and s is not n and i not in skip:
            nbytes += cells.of(s).read * read_nbytes(s)
    return nbytes


def _at(n: Tensor, i: int) -> Tensor:
    s = n.src[i]
    if s is None:
        raise ValueError(f"{n!r} lacks source {i}")
    return s


def _kind(type: DType) -> Kind:
    if type.quantized:
        return Kind.QUANTIZED
    return {F16: Kind.F16, BF16: Kind.BF16}.get(type, Kind.F32)


def _product(n: Tensor, cells: Cells) -> NodeWork:
    """MUL_MAT: source 0 once, source 1, the result."""
    a, b = _at(n, 0), _at(n, 1)
    kind = Kind.ATTENTION if cells.is_cache(a) else _kind(a.type)
    planes = b.ne[2] * b.ne[3] / max(a.ne[2] * a.ne[3], 1)
    operations = cells.of(a).read * 2 * nelements(n) * a.ne[0]
    return NodeWork(kind, _touched(n, cells), operations, b.ne[1] * planes)


def _experts(n: Tensor, cells: Cells) -> NodeWork:
    """MUL_MAT_ID: the experts that are chosen, as many as are expected."""
    a, ids = _at(n, 0), _at(n, 2)
    used = used_experts(a.ne[2], ids.ne[0], ids.ne[1])
    nbytes = used * a.type.row_size(a.ne[0]) * a.ne[1] + _touched(n, cells, skip=(0,))
    columns = ids.ne[0] * ids.ne[1] / used if used else 0.0
    return NodeWork(_kind(a.type), nbytes, 2 * nelements(n) * a.ne[0], columns)


def _attention(n: Tensor, cells: Cells) -> NodeWork:
    """FLASH_ATTN_EXT: K, V and the mask as far as they are filled, Q and the result; masked blocks are skipped."""
    q, k, v = _at(n, 0), _at(n, 1), _at(n, 2)
    operations = 2 * q.ne[1] * q.ne[2] * q.ne[3] * k.ne[1] * (k.ne[0] + v.ne[0])
    return NodeWork(Kind.ATTENTION, _touched(n, cells), cells.of(k).seen * operations, q.ne[1])


def _get_rows(n: Tensor, cells: Cells) -> NodeWork:
    """GET_ROWS: the rows that are named."""
    nbytes = n.ne[1] * n.ne[2] * n.ne[3] * _at(n, 0).type.row_size(n.ne[0]) + _touched(n, cells, skip=(0,))
    return NodeWork(Kind.ELEMENTS, nbytes, nelements(n))


def _set_rows(n: Tensor, cells: Cells) -> NodeWork:
    """SET_ROWS: the rows that are written, not the others of the destination."""
    rows = _at(n, 0)
    nbytes = (
        read_nbytes(rows) + read_nbytes(_at(n, 1)) + rows.ne[1] * rows.ne[2] * rows.ne[3] * n.type.row_size(n.ne[0])
    )
    return NodeWork(Kind.ELEMENTS, nbytes, nelements(rows))


def _copy(n: Tensor, cells: Cells) -> NodeWork:
    """CPY: source 0 into the result, which is a view of source 1."""
    a = _at(n, 0)
    nbytes = cells.of(a).read * read_nbytes(a) + cells.of(n).read * read_nbytes(n)
    return NodeWork(Kind.ELEMENTS, nbytes, nelements(n))


def _set(n: Tensor, cells: Cells) -> NodeWork:
    """SET and ACC: source 1 into a copy of source 0, or in its place."""
    b = _at(n, 1)
    whole = 0 if n.view_src is not None else 2 * read_nbytes(n)
    return NodeWork(Kind.ELEMENTS, whole + 2 * read_nbytes(b), nelements(b))


def _conv(n: Tensor, cells: Cells) -> NodeWork:
    """CONV_2D and CONV_3D: each element is a product over the taps of its kernel."""
    a = _at(n, 0)
    channels = abs(param_i32(n, 9)) if n.op == Op.CONV_3D else 1
    taps = math.prod(a.ne[:3]) * channels
    return NodeWork(_kind(a.type), _touched(n, cells), nelements(n) * max(2 * taps - 1, 0), n.ne[0] * n.ne[1])


def _scan(n: Tensor, cells: Cells) -> NodeWork:
    """SSM_SCAN: the state of each sequence is read and written once, and stepped for every token."""
    s, x = _at(n, 0), _at(n, 1)
    states = s.type.row_size(s.ne[0]) * s.ne[1] * s.ne[2] * x.ne[3]
    return NodeWork(Kind.ELEMENTS, states + _touched(n, cells, skip=(0,)), 7 * s.ne[0] * nelements(x))


def _out_prod(n: Tensor, cells: Cells) -> NodeWork:
    a = _at(n, 0)
    return NodeWork(Kind.F32, _touched(n, cells), 2 * nelements(n) * a.ne[1], float(n.ne[1]))


_SPECIAL: dict[int, Callable[[Tensor, Cells], NodeWork]] = {
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _experts,
    Op.OUT_PROD: _out_prod,
    Op.FLASH_ATTN_EXT: _attention,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.SET: _set,
    Op.ACC: _set,
    Op.CONV_2D: _conv,
    Op.CONV_3D: _conv,
    Op.SSM_SCAN: _scan,
}
"""Ops that do not read all of their sources, or that multiply matrices."""


def _depthwise(n: Tensor) -> int:
    kernel = _at(n, 0)
    return 2 * nelements(n) * kernel.ne[0] * kernel.ne[1]


def _transposed(n: Tensor) -> int:
    return 2 * nelements(_at(n, 1)) * math.prod(_at(n, 0).ne[:3])


def _short_convolution(n: Tensor) -> int:
    return 2 * nelements(n) * _at(n, 1).ne[0]


def _linear_attention(n: Tensor) -> int:
    """Each token steps a square of state per head: about three multiply-adds for each of its elements."""
    k = _at(n, 0)
    return 6 * nelements(k) * k.ne[0]


def _delta_net(n: Tensor) -> int:
    """The same; several heads of v can share one of q and k."""
    v = _at(n, 2)
    return 6 * nelements(v) * v.ne[0]


def _solve(n: Tensor) -> int:
    a = _at(n, 0)
    return a.ne[0] * (a.ne[0] + 1) * n.ne[0] * a.ne[2] * a.ne[3]


def _indexer(n: Tensor) -> int:
    q, k = _at(n, 0), _at(n, 1)
    return ((2 * q.ne[0] + 2) * q.ne[1] + 1) * k.ne[2] * q.ne[2] * q.ne[3]


def _sort(n: Tensor) -> int:
    a = _at(n, 0)
    return nelements(a) * max(a.ne[0].bit_length(), 1)


def _pool(n: Tensor) -> int:
    return nelements(n) * abs(param_i32(n, 1)) * (abs(param_i32(n, 2)) if n.op == Op.POOL_2D else 1)


def _reduced(n: Tensor) -> int:
    """As many operations as the source has elements."""
    return nelements(_at(n, 0))


_OPERATIONS: dict[int, Callable[[Tensor], int]] = {
    Op.CONV_2D_DW: _depthwise,
    Op.CONV_TRANSPOSE_1D: _transposed,
    Op.CONV_TRANSPOSE_2D: _transposed,
    Op.SSM_CONV: _short_convolution,
    Op.RWKV_WKV6: _linear_attention,
    Op.RWKV_WKV7: _linear_attention,
    Op.GATED_LINEAR_ATTN: _linear_attention,
    Op.GATED_DELTA_NET: _delta_net,
    Op.SOLVE_TRI: _solve,
    Op.LIGHTNING_INDEXER: _indexer,
    Op.ARGSORT: _sort,
    Op.TOP_K: _sort,
    Op.POOL_1D: _pool,
    Op.POOL_2D: _pool,
    Op.SUM: _reduced,
    Op.SUM_ROWS: _reduced,
    Op.MEAN: _reduced,
    Op.ARGMAX: _reduced,
}
"""Operations of ops with more than one for each element of the result."""
