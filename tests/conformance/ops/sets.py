"""Sets of calls for each op, as ggml's own test-backend-ops has them: types, shapes, broadcasts, layouts, parameters.

Unlike the tables beside each family's rules, which show what is special, these go through combinations. A call that
ggml's CPU refuses belongs here too: the engine has to refuse it in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import GluOp, UnaryOp
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.ggml.tensor import FLAG_PARAM
from tests.conformance.ops.rope import rope
from tests.conformance.ops.softmax import ext
from tests.conformance.ops_case import Call, Src, call, cut, permuted

FLAT = 1 << 17
"""More than any kernel strays that goes through all rows with one stride."""

FLOATS = ("f32", "f16", "bf16")
READABLE = tuple(t.name for t in TYPES.values() if t.quantized and t.name not in ("q8_1", "q8_K", "iq1_s", "iq1_m"))
CHEAP = tuple(t for t in READABLE if not t.startswith(("iq2", "iq3")))
"""Types that the library quantizes to quickly."""

SHAPES = ((10, 5, 4, 3), (1, 1, 1, 1), (7, 1, 5, 3), (33, 2), (257, 1), (1025, 3), (64, 2, 2, 2), (1, 9))


def spread(type: str, ne: tuple[int, ...], data: Any = "normal") -> list[Src]:
    """The same extents lying packed, with gaps between rows and planes, and permuted."""
    dims = (*ne, 1, 1, 1)[:4]
    return [
        Src(type, ne, data=data),
        cut(
            type, ne, (dims[0] + 32 if TYPES[type].quantized else dims[0] + 3, dims[1] + 1, dims[2], dims[3]), data=data
        ),
        permuted(type, (dims[0], dims[2], dims[1], dims[3]), (0, 2, 1, 3), data=data),
    ]


def binary(fn: str) -> Iterator[Call]:
    base = (16, 6, 4, 2)
    smaller = [
        tuple(1 if i in ones else n for i, n in enumerate(base)) for ones in ((), (0,), (1,), (2,), (3,), (1, 2, 3))
    ]
    for (a, b), small, inplace in product(
        (("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32")), smaller, (False, True)
    ):
        yield call(fn, Src(a, base, data="positive"), Src(b, small, data="positive"), inplace=inplace)
    for a, b in product(spread("f32", base), [*spread("f32", base), *spread("f32", (8, 3, 2, 1))]):
        yield call(fn, a, b)
    for ne in ((1, 1, 8, 1), (1, 1, 1, 1), (10, 5, 1, 1), (1280, 1), (5, 64)):
        yield call(fn, Src(ne=ne), Src(ne=(1,)))
        yield call(fn, Src(ne=ne), Src(ne=ne))


def one_by_one(fn: str, *params: Any, **more: Any) -> Iterator[Call]:
    """Ops that keep their operand's extents: all float types, all shapes, packed and not."""
    for type, ne in product(FLOATS, SHAPES):
        for a in spread(type, ne, "positive" if fn in ("sqrt", "log") else "normal"):
            yield call(fn, a, *params, **more)


def reductions(fn: str, *params: Any) -> Iterator[Call]:
    for ne in (*SHAPES, (2, 3000), (5000, 2)):
        for a in spread("f32", ne):
            yield call(fn, a, *params)


def norms(fn: str) -> Iterator[Call]:
    for eps, ne in product((0.0, 1e-6, 1e-4, 0.1, 10.0), SHAPES):
        for a in spread("f32", ne):
            yield call(fn, a, eps)
        yield call(fn, Src(ne=ne), eps, inplace=True)


def group_norms() -> Iterator[Call]:
    for n, eps, ne in product((1, 2, 5, 32), (1e-6, 0.1), ((8, 8, 64), (5, 3, 10, 2), (9, 9, 37), (2, 1, 3))):
        yield call("group_norm", Src(ne=ne), n, eps)


def unary(fn: str) -> Iterator[Call]:
    for type, ne, data in product(FLOATS, ((128, 2, 2, 2), (5, 7, 11, 3), (1, 1)), ("normal", "wide", "special")):
        yield call(fn, Src(type, ne, data=data))
    for type, inplace in product(FLOATS, (False, True)):
        for a in spread(type, (10, 5, 4, 3)):
            if not inplace or fn not in ("hardswish", "hardsigmoid"):
                yield call(fn, a, inplace=inplace)


def gated(name: str) -> Iterator[Call]:
    for type, ne in product(("f32", "f16"), ((128, 2, 2, 2), (10, 7, 3, 2), (2, 1))):
        yield call(name, Src(type, ne))
        yield call(f"{name}_swapped", Src(type, ne))
        yield call(f"{name}_split", Src(type, ne), Src(type, ne))
        yield call(name, cut(type, ne, (ne[0] + 6, *ne[1:])))


def products() -> Iterator[Call]:
    shapes = ((16, 1), (16, 9), (1, 1), (1, 7), (33, 2))
    for type, (m, n) in product((*FLOATS, *CHEAP), shapes):
        yield call("mul_mat", Src(type, (256, m)), Src(ne=(256, n)))
    for type, (a2, a3), (r2, r3) in product(
        ("f32", "f16", "q8_0", "q4_K"), ((1, 1), (3, 1), (3, 2)), ((1, 1), (2, 1), (2, 2))
    ):
        yield call("mul_mat", Src(type, (256, 16, a2, a3)), Src(ne=(256, 5, a2 * r2, a3 * r3)))
        b = permuted("f32", (256, a2 * r2, 5, a3 * r3), (0, 2, 1, 3))
        yield call("mul_mat", permuted(type, (256, a2, 16, a3), (0, 2, 1, 3)), b)
    for k, type in product((1, 3, 31, 64, 65, 129, 1056), FLOATS):
        yield call("mul_mat", Src(type, (k, 7)), Src(ne=(k, 3)))
        yield call("mul_mat", Src(type, (k, 7)), Src(type, (k, 3)))


def experts() -> Iterator[Call]:
    rng = np.random.default_rng(7)
    for type, (n, used), broadcast, tokens in product(
        ("f32", "f16", "q4_0", "q8_0", "q6_K", "mxfp4"), ((4, 1), (4, 2), (8, 4)), (False, True), (1, 5, 32)
    ):
        ids = np.stack([rng.permutation(n)[:used] for _ in range(tokens)])
        b = Src(ne=(256, 1 if broadcast else used, tokens))
        yield call("mul_mat_id", Src(type, (256, 8, n)), b, Src("i32", (used, tokens), data=ids))


def outer_products() -> Iterator[Call]:
    for type, k, (b2, b3) in product(("f32", "f16", "q4_0", "q8_0", "q5_K"), (1, 5, 16), ((1, 1), (2, 1), (2, 3))):
        width = max(TYPES[type].block_size, 32)
        yield call("out_prod", Src(type, (width, k)), Src(ne=(10, k, b2, b3)))
        yield call("out_prod", Src(type, (width, k, b2, b3)), Src(ne=(10, k, b2, b3)))
        yield call("out_prod", Src(type, (width, k)), permuted("f32", (k, 10), (1, 0, 2, 3)))


def rows(fn: str = "get_rows") -> Iterator[Call]:
    rng = np.random.default_rng(8)
    for type, (n, r, b) in product((*FLOATS, "i32", *CHEAP), ((256, 5, 1), (256, 80, 3), (512, 4, 7))):
        data = "ints" if type == "i32" else "normal"
        ids = Src("i32", (r, b), data=rng.integers(0, 5, r * b))
        yield call("get_rows", Src(type, (n, 5, b), data=data), ids)
        yield call("get_rows", permuted(type, (n, b, 5), (0, 2, 1, 3), data=data), ids)


def set_rows() -> Iterator[Call]:
    rng = np.random.default_rng(9)
    types = ("f32", "f16", "bf16", "q8_0", "q1_0", "q2_0", "mxfp4")
    for type, index, (r, b2, b3), gaps in product(
        types, ("i32", "i64"), ((1, 1, 1), (4, 3, 1), (2, 6, 2)), (False, True)
    ):
        ids = Src(index, (r, 3 if b2 % 3 == 0 else 1), data=np.stack([rng.permutation(9)[:r] for _ in range(3)]))
        values = cut("f32", (256, r, b2, b3), (260, r, b2, b3)) if gaps else Src(ne=(256, r, b2, b3))
        a = Src(type, (256, 9, b2, b3), data=bytes(TYPES[type].row_size(256 * 9 * b2 * b3)))
        yield call("set_rows", a, values, ids, nmse=5e-4 if TYPES[type].quantized else 1e-7)


def rows_back() -> Iterator[Call]:
    rng = np.random.default_rng(10)
    for type, n, r, m in product(("f32", "f16"), (1, 10, 256), (1, 4, 70), (5, 80)):
        ids = Src("i32", (r,), data=rng.integers(0, m, r))
        yield call("get_rows_back", Src(type, (n, r)), ids, Src(ne=(n, m)))


def copies() -> Iterator[Call]:
    plain = (*FLOATS, "i32")
    for a, b, ne in product(plain, plain, ((10, 5, 4, 3), (256, 2, 3), (1, 7))):
        if b == "i32" and a in ("f16", "bf16"):
            # ggml converts through memory that it has not asked for.
            continue
        for s, d in product(spread(a, ne, "ints"), spread(b, ne, "ints")):
            yield call("cpy", s, d)
    for a, b in product(("f32", "f16", "bf16"), ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "q1_0", "q2_0")):
        for s in spread(a, (256, 4, 3)):
            yield call("cpy", s, Src(b, (256, 4, 3), data=bytes(TYPES[b].row_size(256 * 12))), nmse=5e-4)
    for a in CHEAP:
        yield call("cpy", Src(a, (256, 4, 3)), Src(ne=(256, 4, 3)))
        yield call("cpy", Src(a, (256, 4, 3)), permuted("f32", (256, 3, 4), (0, 2, 1, 3)))
        yield call("cast", Src(a, (256, 4)), TYPES["f32"])


def conts() -> Iterator[Call]:
    for type, axes in product(
        ("f32", "f16", "bf16", "i32", "i8", "i64"), ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0))
    ):
        yield call("cont", permuted(type, (10, 7, 3, 2), axes, data="ints"))
        yield call("dup", permuted(type, (10, 7, 3, 2), axes, data="ints"))
    for type in ("q4_0", "q8_0", "q4_K"):
        yield call("cont", permuted(type, (256, 7, 3), (0, 2, 1, 3)))


def concats() -> Iterator[Call]:
    for type, dim, (va, vb) in product(("f32", "f16", "i32", "i8", "i64"), range(4), product(range(3), repeat=2)):
        ne = [11, 12, 3, 2]
        other = [n + 4 if i == dim else n for i, n in enumerate(ne)]
        yield call("concat", spread(type, tuple(ne), "ints")[va], spread(type, tuple(other), "ints")[vb], dim)


def repeats() -> Iterator[Call]:
    for type, times in product(
        ("f32", "f16", "i32", "i16"),
        ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (2, 3, 2, 2)),
    ):
        for a in spread(type, (10, 5, 4, 3), "ints"):
            yield call("repeat_4d", a, *(n * m for n, m in zip((10, 5, 4, 3), times, strict=True)))


def repeats_back() -> Iterator[Call]:
    for times in product((1, 2), (1, 3), (1, 2), (1, 2)):
        ne = tuple(n * m for n, m in zip((8, 6, 4, 2), times, strict=True))
        for a in spread("f32", ne):
            yield call("repeat_back", a, Src(ne=(8, 6, 4, 2)))


def soft_maxes() -> Iterator[Call]:
    for ne, mask, bias, scale in product(
        ((16, 16, 4), (15, 1, 1, 3), (1, 5, 12), (300, 2, 3, 2)), (None, "f32", "f16"), (0.0, 8.0), (1.0, 0.1)
    ):
        if bias and mask is None:
            continue
        m = None if mask is None else Src(mask, (ne[0], ne[1] + 2), data="mask")
        for sinks in (None, Src(ne=(ne[2] if len(ne) > 2 else 1,))):
            yield ext(Src(ne=ne, data="wide"), m, scale, bias, False, sinks)


def soft_maxes_back() -> Iterator[Call]:
    for ne, scale, inplace in product(SHAPES, (1.0, 0.1), (False, True)):
        yield call("soft_max_ext_back", Src(ne=ne), Src(ne=ne), scale, 0.0, inplace=inplace)
    yield call("soft_max_ext_back", Src(ne=(8, 4)), Src(ne=(8, 4)), 1.0, 8.0)


def rotations() -> Iterator[Call]:
    for type, mode, (head, n_dims), inplace, factors in product(
        ("f32", "f16"), (0, 2), ((128, 128), (80, 20), (64, 32)), (False, True), (False, True)
    ):
        freqs = Src(ne=(n_dims // 2,), data="positive") if factors else None
        for extra in ({}, {"freq_scale": 1.4245, "ext_factor": 0.7465, "attn_factor": 1.4245}):
            yield rope(Src(type, (head, 8, 2)), n_dims, mode, extra, freqs, inplace=inplace)
            if type == "f32" and not inplace:
                yield rope(permuted(type, (head, 2, 8), (0, 2, 1, 3)), n_dims, mode, extra, freqs)
                yield rope(Src(type, (head, 8, 2)), n_dims, mode, extra, freqs, back=True)


def orders(fn: str) -> Iterator[Call]:
    for ne, k in product(((1, 1), (16, 10, 3), (60, 7), (1025, 2), (4096, 1)), (0, 1, 2, 15)):
        a = Src(ne=ne, data="distinct")
        if fn == "argsort":
            if k < 2:
                yield call(fn, a, k)
        else:
            yield call(fn, a, k)


def pads() -> Iterator[Call]:
    for left, right, circular in product((0, 1, 3), (0, 2), (False, True)):
        for dim, a in product(range(4), spread("f32", (10, 5, 4, 3))):
            sides = [s for i in range(4) for s in ((left, right) if i == dim else (0, 1))]
            yield call("pad_ext_circular" if circular else "pad_ext", a, *sides)
    for a, (p0, p1) in product(spread("f32", (20, 4, 3)), ((0, 0), (10, 9), (19, 0), (0, 19))):
        yield call("pad_reflect_1d", a, p0, p1)


def rolls() -> Iterator[Call]:
    for shifts, a in product(product((-3, 0, 2), (0, 4), (-1, 1), (0, 1)), spread("f32", (10, 5, 4, 3))):
        yield call("roll", a, *shifts)


def ranges() -> Iterator[Call]:
    for start, stop, step in ((0, 10, 1), (0, 1048, 1), (2.5, 9.25, 0.3), (-5, 5, 0.7), (1, 1.5, 1), (0, 1e-3, 1e-4)):
        yield call("arange", float(start), float(stop), float(step))


def embeddings() -> Iterator[Call]:
    for n, dim, period in product((1, 2, 7), (2, 9, 64, 320), (10, 10000)):
        yield call("timestep_embedding", Src(ne=(n,), data="positive"), dim, period)


def images() -> Iterator[Call]:
    for kernel, to, s, p, d in product(
        ("f32", "f16"), ("f32", "f16"), ((1, 1), (3, 2)), ((0, 0), (1, 3)), ((1, 1), (3, 2))
    ):
        pair = Src(kernel, (3, 2, 3, 5)), Src(ne=(20, 17, 3, 2))
        yield call("im2col", *pair, *s, *p, *d, True, TYPES[to])
        yield call("im2col", Src(kernel, (3, 3, 5)), Src(ne=(20, 3, 2)), s[0], 0, p[0], 0, d[0], 0, False, TYPES[to])


def convolutions() -> Iterator[Call]:
    for type, s, p, d, (kw, kh, ic, oc), batch in product(
        ("f32", "f16"), ((1, 1), (2, 3)), ((0, 0), (2, 1)), ((1, 1), (2, 1)), ((1, 1, 4, 3), (3, 2, 2, 5)), (1, 2)
    ):
        image, nmse = Src(ne=(14, 11, ic, batch)), 5e-4 if type == "f16" else 1e-7
        yield call("conv_2d_direct", Src(type, (kw, kh, ic, oc)), image, *s, *p, *d, nmse=nmse)
        yield call("conv_2d_dw_direct", Src(type, (kw, kh, 1, ic)), image, *s, *p, *d, nmse=nmse)


def transposed() -> Iterator[Call]:
    for type, stride, (k, oc, ic) in product(("f32", "f16"), (1, 2, 3), ((1, 1, 1), (3, 2, 5), (4, 3, 2))):
        nmse = 5e-4 if type == "f16" else 1e-7
        yield call("conv_transpose_1d", Src(type, (k, oc, ic)), Src(ne=(9, ic)), stride, 0, 1, nmse=nmse)
        yield call(
            "conv_transpose_2d",
            Src(type, (k, 2, oc, ic)),
            Src(ne=(9, 7, ic)),
            stride,
            real="conv_transpose_2d_p0",
            nmse=nmse,
        )


def pools() -> Iterator[Call]:
    for op, type, k, s, p, (w, h) in product((0, 1), ("f32", "f16"), (1, 3), (1, 2), (0, 1), ((10, 9), (13, 4))):
        yield call("pool_1d", Src(type, (w, h, 3)), op, k, s, p)
        yield call("pool_2d", Src(type, (w, h, 3, 2)), op, k, k, s, s, float(p), float(p))


def parts() -> Iterator[Call]:
    for inplace, (ne, offset) in product(
        (False, True), (((4, 3, 2), 16), ((8, 1, 1), 0), ((1, 6), 28), ((2, 2, 2, 2), 200))
    ):
        for fn, data in (("acc", "normal"), ("set", "normal")):
            yield call(fn, Src(ne=(8, 6, 2, 2)), Src(ne=ne, data=data), 32, 192, 384, offset, inplace=inplace)
            yield call(
                fn, Src(ne=(8, 6, 2, 2)), cut("f32", ne, (ne[0] + 2, *ne[1:])), 32, 192, 384, offset, inplace=inplace
            )
    for type, inplace in product(("f32", "i32"), (False, True)):
        yield call("set_1d", Src(type, (8, 6), data="ints"), Src(type, (5,), data="ints"), 32, inplace=inplace)
        yield call("set_2d", Src(type, (8, 6), data="ints"), Src(type, (5, 3), data="ints"), 32, 64, inplace=inplace)


def losses() -> Iterator[Call]:
    for ne in (*SHAPES, (10000, 2)):
        yield call("cross_entropy_loss", Src(ne=ne), Src(ne=ne, data="positive"))
        yield call("cross_entropy_loss_back", Src(ne=(1,)), Src(ne=ne), Src(ne=ne, data="positive"))


def training() -> Iterator[Call]:
    numbers = np.float32([1e-3, 0.9, 0.999, 1e-8, 0.01, 1.2, 1.1])
    for ne in SHAPES:
        for a in spread("f32", ne):
            owned = Src(a.type, a.ne, a.nb, flags=FLAG_PARAM)
            second = Src(a.type, a.ne, a.nb, data="positive")
            yield call("opt_step_adamw", owned, a, a, second, Src(ne=(7,), data=numbers))
            yield call("opt_step_sgd", owned, a, Src(ne=(2,), data=numbers[:2]))
            if a.ne[0] > 1:
                # The gradient of a row of one element is the difference of two numbers that are nearly the same.
                yield call("rms_norm_back", a, a, 1e-6)
        yield call("silu_back", Src(ne=ne), Src(ne=ne))


def chosen() -> Iterator[Call]:
    rng = np.random.default_rng(11)
    for n, used, tokens, experts_ in product((1, 33, 256), (1, 3), (1, 7), (4, 9)):
        ids = Src("i32", (used, tokens), data=rng.integers(0, experts_, used * tokens))
        yield call("add_id", Src(ne=(n, used, tokens)), Src(ne=(n, experts_)), ids)


def scalars() -> Iterator[Call]:
    for type, ne, inplace in product((*FLOATS, "q8_0", "q4_0"), ((32, 3), (96, 2, 2)), (False, True)):
        for other in ("f32", type):
            if not TYPES[other].quantized:
                yield call(
                    "add1",
                    Src(type, ne),
                    Src(other, (1,)),
                    inplace=inplace,
                    nmse=5e-4 if TYPES[type].quantized else 1e-7,
                )
    for ne, inplace in product(SHAPES, (False, True)):
        yield call("scale", Src(ne=ne), 2.0, inplace=inplace)
        yield call("scale_bias", Src(ne=ne), -0.5, 1.5, inplace=inplace)
        yield call("fill", Src(ne=ne), 4.5, inplace=inplace)
        yield call("fill", Src("f16", ne), -0.3, inplace=inplace)
        yield call("leaky_relu", Src(ne=ne), 0.1, inplace=inplace)
    for type, ne, (low, high) in product(("f32", "f16"), SHAPES, ((-0.5, 0.5), (0.0, 1.0))):
        yield call("clamp", Src(type, ne), low, high)


def masks() -> Iterator[Call]:
    for fn, ne, n_past, inplace in product(
        ("diag_mask_inf", "diag_mask_zero"), ((10, 10, 3, 2), (8, 5), (5, 9, 2), (1, 1)), (0, 1, 5), (False, True)
    ):
        yield call(fn, Src(ne=ne), n_past, inplace=inplace)
    for n, kind in product((1, 2, 10, 33), range(4)):
        yield call("tri", Src(ne=(n, n, 3, 2)), kind)
        yield call("diag", Src(ne=(n, 1, 3, kind + 1)))


def counts() -> Iterator[Call]:
    for ne in (*SHAPES, (4000, 3)):
        # Of several planes ggml counts rows that lie elsewhere.
        a = cut("i32", ne, ne, FLAT, data="ints", slack=FLAT)
        yield call("count_equal", a, a)


def attention() -> Iterator[Call]:
    for kv, (dk, dv), (heads, kv_heads), n, mask, bias, cap in product(
        ("f32", "f16", "q8_0"),
        ((64, 64), (40, 40), (192, 128)),
        ((4, 4), (4, 2)),
        (1, 3, 66),
        (True, False),
        (0.0, 8.0),
        (0.0, 10.0),
    ):
        if (bias and not mask) or (kv == "q8_0" and dk % 32) or (cap and bias):
            continue
        m = Src("f16", (113, n), data="mask") if mask else None
        yield call(
            "flash_attn_ext", Src(ne=(dk, n, heads)), Src(kv, (dk, 113, kv_heads)), Src(kv, (dv, 113, kv_heads)), m,
            scale=0.1, max_bias=bias, logit_softcap=cap, nmse=5e-4,
        )  # fmt: skip


def scaled_up() -> Iterator[Call]:
    for ne, (w, h), mode in product(
        ((7, 5, 2, 3), (1, 9), (16, 16, 3)), ((14, 10), (3, 2), (15, 20)), (0, 1, 2, 256, 257, 258, 513, 769)
    ):
        dims = (*ne, 1, 1)[:4]
        yield call("interpolate", Src(ne=ne), w, h, *dims[2:], mode)
    for mode, k in product((0, 1, 2), (2, 3)):
        yield call("upscale", Src(ne=(5, 4, 3, 2)), k, mode)


ARITHMETIC = ("add", "sub", "mul", "div")
FUNCTIONS = ("sqr", "sqrt", "log", "sin", "cos")
UNARY = tuple(u.name.lower() for u in UnaryOp if u != UnaryOp.XIELU)
GLU = tuple(g.name.lower() for g in GluOp if f"{g.name.lower()}_split" in CONSTRUCTORS)

SETS: dict[str, list[Call]] = {
    **{fn: list(binary(fn)) for fn in ARITHMETIC},
    **{fn: list(one_by_one(fn)) for fn in FUNCTIONS},
    **{fn: list(reductions(fn)) for fn in ("sum", "sum_rows", "mean", "cumsum", "argmax")},
    **{fn: list(norms(fn)) for fn in ("norm", "rms_norm", "l2_norm")},
    **{fn: list(unary(fn)) for fn in UNARY},
    **{fn: list(gated(fn)) for fn in GLU},
    **{fn: list(orders(fn)) for fn in ("argsort", "top_k")},
    "group_norm": list(group_norms()),
    "mul_mat": list(products()),
    "mul_mat_id": list(experts()),
    "out_prod": list(outer_products()),
    "get_rows": list(rows()),
    "set_rows": list(set_rows()),
    "get_rows_back": list(rows_back()),
    "cpy": list(copies()),
    "cont and dup": list(conts()),
    "concat": list(concats()),
    "repeat": list(repeats()),
    "repeat_back": list(repeats_back()),
    "soft_max": list(soft_maxes()),
    "soft_max_back": list(soft_maxes_back()),
    "rope and rope_back": list(rotations()),
    "pad": list(pads()),
    "roll": list(rolls()),
    "arange": list(ranges()),
    "timestep_embedding": list(embeddings()),
    "im2col": list(images()),
    "conv_2d": list(convolutions()),
    "conv_transpose": list(transposed()),
    "pool": list(pools()),
    "acc and set": list(parts()),
    "cross_entropy_loss": list(losses()),
    "training": list(training()),
    "add_id": list(chosen()),
    "one number": list(scalars()),
    "masks and diagonals": list(masks()),
    "count_equal": list(counts()),
    "flash_attn_ext": list(attention()),
    "upscale": list(scaled_up()),
}
"""The calls by the op they are of, or a word for several."""
