"""Whether a node is one that its op's constructor could have made: what a kernel takes for granted.

A node that was made by a call of its constructor always is. One that was read from a file, word by word, need not be:
planning takes it as it is written, as ggml's does, and before it is computed it is judged here.

And what computing it takes is estimated from its extents, and bounded: a scenario of one line can ask for a product
that would take a week, or for more memory than there is. What is counted are multiply-adds and the bytes that the
kernel takes for its result and what it converts meanwhile, the first of the same order as what is really done, the
second rather too high.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ggmltool.ggml.bounds import check_memory
from ggmltool.ggml.buffer import bounds_of
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlCrash, GgmlError, GgmlFailed, NotComputable
from ggmltool.ggml.op import Op, OpRules
from ggmltool.ggml.ops.operands import param_i32, show, sources_of
from ggmltool.ggml.ops.registry import SELF, Constructor, Raw, for_node
from ggmltool.ggml.tensor import Tensor, nelements, op_desc

_MOST = 1 << 14

_fine: dict[tuple[object, ...], OpWork] = {}
"""What was judged and found to be in order: the layers of a model are alike, and computed token by token."""


def judge(n: Tensor, rules: OpRules) -> None:
    """Raise what its op's constructor, by the rules of its ggml, would raise for the sources and parameters of `n`.

    GgmlCrash where a source is missing, NotComputable where the node has another type or other extents than the op
    gives, GgmlFailed where computing it would take more than it may.
    """
    sources = tuple([None if s is None else SELF if s is n else (s.type, s.ne, s.nb) for s in n.src])
    key = (rules, n.op, n.op_params, n.type, n.ne, n.nb, sources)
    takes = _fine.get(key)
    if takes is None:
        _judge(n, rules)
        if len(_fine) >= _MOST:
            _fine.clear()
        takes = _fine[key] = work_of(n)
    _check_work(n, takes)


def _judge(n: Tensor, rules: OpRules) -> None:
    src = n.src
    if n.op == Op.CPY and len(src) == 1:
        src = [*src, n]  # graph_copy's copy of a cast has no edge to itself, and the kernel looks for none
    c = for_node(n.op, src, n)
    if c is None:
        if n in n.src:
            raise _no_such_call(n, "it is a source of itself")
        return
    order = c.call_order(src)
    _check_sources(n, c, order)
    params = c.read_params(Raw(n.op_params, n.type, n.ne, n.nb, n.view_offs))
    if params is None:
        return
    try:
        made = c.build(Context(rules=rules), *order, **params)
    except GgmlError as error:
        error.explanation += f"\n{n.label} is a node in long form, which no call of ggml's would have made"
        raise
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise _no_such_call(n, str(error)) from None
    if made.ne != n.ne or made.type is not n.type:
        raise _no_such_call(n, f"it would give {show(made)}, and {n.label} is {show(n)}")


def _check_sources(n: Tensor, c: Constructor, order: list[Tensor | None]) -> None:
    least = c.n_required_sources
    for i in range(least):
        if i >= len(order) or order[i] is None:
            name = c.sources[i].rstrip("_")
            raise GgmlCrash(
                "ggml_graph_compute",
                "a read at the address NULL",
                f"{n.label} ({op_desc(n)}) has no source {name}: it needs {', '.join(c.shown_sources[:least])}",
            )
    if len(order) > len(c.sources):
        raise _no_such_call(n, f"it takes {len(c.sources)} sources, and {n.label} has {len(order)}")


def _no_such_call(n: Tensor, why: str) -> NotComputable:
    return NotComputable(
        "ggml_graph_compute",
        f"{n.label} is no {op_desc(n)} that can be computed: {why}",
        explanation="no call of ggml's makes such a node, and its kernels do not look: they would read or write beyond "
        "its memory. It can be planned",
    )


STEP = 1 << 20
"""What a step of a kernel's loop costs beside its multiply-adds."""

_ELEMENT = 128
"""Multiply-adds that an element read or written stands for: numpy goes over it several times."""

_GATHERED = 32
"""The same of an element of an image that is put beside others, to be multiplied."""


class OpWork(NamedTuple):
    """What computing a node takes."""

    operations: int
    nbytes: int


def _check_work(n: Tensor, work: OpWork) -> None:
    """Raise GgmlFailed where computing `n`, which takes `work`, would go beyond the bounds."""
    bounds = bounds_of(n)
    check_memory(work.nbytes, f"computing {n.label} ({op_desc(n)})", bounds)
    if work.operations > bounds.operations:
        of = ", ".join(show(s) for s in sources_of(n))
        raise GgmlFailed(
            "ggml_graph_compute",
            f"{n.label} needs about {work.operations:.1e} operations, and the limit for a node is "
            f"{bounds.operations:.1e}",
            explanation=f"it is {op_desc(n)} of {of or 'nothing'} to {show(n)}, and would take very long here.\n"
            "--max-operations lifts the limit (also GGMLTOOL_MAX_OPERATIONS; in Python `ggmltool.load(…, bounds=…)`), "
            "--no-compute only plans",
        )


def work_of(n: Tensor) -> OpWork:
    """What computing `n` takes."""
    elements = nelements(n)
    read = 0
    skipped = _PARTLY_READ.get(n.op, ())
    for i, s in enumerate(n.src):
        if s is not None and s is not n and i not in skipped:
            read += nelements(s)
    special = _OPERATIONS.get(n.op)
    more, scratch = special(n) if special is not None and None not in n.src[:2] else (0, 0)
    return OpWork(_ELEMENT * (elements + read) + more, _BYTES * (elements + read) + scratch)


_BYTES = 8
"""What an element takes: its own four bytes, and four for what comes between."""

_PARTLY_READ: dict[int, tuple[int, ...]] = {
    Op.MUL_MAT: (0,),
    Op.MUL_MAT_ID: (0,),
    Op.GET_ROWS: (0,),
    Op.SET_ROWS: (2,),
    Op.FLASH_ATTN_EXT: (1, 2, 3),
}
"""Sources of which a kernel converts a part at a time."""

Special = Callable[[Tensor], tuple[int, int]]
"""A node's multiply-adds, and the bytes that the kernel takes besides."""


def _source(n: Tensor, i: int) -> Tensor:
    s = n.src[i] if i < len(n.src) else None
    return n if s is None else s


def _out_prod(n: Tensor) -> tuple[int, int]:
    return nelements(n) * _source(n, 0).ne[1], 4 * _source(n, 0).ne[0] * _source(n, 0).ne[1] * n.ne[2] * n.ne[3]


def _attention(n: Tensor) -> tuple[int, int]:
    q, k, v = (_source(n, i) for i in range(3))
    heads = q.ne[2] * q.ne[3]
    return heads * (q.ne[1] * k.ne[1] * (q.ne[0] + v.ne[0]) + STEP), 0


def _experts(n: Tensor) -> tuple[int, int]:
    a, ids = _source(n, 0), _source(n, 2)
    return nelements(n) * a.ne[0] + min(a.ne[2], nelements(ids)) * STEP, 0


def _indexer(n: Tensor) -> tuple[int, int]:
    q = _source(n, 0)
    return nelements(n) * q.ne[0] * q.ne[1] + q.ne[3] * STEP, 4 * nelements(n)


def _conv_2d(n: Tensor) -> tuple[int, int]:
    a, b = _source(n, 0), _source(n, 1)
    taps = math.prod(a.ne[:3])
    gathered = n.ne[0] * n.ne[1] * taps
    return nelements(n) * taps + b.ne[3] * (_GATHERED * gathered + STEP), 8 * gathered


def _conv_3d(n: Tensor) -> tuple[int, int]:
    a, channels = _source(n, 0), abs(param_i32(n, 9))
    taps = math.prod(a.ne[:3]) * channels
    gathered = math.prod(n.ne[:3]) * taps
    return nelements(n) * taps + abs(param_i32(n, 10)) * (_GATHERED * gathered + STEP), 8 * gathered


def _im2col(n: Tensor) -> tuple[int, int]:
    images = _source(n, 1).ne[3] if n.op == Op.IM2COL_3D else 1
    return images * STEP, 16 * nelements(n)


def _im2col_back(n: Tensor) -> tuple[int, int]:
    a, b = _source(n, 0), _source(n, 1)
    return nelements(a) + b.ne[0] * b.ne[1] * STEP, _windows(a.ne[1], b.ne[0], a.ne[2], b.ne[1])


def _transposed(n_dims: int) -> Special:
    def work(n: Tensor) -> tuple[int, int]:
        a, b = _source(n, 0), _source(n, 1)
        return b.ne[3] * (nelements(a) * math.prod(b.ne[:n_dims]) + math.prod(a.ne[:n_dims]) * STEP), 0

    return work


def _windows(n0: int, k0: int, n1: int, k1: int) -> int:
    """The bytes that say which elements the windows of n0 times n1 places see."""
    return 9 * (n0 * k0 + n1 * k1)


def _depthwise(n: Tensor) -> tuple[int, int]:
    k0, k1 = _source(n, 0).ne[:2]
    return k0 * k1 * (STEP + _GATHERED * nelements(n)), _windows(n.ne[0], k0, n.ne[1], k1)


def _pool(n: Tensor) -> tuple[int, int]:
    k0 = abs(param_i32(n, 1))
    k1 = abs(param_i32(n, 2)) if n.op == Op.POOL_2D else 1
    return k0 * k1 * (STEP + _GATHERED * nelements(n)), _windows(n.ne[0], k0, n.ne[1], k1)


def _pool_back(n: Tensor) -> tuple[int, int]:
    a, k0, k1 = _source(n, 0), abs(param_i32(n, 1)), abs(param_i32(n, 2))
    return k0 * k1 * (STEP + _GATHERED * nelements(a)), _windows(a.ne[0], k0, a.ne[1], k1)


def _rope(n: Tensor) -> tuple[int, int]:
    return n.ne[0] * (STEP >> 5), 0


def _scan(n: Tensor) -> tuple[int, int]:
    s, x = _source(n, 0), _source(n, 1)
    return nelements(x) * s.ne[0] + x.ne[2] * STEP, 0


def _short_convolution(n: Tensor) -> tuple[int, int]:
    c = _source(n, 1)
    return c.ne[0] * (_GATHERED * nelements(n) + STEP), 0


def _linear_attention(n: Tensor) -> tuple[int, int]:
    k = _source(n, 0)
    return nelements(k) * k.ne[0] + k.ne[2] * STEP, 0


def _sort(n: Tensor) -> tuple[int, int]:
    a = _source(n, 0)
    return nelements(a) * max(a.ne[0].bit_length(), 1), 8 * nelements(a)


_OPERATIONS: dict[int, Special] = {
    Op.MUL_MAT: lambda n: (nelements(n) * _source(n, 0).ne[0], 0),
    Op.MUL_MAT_ID: _experts,
    Op.OUT_PROD: _out_prod,
    Op.FLASH_ATTN_EXT: _attention,
    Op.LIGHTNING_INDEXER: _indexer,
    Op.CONV_2D: _conv_2d,
    Op.CONV_2D_DW: _depthwise,
    Op.CONV_3D: _conv_3d,
    Op.CONV_TRANSPOSE_1D: _transposed(1),
    Op.CONV_TRANSPOSE_2D: _transposed(2),
    Op.IM2COL: _im2col,
    Op.IM2COL_3D: _im2col,
    Op.COL2IM_1D: lambda n: (_source(n, 0).ne[0] // max(param_i32(n, 1), 1) * STEP, 0),
    Op.IM2COL_BACK: _im2col_back,
    Op.POOL_1D: _pool,
    Op.POOL_2D: _pool,
    Op.POOL_2D_BACK: _pool_back,
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    Op.SSM_CONV: _short_convolution,
    Op.SSM_SCAN: _scan,
    Op.RWKV_WKV6: _linear_attention,
    Op.RWKV_WKV7: _linear_attention,
    Op.GATED_LINEAR_ATTN: _linear_attention,
    Op.GATED_DELTA_NET: _linear_attention,
    Op.SOLVE_TRI: lambda n: (nelements(n) * n.ne[1] + n.ne[1] * STEP, 0),
    Op.DSV4_HC_COMB: lambda n: (abs(param_i32(n, 1)) * (_GATHERED * nelements(n) + STEP), 0),
    Op.ARGSORT: _sort,
    Op.TOP_K: _sort,
    Op.ARANGE: lambda n: (0, 16 * nelements(n)),
}
"""What an op takes beyond reading its sources and writing its result."""
