"""What a node takes to compute, as facts of its op: bytes that are really read and written, and operations.

Weights and caches are read once, however many columns they are multiplied with; of a cache only the cells that hold
something; of the experts of a MUL_MAT_ID only those that some token chose; of a GET_ROWS only its rows. Views take
nothing. Operations are counted as ggml's own test-backend-ops does where it counts any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from ggmltool.ggml.dtypes import BF16, F16, DType
from ggmltool.ggml.op import IS_VIEW_OP, Op
from ggmltool.ggml.ops.operands import param_i32
from ggmltool.ggml.tensor import Tensor, nelements, root_of

CELLS = 256
"""llama.cpp shows attention so many cells of a cache more at a time (llama_kv_cache::get_n_kv)."""

_KEEPS = (Op.SOFT_MAX, Op.SCALE, Op.ADD, Op.CPY, Op.CONT, Op.UNARY, Op.MUL, Op.DUP)
"""What becomes of scores and masks before they are used: one number for each cell still."""


class CellShare(NamedTuple):
    """Shares of the cells that a graph was built for: those that are `read`, and those that are `seen`, on average over
    the tokens of the batch, which do not look at what comes behind them."""

    read: float
    seen: float


WHOLE = CellShare(1.0, 1.0)


class Cells:
    """The shares of caches, masks and scores in a graph, when the caches hold `cached` tokens before this batch.

    Caches are leafs that the graph writes rows of. With `cached` None they are as full as the graph was built for.
    """

    def __init__(self, nodes: Sequence[Tensor], cached: int | None) -> None:
        self.cached = cached
        self._written = {id(root_of(n)) for n in nodes if n.op in (Op.SET_ROWS, Op.CPY)}
        self._shares: dict[int, CellShare] = {}
        self._scores: set[int] = set()
        if cached is not None:
            for n in nodes:
                self._look(n)

    def of(self, t: Tensor | None) -> CellShare:
        """The share of a tensor that is looked at."""
        return WHOLE if t is None else self._shares.get(id(t), WHOLE)

    def is_cache(self, t: Tensor) -> bool:
        """Whether a tensor is a cache or a part of one."""
        root = root_of(t)
        return root.op == Op.NONE and id(root) in self._written

    def _look(self, n: Tensor) -> None:
        src = [s for s in n.src if s is not None]
        if n.op == Op.FLASH_ATTN_EXT:
            self._note(self._share(src[1].ne[1], src[0].ne[1]), *src[1:4])
        elif n.op == Op.MUL_MAT and self.is_cache(src[0]):
            if id(root_of(src[1])) in self._scores:
                self._note(self.of(src[1]), src[0])
            else:
                share = self._share(src[0].ne[1], src[1].ne[1])
                self._note(share, src[0], n)
                self._scores.add(id(n))
        elif n.op in _KEEPS and src and id(root_of(src[0])) in self._scores:
            share = self.of(src[0])
            self._note(share, n, *([src[1]] if n.op == Op.SOFT_MAX and len(src) > 1 else []))
            self._scores.add(id(root_of(n)))

    def _note(self, share: CellShare, *tensors: Tensor) -> None:
        for t in tensors:
            for made_of in _history(t):
                if id(made_of) not in self._written:
                    self._shares[id(made_of)] = share

    def _share(self, cells: int, n_tokens: int) -> CellShare:
        """The shares of a cache that is shown with so many cells to a batch of so many tokens."""
        if self.cached is None or cells <= 0:
            return WHOLE
        shown = min(cells, -(-(self.cached + n_tokens) // CELLS) * CELLS)
        return CellShare(shown / cells, min(shown, self.cached + (n_tokens + 1) / 2) / cells)


def _history(t: Tensor) -> Iterator[Tensor]:
    """A mask, cache or score with what it is a view or a cast of."""
    yield t
    while t.op in (Op.VIEW, Op.PERMUTE, Op.RESHAPE, Op.TRANSPOSE, Op.CPY, Op.CONT) and t.src and t.src[0] is not None:
        t = t.src[0]
        yield t


_ALWAYS = {
    (Op.RMS_NORM, Op.MUL), (Op.RMS_NORM, Op.SCALE), (Op.NORM, Op.MUL), (Op.MUL, Op.ADD), (Op.MUL, Op.ROPE),
    (Op.ADD, Op.ADD), (Op.ROPE, Op.SET_ROWS), (Op.SCALE, Op.UNARY), (Op.UNARY, Op.SCALE), (Op.UNARY, Op.MUL),
    (Op.UNARY, Op.SQR), (Op.SSM_CONV, Op.ADD), (Op.SSM_CONV, Op.UNARY), (Op.SOFT_MAX, Op.ARGSORT),
    (Op.ARGSORT, Op.GET_ROWS), (Op.GET_ROWS, Op.SUM_ROWS), (Op.SUM_ROWS, Op.CLAMP), (Op.CLAMP, Op.DIV),
}  # fmt: skip
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
        elif (
            before is not None
            and n.op in (Op.MUL_MAT, Op.MUL_MAT_ID)
            and before.op == n.op
            and before.src[1] is n.src[1]
            and before.ne == n.ne
            and before.src[0] is not None
            and n.src[0] is not None
            and before.src[0].type is n.src[0].type
        ):
            here = _columns(n)  # the halves of a gated feed-forward: alike, of the same columns
        if n.op in (Op.MUL_MAT, Op.MUL_MAT_ID):
            columns = _columns(n)
        out.append(here)
        before = n
    return out


def _columns(n: Tensor) -> float:
    return float(n.ne[1] * n.ne[2] * n.ne[3] if n.op == Op.MUL_MAT else n.ne[2])


class RateKind(IntEnum):
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

    kind: RateKind
    nbytes: float
    operations: float
    columns: float = 0.0
    fused: float | None = None


VIEW = NodeWork(RateKind.ELEMENTS, 0.0, 0.0)
"""A node that computes nothing and is not launched."""


def work_of(nodes: Sequence[Tensor], cells: Cells) -> list[NodeWork]:
    """What each node of a graph takes, if `cells` of its caches are looked at."""
    chained = fused(nodes)
    out = []
    for n, columns in zip(nodes, chained, strict=True):
        if IS_VIEW_OP[n.op] or n.op == Op.NONE:
            out.append(VIEW)
        else:
            special = _SPECIAL.get(n.op)
            if special is not None and len(n.src) > 1 and None not in n.src[:2]:
                work = special(n, cells)
            else:
                operations = _operations(n) if n.op in _COUNTED else nelements(n)
                work = NodeWork(RateKind.ELEMENTS, _touched(n, cells), cells.of(n).read * operations)
            out.append(work._replace(fused=columns))
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


def _kind(type: DType) -> RateKind:
    if type.quantized:
        return RateKind.QUANTIZED
    return {F16: RateKind.F16, BF16: RateKind.BF16}.get(type, RateKind.F32)


def _product(n: Tensor, cells: Cells) -> NodeWork:
    """MUL_MAT: source 0 once, source 1, the result."""
    a, b = _at(n, 0), _at(n, 1)
    kind = RateKind.ATTENTION if cells.is_cache(a) else _kind(a.type)
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
    return NodeWork(RateKind.ATTENTION, _touched(n, cells), cells.of(k).seen * operations, q.ne[1])


def _get_rows(n: Tensor, cells: Cells) -> NodeWork:
    """GET_ROWS: the rows that are named."""
    nbytes = n.ne[1] * n.ne[2] * n.ne[3] * _at(n, 0).type.row_size(n.ne[0]) + _touched(n, cells, skip=(0,))
    return NodeWork(RateKind.ELEMENTS, nbytes, nelements(n))


def _set_rows(n: Tensor, cells: Cells) -> NodeWork:
    """SET_ROWS: the rows that are written, not the others of the destination."""
    rows = _at(n, 0)
    nbytes = (
        read_nbytes(rows) + read_nbytes(_at(n, 1)) + rows.ne[1] * rows.ne[2] * rows.ne[3] * n.type.row_size(n.ne[0])
    )
    return NodeWork(RateKind.ELEMENTS, nbytes, nelements(rows))


def _copy(n: Tensor, cells: Cells) -> NodeWork:
    """CPY: source 0 into the result, which is a view of source 1."""
    a = _at(n, 0)
    nbytes = cells.of(a).read * read_nbytes(a) + cells.of(n).read * read_nbytes(n)
    return NodeWork(RateKind.ELEMENTS, nbytes, nelements(n))


def _set(n: Tensor, cells: Cells) -> NodeWork:
    """SET and ACC: source 1 into a copy of source 0, or in its place."""
    b = _at(n, 1)
    whole = 0 if n.view_src is not None else 2 * read_nbytes(n)
    return NodeWork(RateKind.ELEMENTS, whole + 2 * read_nbytes(b), nelements(b))


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
    return NodeWork(RateKind.ELEMENTS, states + _touched(n, cells, skip=(0,)), 7 * s.ne[0] * nelements(x))


def _out_prod(n: Tensor, cells: Cells) -> NodeWork:
    a = _at(n, 0)
    return NodeWork(RateKind.F32, _touched(n, cells), 2 * nelements(n) * a.ne[1], float(n.ne[1]))


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


_COUNTED = frozenset((
    Op.CONV_2D_DW, Op.CONV_TRANSPOSE_1D, Op.CONV_TRANSPOSE_2D, Op.SSM_CONV, Op.RWKV_WKV6, Op.RWKV_WKV7,
    Op.GATED_LINEAR_ATTN, Op.GATED_DELTA_NET, Op.SOLVE_TRI, Op.LIGHTNING_INDEXER, Op.ARGSORT, Op.TOP_K, Op.POOL_1D,
    Op.POOL_2D, Op.SUM, Op.SUM_ROWS, Op.MEAN, Op.ARGMAX,
))  # fmt: skip
"""Ops with other than one operation for each element of the result."""


def _operations(n: Tensor) -> int:
    """The operations of one of these."""
    a = _at(n, 0)
    match n.op:
        case Op.CONV_2D_DW:
            return 2 * nelements(n) * a.ne[0] * a.ne[1]
        case Op.CONV_TRANSPOSE_1D | Op.CONV_TRANSPOSE_2D:
            return 2 * nelements(_at(n, 1)) * math.prod(a.ne[:3])
        case Op.SSM_CONV:
            return 2 * nelements(n) * _at(n, 1).ne[0]
        case Op.RWKV_WKV6 | Op.RWKV_WKV7 | Op.GATED_LINEAR_ATTN:
            # Each token steps a square of state per head: about three multiply-adds for each of its elements.
            return 6 * nelements(a) * a.ne[0]
        case Op.GATED_DELTA_NET:
            v = _at(n, 2)  # several of its heads can share one of q and k
            return 6 * nelements(v) * v.ne[0]
        case Op.SOLVE_TRI:
            return a.ne[0] * (a.ne[0] + 1) * n.ne[0] * a.ne[2] * a.ne[3]
        case Op.LIGHTNING_INDEXER:
            return ((2 * a.ne[0] + 2) * a.ne[1] + 1) * _at(n, 1).ne[2] * a.ne[2] * a.ne[3]
        case Op.ARGSORT | Op.TOP_K:
            return nelements(a) * max(a.ne[0].bit_length(), 1)
        case Op.POOL_1D | Op.POOL_2D:
            return nelements(n) * abs(param_i32(n, 1)) * (abs(param_i32(n, 2)) if n.op == Op.POOL_2D else 1)
    return nelements(a)
