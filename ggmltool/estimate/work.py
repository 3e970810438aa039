"""What a node takes to compute, as facts of its op: bytes that are really read and written, and operations.

Weights and caches are read once, however many columns they are multiplied with; of a cache only the cells that hold
something; of the experts of a MUL_MAT_ID only those that some token chose; of a GET_ROWS only its rows. Views take
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.op import IS_VIEW_OP, Op
from ggmltool.ggml.tensor import Tensor, nelements, root_of

CELLS = 256
"""llama.cpp shows attention this many cells of a cache more at a time."""


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
    `fused`: a backend that fuses computes it with the node before it.
    """

    kind: Kind
    nbytes: float
    operations: float
    columns: float = 0.0
    fused: bool = False


VIEW = NodeWork(Kind.ELEMENTS, 0.0, 0.0, fused=True)
"""A node that computes nothing and is not launched."""


def used_experts(n_expert: int, per_token: int, n_tokens: int) -> float:
    """How many of `n_expert` experts a batch uses, on average, if each token chooses any `per_token` of them."""
    if n_expert <= 0:
        return 0.0
    missed = (1 - min(per_token, n_expert) / n_expert) ** n_tokens
    return float(n_expert * (1 - missed))


def read_nbytes(t: Tensor) -> int:
    """The bytes of a tensor's elements, without the gaps of its strides."""
    return t.type.row_size(t.ne[0]) * t.ne[1] * t.ne[2] * t.ne[3]


def work_of(nodes: Sequence[Tensor], cached: int | None = None) -> list[NodeWork]:
    """What each node of a graph takes.

    `cached`: how many tokens of each sequence the caches hold before this batch; by default the caches are as full as
    the graph was built for.
    """
    caches = _Caches(nodes, cached)
    return [VIEW if IS_VIEW_OP[n.op] or n.op == Op.NONE else _work(n, caches) for n in nodes]


class _Caches:
    """Which tensors are caches (leafs that the graph writes rows of), and how many of their cells are looked at."""

    def __init__(self, nodes: Sequence[Tensor], cached: int | None) -> None:
        self.cached = cached
        self.written = {id(root_of(n)) for n in nodes if n.op in (Op.SET_ROWS, Op.CPY)}
        self.scores: dict[int, float] = {}

    def has(self, t: Tensor | None) -> bool:
        return t is not None and root_of(t).op == Op.NONE and id(root_of(t)) in self.written

    def share(self, cells: int, n_tokens: int) -> float:
        """The share of a cache's cells that is looked at when the last of `n_tokens` is there."""
        if self.cached is None or cells <= 0:
            return 1.0
        seen = -(-(self.cached + n_tokens) // CELLS) * CELLS
        return min(1.0, seen / cells)


def _work(n: Tensor, caches: _Caches) -> NodeWork:
    special = _SPECIAL.get(n.op)
    return special(n, caches) if special is not None and n.src and None not in n.src[:2] else _elements(n, caches)


def _sources(n: Tensor) -> list[Tensor]:
    return [s for s in n.src if s is not None and s is not n]


def _elements(n: Tensor, caches: _Caches) -> NodeWork:
    """An op that goes over its elements: it reads its sources and writes its result."""
    share = max((caches.scores.get(id(root_of(s)), 0.0) for s in _sources(n)), default=0.0) or 1.0
    if share < 1.0:
        caches.scores[id(root_of(n))] = share
    nbytes = sum(map(read_nbytes, _sources(n))) + read_nbytes(n)
    return NodeWork(Kind.ELEMENTS, share * nbytes, share * nelements(n))


def _rows(n: Tensor, caches: _Caches) -> NodeWork:
    """GET_ROWS and SET_ROWS: only the rows that are named."""
    rows = n if n.op == Op.GET_ROWS else _at(n, 0)
    stored = _at(n, 0) if n.op == Op.GET_ROWS else n
    count = rows.ne[1] * rows.ne[2] * rows.ne[3]
    nbytes = count * stored.type.row_size(rows.ne[0]) + read_nbytes(rows) + read_nbytes(_at(n, 1))
    return NodeWork(Kind.ELEMENTS, nbytes, nelements(rows))


def _at(n: Tensor, i: int) -> Tensor:
    s = n.src[i]
    if s is None:
        raise ValueError(f"{n!r} lacks source {i}")
    return s


def _kind(type: DType) -> Kind:
    if type.quantized:
        return Kind.QUANTIZED
    return {F16: Kind.F16, BF16: Kind.BF16, F32: Kind.F32}.get(type, Kind.F32)


def _product(n: Tensor, caches: _Caches) -> NodeWork:
    """MUL_MAT: source 0 once, source 1, the result."""
    a, b = _at(n, 0), _at(n, 1)
    operations = 2 * nelements(n) * a.ne[0]
    share, kind = 1.0, _kind(a.type)
    score = caches.scores.get(id(root_of(b)))
    if caches.has(a):
        # K times Q has a row for each cell; V times the scores adds up over them.
        cells = a.ne[0] if score is not None else a.ne[1]
        share, kind = score or caches.share(cells, b.ne[1]), Kind.ATTENTION
        if score is None:
            caches.scores[id(n)] = share
    nbytes = read_nbytes(a) + read_nbytes(b) + read_nbytes(n)
    columns = b.ne[1] * (b.ne[2] * b.ne[3]) / max(a.ne[2] * a.ne[3], 1)
    return NodeWork(kind, share * nbytes, share * operations, columns)


def _experts(n: Tensor, caches: _Caches) -> NodeWork:
    """MUL_MAT_ID: the experts that are chosen, as many as are expected."""
    a, b, ids = _at(n, 0), _at(n, 1), _at(n, 2)
    used = used_experts(a.ne[2], ids.ne[0], ids.ne[1])
    nbytes = used * a.type.row_size(a.ne[0]) * a.ne[1] + read_nbytes(b) + read_nbytes(n)
    columns = ids.ne[0] * ids.ne[1] / used if used else 0.0
    return NodeWork(_kind(a.type), nbytes, 2 * nelements(n) * a.ne[0], columns)


def _attention(n: Tensor, caches: _Caches) -> NodeWork:
    """FLASH_ATTN_EXT: K and V once, as far as they are filled; the mask; Q and the result."""
    q, k, v = _at(n, 0), _at(n, 1), _at(n, 2)
    share = caches.share(k.ne[1], q.ne[1])
    cells = read_nbytes(k) + read_nbytes(v) + sum(read_nbytes(s) for s in n.src[3:4] if s is not None)
    operations = 2 * q.ne[1] * q.ne[2] * q.ne[3] * k.ne[1] * (k.ne[0] + v.ne[0])
    return NodeWork(
        Kind.ATTENTION, share * cells + read_nbytes(q) + read_nbytes(n), share * operations, q.ne[1] * q.ne[3]
    )


_SPECIAL: dict[int, Callable[[Tensor, _Caches], NodeWork]] = {
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _experts,
    Op.FLASH_ATTN_EXT: _attention,
    Op.GET_ROWS: _rows,
    Op.SET_ROWS: _rows,
}
