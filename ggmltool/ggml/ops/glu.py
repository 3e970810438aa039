"""GLU: gated linear units. f(x) * g, where x and g are the halves of each row of one tensor, or two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.op import GluOp, Op
from ggmltool.ggml.ops.cpu import mathfn
from ggmltool.ggml.ops.operands import param_f32, param_i32, requirer
from ggmltool.ggml.ops.registry import Arrays, Raw, constructor, float_bits, float_of, kernel, words
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous_1

NAMES: dict[str, int] = {g.name.lower(): int(g) for g in GluOp}
"""The functions by the names of their constructors."""

_HALF = "a.type[a.ne[0] / 2, a.ne[1], a.ne[2], a.ne[3]]"
_SWAPPED = f"a is contiguous from dimension 1 on -> {_HALF}"
_SPLIT = "a is contiguous from dimension 1 on; a and b have one shape; a.type = b.type -> a.type[a.ne]"
_WHOLE = (
    "a is contiguous from dimension 1 on; b is contiguous from dimension 1 on; b and a have one shape; "
    f"b.type = a.type -> a.type[a.ne] with b, else {_HALF}"
)


def _require_contiguous_1(t: Tensor, name: str) -> None:
    why = "{:nb} may have gaps between its rows only; make it contiguous first (cont)"
    requirer("ggml_glu_impl")(is_contiguous_1(t), f"ggml_is_contiguous_1({name})", why, t)


def _build(ctx: Context, a: Tensor, b: Tensor | None, op: int, swapped: bool, *more: float) -> Tensor:
    _require_contiguous_1(a, "a")
    require = requirer("ggml_glu_impl")
    if b is not None:
        _require_contiguous_1(b, "b")
        require(are_same_shape(a, b), "ggml_are_same_shape(a, b)", "{} and {} differ in shape", a, b)
        require(a.type is b.type, "a->type == b->type", "{} and {} differ in type", a, b)
    result = ctx.new_tensor(a.type, a.ne if b is not None else (a.ne[0] // 2, *a.ne[1:]))
    return result.set_op(Op.GLU, words(op, int(swapped), *(float_bits(v) for v in more)), a, b)


def _read(raw: Raw) -> dict[str, Any]:
    return {
        "op": raw.word(0),
        "swapped": bool(raw.word(1)),
        "alpha": float_of(raw.word(2)),
        "limit": float_of(raw.word(3)),
    }


@constructor(
    Op.GLU,
    canonical=True,
    unpack=_read,
    choices={"op": NAMES},
    since="2025-06-29",
    example="x: f32[8, 4]; glu(x, op=swiglu)",
    shape=_WHOLE,
    means={
        "op": "which function",
        "swapped": "whether the function is of the second half of a row, not the first",
        "alpha": "factor within the sigmoid",
        "limit": "bound of x and g",
    },
    note="the functions are listed below the ops; each is written by its own name too",
    prototype="tib",
)
def glu(
    ctx: Context,
    a: Tensor,
    b: Tensor | None = None,
    op: int = 0,
    swapped: bool = False,
    alpha: float = 0.0,
    limit: float = 0.0,
) -> Tensor:
    """ggml_glu, _split, ggml_swiglu_oai and _clamp: the function `op` (a name or ggml's number) of x, times g.

    Without b, x is the first half of each row of a and g the second, or the other way round when `swapped`; an odd
    element at the end of a row is left out. With b, x is a and g is b. `alpha` is swiglu_oai's, `limit` also
    swiglu_clamp's.
    """
    return _build(ctx, a, b, op, swapped, alpha, limit)


@constructor(Op.GLU, pack="i:op", choices={"op": NAMES}, shape=_SPLIT)
def glu_split(ctx: Context, a: Tensor, b: Tensor, op: int) -> Tensor:
    """ggml_glu_split: the function `op` of a, times b."""
    return _build(ctx, a, b, op, False)


def _named(op: GluOp, since: str) -> None:
    name = op.name.lower()

    def whole(ctx: Context, a: Tensor, b: Tensor | None = None, swapped: bool = False) -> Tensor:
        return _build(ctx, a, b, op, swapped)

    def swap(ctx: Context, a: Tensor) -> Tensor:
        return _build(ctx, a, None, op, True)

    def split(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        return _build(ctx, a, b, op, False)

    whole.__doc__ = f"ggml_{name}: of the halves of each row of a, or of a and b (as a node with two sources says)."
    swap.__doc__ = f"ggml_{name}_swapped: the function of the second half of each row, times the first."
    split.__doc__ = f"ggml_{name}_split: the function of a, times b."
    constructor(
        Op.GLU, name, pack="_ i:swapped", prototype="t", since=since, example=f"x: f32[8, 4]; {name}(x)", shape=_WHOLE
    )(whole)
    constructor(Op.GLU, f"{name}_swapped", shape=_SWAPPED)(swap)
    constructor(Op.GLU, f"{name}_split", shape=_SPLIT)(split)


_named(GluOp.REGLU, "2025-06-29")
_named(GluOp.GEGLU, "2025-06-29")
_named(GluOp.SWIGLU, "2025-06-29")
_named(GluOp.GEGLU_ERF, "2025-07-03")
_named(GluOp.GEGLU_QUICK, "2025-07-03")


@constructor(
    Op.GLU,
    pack="_ _ f:alpha f:limit",
    since="2025-08-05",
    example="gate: f32[8, 4]; up: f32[8, 4]; swiglu_oai(gate, up, alpha=1.702, limit=7)",
    shape=_WHOLE,
)
def swiglu_oai(ctx: Context, a: Tensor, b: Tensor | None = None, alpha: float = 0.0, limit: float = 0.0) -> Tensor:
    """ggml_swiglu_oai: x sigmoid(alpha x) (g + 1), with x at most `limit` and g within it."""
    return _build(ctx, a, b, GluOp.SWIGLU_OAI, False, alpha, limit)


@constructor(
    Op.GLU,
    pack="_ _ _ f:limit",
    since="2026-08-31",
    example="gate: f32[8, 4]; up: f32[8, 4]; swiglu_clamp(gate, up, limit=7)",
    shape=_WHOLE,
)
def swiglu_clamp(ctx: Context, a: Tensor, b: Tensor | None = None, limit: float = 0.0) -> Tensor:
    """ggml_swiglu_clamp: silu(x) g, with x at most `limit` and g within it."""
    return _build(ctx, a, b, GluOp.SWIGLU_CLAMP, False, 0.0, limit)


def _swiglu_oai(xp: Any, v: Any, g: Any, alpha: float, limit: float) -> Any:
    alpha, limit = xp.float32(alpha), xp.float32(limit)
    v = xp.where(limit < v, limit, v)
    g = xp.where(g < -limit, -limit, g)
    g = xp.where(limit < g, limit, g)
    return v / (1 + xp.exp(alpha * -v)) * (g + xp.float32(1))


def _swiglu_clamp(xp: Any, v: Any, g: Any, limit: float) -> Any:
    limit = xp.float32(limit)
    v = xp.where(limit < v, limit, v)
    g = xp.where(g < -limit, -limit, xp.where(limit < g, limit, g))
    return v / (1 + xp.exp(-v)) * g


FUNCTIONS: dict[int, Callable[[Any, Any, Any], Any]] = {
    GluOp.REGLU: lambda xp, v, g: xp.where(v > 0, v * g, xp.float32(0)),
    GluOp.SWIGLU: lambda xp, v, g: mathfn.silu(xp, v) * g,
    GluOp.GEGLU_ERF: lambda xp, v, g: mathfn.gelu_erf(xp, v) * g,
    GluOp.GEGLU_QUICK: lambda xp, v, g: mathfn.gelu_quick_table(xp, v) * g,
}
"""The functions that need nothing but x and g: (xp, x, g) -> values, all float32."""

OF_BF16 = {GluOp.GEGLU: mathfn.gelu, GluOp.GEGLU_QUICK: mathfn.gelu_quick}
"""The functions of x that have no table for bf16: every value is computed."""


@kernel(Op.GLU)
def _glu(x: Arrays, dst: Tensor) -> None:
    a, b = dst.src[0], dst.src[1] if len(dst.src) > 1 else None
    if a is None:
        raise ValueError(f"{dst!r} lacks its operand")
    op, n, left = param_i32(dst, 0), dst.ne[0], x.f32(a)
    if b is not None:
        v, g = left, x.f32(b)
    elif param_i32(dst, 1):
        v, g = left[..., n : 2 * n], left[..., :n]
    else:
        v, g = left[..., :n], left[..., n : 2 * n]
    if a.type is BF16 and op in OF_BF16:
        out = OF_BF16[GluOp(op)](x.xp, v) * g
    elif op == GluOp.GEGLU:
        if a.type is F16:
            out = mathfn.gelu_table(x.xp, v, True) * g
        else:
            out = x.xp.where(v <= -10, x.xp.float32(0), mathfn.gelu_table(x.xp, v, False) * g)
    elif op == GluOp.SWIGLU_OAI:
        out = _swiglu_oai(x.xp, v, g, param_f32(dst, 2), param_f32(dst, 3))
    elif op == GluOp.SWIGLU_CLAMP:
        out = _swiglu_clamp(x.xp, v, g, param_f32(dst, 3))
    elif op in FUNCTIONS:
        out = FUNCTIONS[op](x.xp, v, g)
    else:
        raise GgmlAbort("ggml_compute_forward_glu", "fatal error", explanation=f"there is no GLU function {op}")
    x.put(dst, out)
