"""Matrix products: mul_mat, mul_mat_id (a matrix per expert), out_prod; and solve_tri, the way back of one.

ggml multiplies rows with rows: result[i, j] is the dot product of row i of a and row j of b, so a is what BLAS would
call transposed. a is repeated over dimensions 2 and 3 of b. The result is always f32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.cpu.mathfn import on_host
from ggmltool.ggml.ops.cpu.vec_dot import other_operand, weights
from ggmltool.ggml.ops.operands import not_computable, param_i32, requirer, show, show_nb, sources_of
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor, can_mul_mat, is_contiguous, is_transposed
from ggmltool.ggml.values.product import times

PREC = {"default": 0, "f32": 10, "bf16": 15, "f16": 20, "q8": 30, "q4": 40}
"""ggml_prec."""

HINT = {"none": 0, "src0_is_hadamard": 1}
"""ggml_op_hint."""

HADAMARD = 1

CHUNK = 1 << 24
"""Weights are converted to f32 in pieces of at most so many elements, to bound the memory that takes."""


def _require_not_transposed(function: str, name: str, a: Tensor) -> None:
    if is_transposed(a):
        if a.ne[0] % a.type.block_size and a.nb[0] == a.type.type_size:
            why = f"has rows of {a.ne[0]} elements, but {a.type.name} is made of blocks of {a.type.block_size}"
        else:
            why = "is transposed; make it contiguous first (cont)"
        raise GgmlAssert(function, f"!ggml_is_transposed({name})", f"{show_nb(a)} {why}")


_PRECISIONS = {"prec": PREC, "prec_b": PREC}


@constructor(
    Op.MUL_MAT,
    pack="i:prec i:hint _ i:prec_b",
    choices={**_PRECISIONS, "hint": HINT},
    example="w: f16[64, 32]; x: f32[64, 4]; mul_mat(w, x)",
    shape="a.ne[0] = b.ne[0]; b.ne[2] % a.ne[2] = 0; b.ne[3] % a.ne[3] = 0; "
    "a is not transposed -> f32[a.ne[1], b.ne[1], b.ne[2], b.ne[3]]",
    means={
        "prec": "precision of the sums; all but default and f32 since September 2026",
        "hint": "what ggml_mul_mat_set_hint sets: 1 says that a is a Hadamard matrix",
        "prec_b": "the lowest precision that b may be converted to; since September 2026",
    },
    parts=(
        OpPart("prec but default and f32", "2026-09-12", words=(0,), before=(0, 10)),
        OpPart("prec_b", "2026-09-12", words=(3,)),
    ),
    prototype="tt",
)
def mul_mat(ctx: Context, a: Tensor, b: Tensor, prec: int = 0, hint: int = 0, prec_b: int = 0) -> Tensor:
    """ggml_mul_mat: a's rows times b's rows. `prec` and `prec_b` are what ggml_prec_set_acc and _set_src set, the
    precision of the sums and of b; `hint` is that of ggml_mul_mat_set_hint.
    """
    requirer("ggml_mul_mat")(
        can_mul_mat(a, b),
        "ggml_can_mul_mat(a, b)",
        "{} times {}: the rows must be equally long ({} and {}), and ne[2], ne[3] of the second ({}, {}) multiples "
        "of the first's ({}, {})",
        a,
        b,
        a.ne[0],
        b.ne[0],
        b.ne[2],
        b.ne[3],
        a.ne[2],
        a.ne[3],
    )
    _require_not_transposed("ggml_mul_mat", "a", a)
    result = ctx.new_tensor(F32, (a.ne[1], b.ne[1], b.ne[2], b.ne[3]))
    return result.set_op(Op.MUL_MAT, words(prec, hint, 0, prec_b) if prec or hint or prec_b else (), a, b)


@constructor(
    Op.MUL_MAT_ID,
    pack="i:prec _ _ i:prec_b",
    choices=_PRECISIONS,
    example="experts: f16[64, 32, 8]; x: f32[64, 1, 4]; ids: i32[2, 4]; mul_mat_id(experts, x, ids)",
    shape="as.ne[0] = b.ne[0]; as.ne[3] = 1; b.ne[3] = 1; ids.type = i32; ids is a matrix; "
    "ids.ne[1] = b.ne[2]; ids.ne[0] % b.ne[1] = 0; "
    "as is not transposed -> f32[as.ne[1], ids.ne[0], b.ne[2], 1]",
    means={
        "prec": "precision of the sums; all but default and f32 since September 2026",
        "prec_b": "the lowest precision that b may be converted to; since September 2026",
    },
    parts=(OpPart("prec", "2026-09-12", words=(0, 3)),),
    prototype="ttt",
)
def mul_mat_id(ctx: Context, as_: Tensor, b: Tensor, ids: Tensor, prec: int = 0, prec_b: int = 0) -> Tensor:
    """ggml_mul_mat_id: for each token t and slot e, matrix ids[e, t] of `as` times row e of b's matrix t.

    as [cols, rows, experts], b [cols, slots or 1, tokens], ids [slots, tokens]; result [rows, slots, tokens]. `prec`
    and `prec_b` are what ggml_prec_set_acc and _set_src set.
    """

    require = requirer("ggml_mul_mat_id")

    _require_not_transposed("ggml_mul_mat_id", "as", as_)
    require(ids.type is I32, "ids->type == GGML_TYPE_I32", "the expert numbers must be i32, not {}", ids)
    require(as_.ne[3] == 1, "as->ne[3] == 1", "{} must have three dimensions, one matrix per expert", as_)
    require(b.ne[3] == 1, "b->ne[3] == 1", "{} must have at most three dimensions", b)
    why = "{} must be a matrix: slots, tokens"
    require(ids.ne[2] == 1 and ids.ne[3] == 1, "ids->ne[2] == 1 && ids->ne[3] == 1", why, ids)
    why = "{} must have a row of experts per matrix (token) of {}"
    require(ids.ne[1] == b.ne[2], "ids->ne[1] == b->ne[2]", why, ids, b)
    require(as_.ne[0] == b.ne[0], "as->ne[0] == b->ne[0]", "the rows of {} and {} must be equally long", as_, b)
    why = "the {} rows per token of {} cannot be repeated over the {} experts of {}"
    require(b.ne[1] != 0 and ids.ne[0] % b.ne[1] == 0, "ids->ne[0] % b->ne[1] == 0", why, b.ne[1], b, ids.ne[0], ids)
    result = ctx.new_tensor(F32, (as_.ne[1], ids.ne[0], b.ne[2], 1))
    return result.set_op(Op.MUL_MAT_ID, words(prec, 0, 0, prec_b), as_, b, ids)


@constructor(
    Op.OUT_PROD,
    example="a: f32[8, 4]; b: f32[16, 4]; out_prod(a, b)",
    shape="a.ne[1] = b.ne[1]; b.ne[2] % a.ne[2] = 0; b.ne[3] % a.ne[3] = 0; "
    "a is not transposed -> f32[a.ne[0], b.ne[0], b.ne[2], b.ne[3]]",
)
def out_prod(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """ggml_out_prod: the sum over k of column k of a times column k of b, [a0, b0, b2, b3]."""
    requirer("ggml_out_prod")(
        a.ne[1] == b.ne[1] and 0 not in a.ne[2:] and b.ne[2] % a.ne[2] == 0 and b.ne[3] % a.ne[3] == 0,
        "ggml_can_out_prod(a, b)",
        "{} and {}: ne[1] must be equal, and ne[2], ne[3] of the second multiples of the first's",
        a,
        b,
    )
    _require_not_transposed("ggml_out_prod", "a", a)
    return ctx.new_tensor(F32, (a.ne[0], b.ne[0], b.ne[2], b.ne[3])).set_op(Op.OUT_PROD, (), a, b)


@kernel(Op.MUL_MAT)
def mul_mat_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_mul_mat."""
    a, b = sources_of(dst)
    if param_i32(dst, 1) == HADAMARD:
        _fwht(x, dst, b)
        return
    exact = param_i32(dst, 0) == PREC["f32"]
    other = other_operand(x, b, a.type, exact)
    rows, a2, a3 = a.ne[1:]
    n, b2, b3 = b.ne[1:]
    # Matrix i2 of b meets matrix i2 // (b2 // a2) of a, so b's repeats lie next to each other: one product each.
    other = other.reshape(a3, b3 // a3, a2, (b2 // a2) * n, other.shape[-1])
    result = x.raw(dst, "writes")
    in_place = dst.type is F32 and result.flags.c_contiguous
    shape = (a3, b3 // a3, a2, (b2 // a2) * n, rows)
    out = result.reshape(shape) if in_place else x.xp.empty(shape, dtype="float32")
    data = x.raw(a)
    step = max(1, CHUNK // max(1, a.ne[0] * a2 * a3)) if x.on_host else rows
    for i in range(0, rows, step):
        rows_of_a = data[:, :, i : i + step]
        part = x.kept(a, (i, step), partial(weights, x, rows_of_a, a.type, exact))
        _product(x.xp, part[:, None], other, out[..., i : i + step])
    if not in_place:
        x.put(dst, out.reshape(dst.ne[::-1]))


def _product(xp: Any, a: Any, b: Any, out: Any) -> None:
    """Rows of b times rows of a."""
    if on_host(xp):
        times(b, a.swapaxes(-1, -2), out)
    elif a.size == a.shape[-2] * a.shape[-1] and b.size == b.shape[-2] * b.shape[-1]:
        # A pair of matrices is given as such: stacks are copied, and those of halves multiplied in float32.
        out[...] = b.reshape(b.shape[-2:]) @ a.reshape(a.shape[-2:]).T
    else:
        out[...] = xp.matmul(*(v.astype("float32", copy=False) for v in (b, a.swapaxes(-1, -2))))


def _fwht(x: Arrays, dst: Tensor, b: Tensor) -> None:
    """ggml_compute_forward_fwht: b's rows through the normalized Walsh-Hadamard transform."""
    n = b.ne[0]
    if n != dst.ne[0]:
        raise not_computable(dst, f"a Hadamard matrix gives rows as long as those of {show(b)}, not of {dst.ne[0]}")
    requirer("ggml_compute_forward_fwht_f32")(n & n - 1 == 0, "(n & (n - 1)) == 0", "{} is not a power of two", n)
    out = x.f32(b) * x.xp.float32(1 / n**0.5)
    shape = out.shape
    half = 1
    while half < n:
        pairs = out.reshape(*shape[:3], n // (2 * half), 2, half)
        u, v = pairs[..., 0, :], pairs[..., 1, :]
        out = x.xp.stack((u + v, u - v), axis=-2).reshape(shape)
        half *= 2
    x.put(dst, out)


@kernel(Op.MUL_MAT_ID)
def mul_mat_id_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_mul_mat_id: the rows are grouped by expert; experts that nobody chose are not read.

    On a GPU the host waits for the choice, as ggml_cuda_mul_mat_id does.
    """
    experts, b, ids = sources_of(dst)
    other = other_operand(x, b, experts.type)[0]
    chosen = x.to_host(x.raw(ids)[0, 0])
    wrong = chosen[(chosen < 0) | (chosen >= experts.ne[2])]
    if wrong.size:
        raise GgmlAssert(
            "ggml_compute_forward_mul_mat_id",
            "i02 >= 0 && i02 < n_as",
            f"{show(ids)} names expert {int(wrong[0])}, but {show(experts)} has {experts.ne[2]}",
        )
    data = x.raw(experts)[0]
    out = x.xp.empty((dst.ne[2], dst.ne[1], dst.ne[0]), dtype="float32")
    for expert in sorted(set(chosen.reshape(-1).tolist())):
        token, slot = (x.from_host(places) for places in (chosen == expert).nonzero())
        rows = other[token, slot % b.ne[1]]
        matrix = x.kept(experts, expert, partial(weights, x, data[expert], experts.type))
        out[token, slot] = times(rows, matrix.T)
    x.put(dst, out)


@kernel(Op.OUT_PROD)
def out_prod_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_out_prod."""
    a, b = sources_of(dst)
    left = x.f32(a).repeat(b.ne[3] // a.ne[3], axis=0).repeat(b.ne[2] // a.ne[2], axis=1)
    x.put(dst, x.f32(b).swapaxes(-1, -2) @ left)


@constructor(
    Op.SOLVE_TRI,
    # ggml stores none of the three: it builds no other variant.
    unpack=lambda _: {"left": True, "lower": True, "uni": False},
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
    require = requirer("ggml_solve_tri")
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{:nb} must be f32", a)
    require(b.type is F32, "b->type == GGML_TYPE_F32", "{:nb} must be f32", b)
    require(a.ne[0] == a.ne[1], "a->ne[0] == a->ne[1]", "{:nb} must be square", a)
    require(a.ne[1] == b.ne[1], "a->ne[1] == b->ne[1]", "{:nb} and {:nb} must have as many rows", a, b)
    for i in (2, 3):
        why = "{:nb} and {:nb} must have the same ne[2] and ne[3]"
        require(a.ne[i] == b.ne[i], f"a->ne[{i}] == b->ne[{i}]", why, a, b)
    require(is_contiguous(a), "ggml_is_contiguous(a)", "{:nb} must be contiguous", a)
    require(is_contiguous(b), "ggml_is_contiguous(b)", "{:nb} must be contiguous", b)
    variant = f"ggml solves for left, lower and not uni only, not left={left}, lower={lower}, uni={uni}"
    require(lower and left and not uni, "lower && left && !uni", variant)
    return ctx.new_tensor(F32, b.ne).set_op(Op.SOLVE_TRI, (), a, b)


@kernel(Op.SOLVE_TRI)
def solve_tri_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_solve_tri: row after row, all columns and matrices at once."""
    a_, b_ = sources_of(dst)
    a, b = x.f32(a_), x.f32(b_)
    out = x.xp.empty(b.shape, dtype="float32")
    for i in range(b.shape[2]):
        known = a[:, :, i, None, :i] @ out[:, :, :i]
        out[:, :, i] = (b[:, :, i] - known[:, :, 0]) / a[:, :, i, i, None]
    x.put(dst, out)
