"""Random calls of the ops, on random shapes, strides and types, against the real library.

GGMLTOOL_RANDOM_OPS sets how many of each kind (default 400), GGMLTOOL_SEED where they start.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import UnaryOp
from ggmltool.ggml.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION
from ggmltool.oracle.lib import Lib
from tests.conformance.ops.attention import attention
from tests.conformance.ops.recurrent import ids, triangle
from tests.conformance.ops.rope import PLAIN, YARN, rope
from tests.conformance.ops.sets import FLAT
from tests.conformance.ops.softmax import ext
from tests.conformance.ops_case import Call, Src, agree, call, cut, permuted

COUNT = int(os.environ.get("GGMLTOOL_RANDOM_OPS", "400"))
SEED = int(os.environ.get("GGMLTOOL_SEED", "0"))
BATCH = 50

UNARY = [*(u.name.lower() for u in UnaryOp if u != UnaryOp.XIELU), "sqr", "sqrt", "log", "sin", "cos"]
GLU = [f + v for f in ("reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick") for v in ("", "_swapped", "_split")]
FLOATS = ("f32", "f32", "f32", "f16", "bf16")
QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K", "iq4_nl", "tq2_0", "mxfp4")
SPECIAL = np.array([1, -2, 0.5, -0.0, 3] * 20 + [np.inf, 1, 1, 1, 1] * 2 + [-np.inf, 1, np.nan])
ANY = ("normal", "normal", "wide", "special", "ints")


def dims(r: Random) -> tuple[int, int, int, int]:
    return (r.choice((1, 2, 5, 8, 33)), r.randint(1, 9), r.choice((1, 1, 2, 3)), r.choice((1, 1, 2)))


def source(
    r: Random, type: str, ne: tuple[int, ...], data: Any = "normal", *, rows: bool = True, slack: int = 0
) -> Src:
    """A tensor, a part of a larger one, or a permuted one (with `rows` its rows have no gaps).

    With `slack`, a view amid so many bytes of its tensor.
    """
    ne = (*ne, 1, 1, 1)[:4]
    block, kind = TYPES[type].block_size, r.random()
    offset = slack or r.choice((0, 0, 4 * TYPES[type].type_size))
    if kind < 0.5:
        return cut(type, ne, ne, offset, data=data, slack=slack) if slack else Src(type, ne, data=data)
    if kind < 0.75:
        whole = [ne[0] + block * r.randint(0, 2), *(n + r.randint(0, 2) for n in ne[1:])]
        return cut(type, ne, whole, offset, data=data, slack=slack)
    axes = [0, *r.sample((1, 2, 3), 3)] if rows or block > 1 else r.sample(range(4), 4)
    return permuted(type, [ne[axes[i]] for i in range(4)], axes, data=data, offset=slack, slack=slack)


def any_source(r: Random, type: str = "f32", ne: tuple[int, ...] | None = None, slack: int = 0) -> Src:
    return source(r, type, ne or dims(r), r.choice(ANY), rows=r.random() < 0.8, slack=slack)


def smaller(r: Random, ne: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(divisor(r, n) if r.random() < 0.6 else n for n in ne)


def divisor(r: Random, n: int) -> int:
    return r.choice([d for d in range(1, n + 1) if n % d == 0])


def binary(r: Random) -> Call:
    a = any_source(r, r.choice(FLOATS))
    b = any_source(r, r.choice((a.type, "f32")), smaller(r, a.dims))
    return call(r.choice(("add", "sub", "mul", "div")), a, b, inplace=r.random() < 0.3)


def unary(r: Random) -> Call:
    return call(r.choice(UNARY), any_source(r, r.choice(FLOATS)))


def glu(r: Random) -> Call:
    name, type = r.choice(GLU), r.choice(FLOATS)
    a = any_source(r, type)
    return call(name, a, any_source(r, type, a.dims)) if name.endswith("_split") else call(name, a)


def one_operand(r: Random) -> Call:
    a = any_source(r)
    eps = r.choice((0.0, 1e-5, 0.3))
    return r.choice(
        (
            call("scale", a, r.choice((0.0, -1.5, 1e30))),
            call("scale_bias", a, 0.5, r.choice((0.0, 1.0)), inplace=r.random() < 0.5),
            call("fill", a, 3.25),
            call("norm", a, eps),
            call("rms_norm", a, eps),
            call("l2_norm", a, eps, inplace=r.random() < 0.3),
            call("group_norm", a, r.randint(1, 4), 1e-5),
            *(call(fn, a) for fn in ("sum", "sum_rows", "mean", "cumsum", "argmax", "soft_max")),
            call("diag_mask_zero", a, r.randint(0, 5)),
            call("pad_reflect_1d", a, r.randint(0, 5), r.randint(0, 5)),
            call("roll", a, *(r.randint(-n + 1, n - 1) for n in a.dims)),
            call("tri", a, r.randint(0, 3)),
            call("diag", any_source(r, ne=(*dims(r)[:1], 1, *dims(r)[2:]))),
        )
    )


def moved(r: Random) -> Call:
    type = r.choice(("f32", "f16", "bf16", "i32", "i8"))
    a = source(r, type, dims(r), "ints", rows=r.random() < 0.8)
    match r.randint(0, 3):
        case 0:
            return call("repeat_4d", a, *(n * r.randint(1, 3) for n in a.dims))
        case 1:
            dim = r.randint(0, 3)
            ne = tuple(r.randint(1, 6) if i == dim else n for i, n in enumerate(a.dims))
            return call("concat", a, source(r, type, ne, "ints", rows=r.random() < 0.8), dim)
        case 2:
            return call(r.choice(("pad_ext", "pad_ext_circular")), a, *(r.randint(0, 2) for _ in range(8)))
    return call("repeat_back", a, Src(ne=smaller(r, a.dims)))


def resized(r: Random) -> Call:
    a = source(r, "f32", dims(r), r.choice(("normal", "wide", "ints")), rows=r.random() < 0.8)
    ne = (r.randint(1, 20), r.randint(1, 20), *(n * r.randint(1, 2) for n in a.dims[2:]))
    return call("interpolate", a, *ne, r.choice((0, 1, 2, 256, 257, 258, 513, 769)))


def soft_max(r: Random) -> Call:
    a = Src(ne=dims(r), data=r.choice(("normal", "wide")))
    ne = (a.ne[0], a.ne[1] + r.randint(0, 2), *smaller(r, a.dims[2:]))
    mask = Src(r.choice(("f32", "f16")), ne, data="mask") if r.random() < 0.7 else None
    sinks = Src(ne=(a.ne[2],)) if r.random() < 0.3 else None
    return ext(a, mask, r.choice((1.0, 0.125)), r.choice((0.0, 8.0)) if mask else 0.0, r.random() < 0.3, sinks)


def gradient(r: Random) -> Call:
    ne = (r.randint(2, 33), *dims(r)[1:])
    return call("rms_norm_back", source(r, "f32", ne, rows=False), source(r, "f32", ne, rows=False), 1e-5)


def stray(r: Random) -> Call:
    """Kernels that go through all rows with one stride, amid memory that they may read."""
    ne = dims(r)
    a, b = (source(r, "f32", ne, rows=r.random() < 0.8, slack=FLAT) for _ in range(2))
    i, j = (source(r, "i32", ne, "ints", rows=r.random() < 0.8, slack=FLAT) for _ in range(2))
    sorted_ = source(r, "f32", ne, "distinct", rows=r.random() < 0.8, slack=FLAT)
    inplace = r.random() < 0.5 and a.strides[1] >= 4 * a.ne[0]
    return r.choice(
        (
            call("clamp", a, -0.5, r.choice((0.5, -1.0))),
            call("leaky_relu", a, 0.1, inplace=inplace),
            call("diag_mask_inf", a, r.randint(0, 5), inplace=inplace),
            call("argsort", sorted_, r.randint(0, 1)),
            call("top_k", sorted_, 1),
            call("silu_back", a, b),
            call("cross_entropy_loss", a, b),
            call("soft_max_ext_back", a, b, 0.5, 0.0),
            call("cross_entropy_loss_back", Src(ne=(1,)), a, b),
            call("count_equal", i, j),
        )
    )


def batch(r: Random) -> tuple[tuple[int, int], tuple[int, int]]:
    """Dimensions 2 and 3 of two operands, the first one repeated over the second."""
    first = (r.choice((1, 1, 2, 3)), r.choice((1, 1, 2)))
    return first, (first[0] * r.choice((1, 1, 2, 3)), first[1] * r.choice((1, 1, 2)))


def product(r: Random) -> Call:
    type = r.choice((*FLOATS[1:], *QUANTIZED))
    k = 256 * r.choice((1, 1, 2)) if TYPES[type].block_size > 1 else r.choice((1, 5, 32, 64, 100, 257))
    a, b = batch(r)
    other = type if type in ("f16", "bf16") and r.random() < 0.3 else "f32"
    data = r.choice(("normal", "normal", "wide", SPECIAL if type == "f32" else "normal"))
    return call(
        "mul_mat",
        source(r, type, (k, r.choice((1, 4, 7, 33)), *a)),
        source(r, other, (k, r.choice((1, 2, 9, 40)), *b), data, rows=r.random() < 0.95),
        nmse=1e-6,
    )


def experts(r: Random) -> Call:
    type = r.choice((*FLOATS[1:], *QUANTIZED))
    k = 256 if TYPES[type].block_size > 1 else r.choice((1, 5, 32, 64))
    n, tokens, slots = r.randint(1, 6), r.choice((1, 2, 7)), r.choice((1, 2))
    used = slots * r.randint(1, 2)
    chosen = Src("i32", (used, tokens), data=[[r.randrange(n) for _ in range(used)] for _ in range(tokens)])
    a = source(r, type, (k, r.choice((1, 4, 7, 33)), n))
    return call("mul_mat_id", a, source(r, "f32", (k, slots, tokens)), chosen, nmse=1e-6)


def outer(r: Random) -> Call:
    type = r.choice(("f32", "f32", "f16", "q8_0", "q4_0"))
    a, b = batch(r)
    m, n, k = 32 * r.randint(1, 2), r.randint(1, 9), r.randint(1, 9)
    return call("out_prod", source(r, type, (m, k, *a)), source(r, "f32", (n, k, *b), rows=False), nmse=1e-6)


def copy(r: Random) -> Call:
    type = r.choice((*FLOATS[1:], "i32", "i8", "q8_0"))
    ne = (32 * r.randint(1, 2) if type == "q8_0" else r.randint(1, 9), *(r.choice((1, 2, 3, 5)) for _ in range(3)))
    a = source(r, type, ne, "ints" if type in ("i32", "i8") else "normal", rows=False)
    n = int(np.prod(ne))
    match r.randint(0, 3):
        case 0:
            return call(r.choice(("cont", "dup")), a)
        case 1 if type != "q8_0":
            return call("cont_2d", a, n // ne[0], ne[0])
        case 2:
            return call("cast", a, TYPES[r.choice(("f32", "f16", "bf16", "i32" if type == "f32" else type))])
    to = r.choice((type, type, "f32"))
    shape = ne if r.random() < 0.5 or to == "q8_0" else (n // ne[0], ne[0])
    return call("cpy", a, source(r, to, shape, "ints", rows="q8_0" in (to, type)))


def rows(r: Random) -> Call:
    type = r.choice((*FLOATS[1:], "i32", *QUANTIZED))
    n0 = 256 if TYPES[type].block_size > 1 else r.choice((1, 5, 33))
    n, n2, n3, count = r.randint(1, 9), r.choice((1, 2, 3)), r.choice((1, 2)), r.randint(1, 9)
    if r.random() < 0.5:
        a = source(r, type, (n0, n, n2, n3), "ints" if type == "i32" else "normal")
        high = n if r.random() < 0.95 else n + 1
        numbers = np.array([r.randrange(high) for _ in range(count * n2 * n3)])
        return call("get_rows", a, Src("i32", (count, n2, n3), data=numbers))
    cache = source(r, r.choice(("f32", "f16", "bf16")), (n0, n, n2, n3))
    count = r.randint(0, n)
    repeat2, repeat3 = (1 if r.random() < 0.5 else x for x in (n2, n3))
    numbers = np.stack([r.sample(range(n), count) for _ in range(repeat2 * repeat3)]) if count else np.zeros(0)
    values = source(r, r.choice(("f32", "f16")), (n0, count, n2, n3))
    return call("set_rows", cache, values, Src(r.choice(("i64", "i32")), (count, repeat2, repeat3), data=numbers))


def rotation(r: Random) -> Call:
    mode = r.choice((NORMAL, NEOX, NEOX, MROPE, IMROPE, VISION))
    n0 = 2 * r.choice((4, 8, 32, 64))
    n_dims = n0 // 2 if mode == VISION else n0 if r.random() < 0.5 else 2 * r.randint(1, n0 // 2)
    a = source(r, r.choice(("f32", "f32", "f16")), (n0, r.randint(1, 4), r.randint(1, 6), r.choice((1, 2))))
    extra = r.choice((PLAIN, YARN, {**PLAIN, "freq_scale": 0.25, "freq_base": 1e6}))
    factors = Src(ne=(n_dims // 2,), data="positive") if r.random() < 0.3 and mode != VISION else None
    sections = tuple(r.randint(0, n0 // 8) for _ in range(4)) if mode & MROPE else None
    if sections is not None and not sum(sections):
        sections = (1, 1, 1, 0)
    how, high = r.random(), r.choice((10, 4000))
    return rope(a, n_dims, mode, extra, factors, sections, high, back=how < 0.2, inplace=0.2 < how < 0.4)


def attend(r: Random) -> Call:
    type = r.choice(("f32", "f16", "f16", "bf16", "q8_0", "q4_0"))
    dk, dv = 32 * r.randint(1, 3), 32 * r.randint(1, 3)
    kv_heads, n, n_kv, n_q = r.choice((1, 2, 3)), r.choice((1, 1, 2)), r.choice((1, 7, 64, 600)), r.choice((1, 3, 70))
    heads = kv_heads * r.choice((1, 2, 4))
    mask = None
    if r.random() < 0.8:
        queries, keys = np.arange(n_q)[:, None], np.arange(n_kv)[None, :]
        ne = (n_kv, n_q + r.randint(0, 2), r.choice((1, heads)), r.choice((1, n)))
        padded = np.zeros((ne[3], ne[2], ne[1], n_kv))
        padded[:, :, :n_q] = np.where(keys > queries + r.randint(-1, n_kv), -np.inf, 0.25)
        mask = Src("f16", ne, data=padded)
    return attention(
        source(r, "f32", (dk, n_q, heads, n)),
        source(r, type, (dk, n_kv, kv_heads, n)),
        source(r, type, (dv, n_kv, kv_heads, n)),
        mask,
        Src(ne=(heads,)) if r.random() < 0.3 else None,
        max_bias=8.0 if mask and r.random() < 0.3 else 0.0,
        logit_softcap=10.0 if r.random() < 0.3 else 0.0,
    )


def convolution(r: Random) -> Call:
    kw, kh, channels, out, n = r.randint(1, 4), r.randint(1, 4), r.randint(1, 4), r.randint(1, 4), r.randint(1, 2)
    w, h = r.randint(4, 12), r.randint(4, 12)
    s, p, d = ([r.randint(low, 3) for _ in range(2)] for low in (1, 0, 1))
    type = r.choice(("f32", "f16"))
    nmse = 1e-7 if type == "f32" else 5e-4
    image = Src(ne=(w, h, channels, n))
    match r.randint(0, 5):
        case 0:
            part = cut("f32", image.ne, (w, h + r.randint(0, 3), channels, n))
            return call("im2col", Src(type, (kw, kh, channels, out)), part, *s, *p, *d, True, TYPES[type])
        case 1:
            signal = source(r, "f32", (w, channels, n))
            return call("im2col", Src(type, (kw, channels, out)), signal, s[0], 0, p[0], 0, d[0], 0, False, TYPES[type])
        case 2:
            if w + 2 * p[0] - d[0] * (kw - 1) < 1 or h + 2 * p[1] - d[1] * (kh - 1) < 1:
                d = [1, 1]
            whole = source(r, "f32", (w, h, channels, n), rows=False)
            return call("conv_2d_direct", Src(type, (kw, kh, channels, out)), whole, *s, *p, *d, nmse=nmse)
        case 3:
            return call("conv_2d_dw_direct", Src(type, (kw, kh, 1, channels)), image, *s, *p, 1, 1)
        case 4:
            signal = source(r, "f32", (w, channels))
            return call("conv_transpose_1d", Src(type, (kw, out, channels)), signal, s[0], 0, 1, nmse=nmse)
    return call("conv_transpose_2d_p0", Src(type, (kw, kh, out, channels)), image, s[0], nmse=nmse)


def pool(r: Random) -> Call:
    k, s = ([r.randint(1, 4) for _ in range(2)] for _ in range(2))
    type, data = r.choice(("f32", "f16")), r.choice(("normal", "special"))
    ne = (r.randint(1, 12), r.randint(1, 12), *smaller(r, (4, 2)))
    if r.random() < 0.5:
        return call("pool_1d", Src(type, ne, data=data), r.randint(0, 1), k[0], s[0], r.randint(0, 3))
    a = cut(type, ne, (ne[0] + r.randint(0, 2), *ne[1:]), data=data)
    return call("pool_2d", a, r.randint(0, 1), *k, *s, r.choice((0.0, 1.0, 1.5)), r.choice((0.0, 1.0, 2.25)))


def between(r: Random, low: float, high: float) -> Any:
    """Values from which a source takes what it needs, from the beginning on."""
    return np.random.default_rng(r.randrange(1 << 30)).uniform(low, high, 1 << 14).astype(np.float32)


def whole(r: Random, *ne: int, low: float = -1, high: float = 1) -> Src:
    return Src(ne=ne, data=between(r, low, high))


def viewed(r: Random, *ne: int, low: float = -1, high: float = 1, rows: bool = True) -> Src:
    return source(r, "f32", ne, between(r, low, high), rows=rows)


def packed(r: Random, *ne: int) -> Src:
    """As ssm_scan takes it: gaps between tokens, none between rows."""
    return cut("f32", ne, (ne[0], ne[1] + r.randint(0, 3), ne[2] + r.randint(0, 2), ne[3]), data=between(r, -1, 1))


def sizes(r: Random) -> tuple[int, int, int, int]:
    """The length of a row, heads, tokens, sequences."""
    return r.choice((1, 2, 5, 8, 16, 33)), r.choice((1, 2, 3, 6)), r.choice((1, 2, 3, 7, 16)), r.choice((1, 1, 2, 3))


def ssm_conv(r: Random) -> Call:
    width, (_, heads, tokens, seqs) = r.randint(1, 6), sizes(r)
    ne = (width - 1 + tokens, heads, seqs)
    return call("ssm_conv", cut("f32", ne, (ne[0], heads + r.randint(0, 2), seqs + 1)), Src(ne=(width, heads)))


def scan(r: Random) -> Call:
    dim, heads, tokens, seqs = sizes(r)
    states, d_state, groups = seqs + r.randint(0, 2), r.choice((1, 4, 16, 37)), divisor(r, heads)
    columns = d_state if r.random() < 0.3 else 1
    return call(
        "ssm_scan",
        whole(r, d_state, dim, heads, states),
        packed(r, dim, heads, tokens, seqs),
        whole(r, heads, tokens, seqs, low=-2, high=2),
        whole(r, columns, heads, low=-1, high=-0.2),
        packed(r, d_state, groups, tokens, seqs),
        packed(r, d_state, groups, tokens, seqs),
        ids(*(r.randrange(states) for _ in range(seqs))),
        r.randint(1, tokens) if columns == 1 else 1,
    )


def linear_attention(r: Random) -> Call:
    size, heads, tokens, seqs = sizes(r)
    name = r.choice(("rwkv_wkv6", "gated_linear_attn", "rwkv_wkv7"))
    size = 64 if name == "rwkv_wkv7" else size
    ne = (size, heads, tokens * seqs)
    k, v, q, a, b = (whole(r, *ne, low=-0.15, high=0.15) for _ in range(5))
    decay, state = whole(r, *ne, low=0), whole(r, size * size * heads, seqs)
    if name == "rwkv_wkv6":
        return call(name, k, v, q, whole(r, size, heads), decay, state)
    if name == "gated_linear_attn":
        return call(name, k, v, q, decay, state, 0.5)
    return call(name, q, decay, k, v, a, b, state)


def delta(r: Random) -> Call:
    size, heads, tokens, seqs = sizes(r)
    shared = divisor(r, seqs)
    q, k = (viewed(r, size, r.choice((1, 2, heads)), tokens, shared, low=-0.3, high=0.3) for _ in range(2))
    return call(
        "gated_delta_net",
        q,
        k,
        viewed(r, size, heads, tokens, seqs),
        whole(r, r.choice((1, size)), heads, tokens, seqs, high=0),
        whole(r, 1, heads, tokens, seqs, low=0),
        whole(r, size, size, heads, seqs),
        r.randint(1, tokens),
    )


def system(r: Random) -> Call:
    size, heads, tokens, seqs = sizes(r)
    return call("solve_tri", triangle(size, heads, seqs), Src(ne=(tokens, size, heads, seqs)), True, True, False)


def indexer(r: Random) -> Call:
    size, heads, tokens, streams = sizes(r)
    kv = r.choice((1, 4, 9))
    k = Src(r.choice(("f32", "f16", "bf16")), (size, 1, kv, streams))
    mask = Src("f16", (kv, tokens, 1, r.choice((1, streams))), data="mask")
    return call(
        "lightning_indexer", viewed(r, size, heads, tokens, streams), k, viewed(r, heads, tokens, 1, streams), mask
    )


def hyper_connections(r: Random) -> Call:
    n_embd, hc, tokens, _ = sizes(r)

    def any_view(*ne: int, bound: float = 1) -> Src:
        return viewed(r, *ne, low=-bound, high=bound, rows=False)

    match r.randint(0, 2):
        case 0:
            return call("dsv4_hc_pre", any_view(n_embd, hc, tokens), any_view(hc, tokens))
        case 1:
            streams, comb = any_view(n_embd, hc, tokens), any_view(hc, hc, tokens)
            return call("dsv4_hc_post", any_view(n_embd, tokens), streams, any_view(hc, tokens), comb)
    mixes, base = any_view(24, tokens, bound=9), any_view(24)
    return call("dsv4_hc_comb", mixes, viewed(r, 3), base, r.choice((0.0, 1e-6, 1e-2)), r.choice((1, 2, 9)))


MAKERS = {
    "element": (binary, binary, unary, unary, glu, one_operand, one_operand, moved, resized, soft_max, gradient, stray,
                stray),
    "matrix": (product, product, experts, outer, copy, copy, rows, rows, rotation, rotation, attend, attend,
               convolution, pool),
    "recurrent": (ssm_conv, scan, scan, linear_attention, delta, delta, system, indexer, hyper_connections,
                  hyper_connections),
}  # fmt: skip


@pytest.mark.parametrize("start", range(SEED, SEED + COUNT, BATCH))
@pytest.mark.parametrize("kind", MAKERS)
def test_random_calls_agree(kind: str, start: int, lib: Lib) -> None:
    drawn = []
    for seed in range(start, start + BATCH):
        r = Random(seed)
        drawn.append((r.choice(MAKERS[kind])(r), seed))
    agree(lib, drawn)
