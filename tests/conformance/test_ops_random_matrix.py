"""Random copies, products, rows, ropes, attentions and convolutions against the real library.

GGMLTOOL_RANDOM_OPS sets how many (default 400), GGMLTOOL_SEED where they start.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError, NotComputable
from ggmltool.ggml.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION
from ggmltool.ggml.releases.release import Release
from ggmltool.oracle.lib import Abort, Lib
from tests.conformance.ops_case import Call, Src, bytes_of, call, cut, permuted
from tests.conformance.releases import release_of
from tests.conformance.test_ops_attention import attention
from tests.conformance.test_ops_random import BATCH, COUNT, SEED, compare, outcome_here, outcome_there, smaller
from tests.conformance.test_ops_rope import PLAIN, YARN, rope

FLOATS = ("f32", "f32", "f16", "bf16")
QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K", "iq4_nl", "tq2_0", "mxfp4")

SPECIAL = np.array([1, -2, 0.5, -0.0, 3] * 20 + [np.inf, 1, 1, 1, 1] * 2 + [-np.inf, 1, np.nan])


def strided(r: Random, type: str, ne: tuple[int, ...], rows_only: bool = True, data: object = "normal") -> Src:
    """A tensor, a part of a larger one, or a permuted one (with `rows_only` its rows have no gaps)."""
    kind = r.random()
    if kind < 0.5:
        return Src(type, ne, data=data)
    block = TYPES[type].block_size
    if kind < 0.75:
        whole = [ne[0] + block * r.randint(0, 2), *(n + r.randint(0, 2) for n in ne[1:])]
        return cut(type, ne, whole, r.choice((0, 0, TYPES[type].type_size * 4)), data=data)
    axes = [0, *r.sample((1, 2, 3), 3)] if rows_only or block > 1 else r.sample(range(4), 4)
    dims = (*ne, 1, 1, 1)[:4]
    return permuted(type, [dims[axes[i]] for i in range(4)], axes, data=data)


def batch(r: Random) -> tuple[tuple[int, int], tuple[int, int]]:
    """Dimensions 2 and 3 of two operands, the first one repeated over the second."""
    first = (r.choice((1, 1, 2, 3)), r.choice((1, 1, 2)))
    return first, (first[0] * r.choice((1, 1, 2, 3)), first[1] * r.choice((1, 1, 2)))


def product(r: Random) -> Call:
    type = r.choice((*FLOATS, *QUANTIZED))
    k = 256 * r.choice((1, 1, 2)) if TYPES[type].block_size > 1 else r.choice((1, 5, 32, 64, 100, 257))
    a, b = batch(r)
    other = type if type in ("f16", "bf16") and r.random() < 0.3 else "f32"
    data = r.choice(("normal", "normal", "wide", SPECIAL if type == "f32" else "normal"))
    return call(
        "mul_mat",
        strided(r, type, (k, r.choice((1, 4, 7, 33)), *a)),
        strided(r, other, (k, r.choice((1, 2, 9, 40)), *b), data=data, rows_only=r.random() < 0.95),
        nmse=1e-6,
    )


def experts(r: Random) -> Call:
    type = r.choice((*FLOATS, *QUANTIZED))
    k = 256 if TYPES[type].block_size > 1 else r.choice((1, 5, 32, 64))
    n, tokens, slots = r.randint(1, 6), r.choice((1, 2, 7)), r.choice((1, 2))
    used = slots * r.randint(1, 2)
    chosen = [[r.randrange(n) for _ in range(used)] for _ in range(tokens)]
    return call(
        "mul_mat_id",
        strided(r, type, (k, r.choice((1, 4, 7, 33)), n)),
        strided(r, "f32", (k, slots, tokens)),
        Src("i32", (used, tokens), data=chosen),
        nmse=1e-6,
    )


def outer(r: Random) -> Call:
    type = r.choice(("f32", "f32", "f16", "q8_0", "q4_0"))
    a, b = batch(r)
    m, n, k = 32 * r.randint(1, 2), r.randint(1, 9), r.randint(1, 9)
    return call(
        "out_prod",
        strided(r, type, (m, k, *a)),
        strided(r, "f32", (n, k, *b), rows_only=False),
        nmse=1e-6,
    )


def copy(r: Random) -> Call:
    type = r.choice((*FLOATS, "i32", "i8", "q8_0"))
    ne = (32 * r.randint(1, 2) if type == "q8_0" else r.randint(1, 9), *(r.choice((1, 2, 3, 5)) for _ in range(3)))
    a = strided(r, type, ne, rows_only=False, data="ints" if type in ("i32", "i8") else "normal")
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
    return call("cpy", a, strided(r, to, shape, rows_only=to == "q8_0" or type == "q8_0", data="ints"))


def rows(r: Random) -> Call:
    type = r.choice((*FLOATS, "i32", *QUANTIZED))
    n0 = 256 if TYPES[type].block_size > 1 else r.choice((1, 5, 33))
    n, n2, n3, count = r.randint(1, 9), r.choice((1, 2, 3)), r.choice((1, 2)), r.randint(1, 9)
    a = strided(r, type, (n0, n, n2, n3), data="ints" if type == "i32" else "normal")
    if r.random() < 0.5:
        high = n if r.random() < 0.95 else n + 1
        ids = np.array([r.randrange(high) for _ in range(count * n2 * n3)])
        return call("get_rows", a, Src("i32", (count, n2, n3), data=ids))
    to = r.choice(("f32", "f16", "bf16"))
    cache = strided(r, to, (n0, n, n2, n3))
    count = r.randint(0, n)
    repeat2, repeat3 = (1 if r.random() < 0.5 else x for x in (n2, n3))
    ids = np.stack([r.sample(range(n), count) for _ in range(repeat2 * repeat3)]) if count else np.zeros(0)
    values = strided(r, r.choice(("f32", "f16")), (n0, count, n2, n3))
    return call("set_rows", cache, values, Src(r.choice(("i64", "i32")), (count, repeat2, repeat3), data=ids))


def rotation(r: Random) -> Call:
    mode = r.choice((NORMAL, NEOX, NEOX, MROPE, IMROPE, VISION))
    n0 = 2 * r.choice((4, 8, 32, 64))
    n_dims = n0 // 2 if mode == VISION else n0 if r.random() < 0.5 else 2 * r.randint(1, n0 // 2)
    a = strided(r, r.choice(("f32", "f32", "f16")), (n0, r.randint(1, 4), r.randint(1, 6), r.choice((1, 2))))
    extra = r.choice((PLAIN, YARN, {**PLAIN, "freq_scale": 0.25, "freq_base": 1e6}))
    factors = Src(ne=(n_dims // 2,), data="positive") if r.random() < 0.3 and mode != VISION else None
    sections = tuple(r.randint(0, n0 // 8) for _ in range(4)) if mode & MROPE else None
    if sections is not None and not sum(sections):
        sections = (1, 1, 1, 0)
    how = r.random()
    return rope(
        a, n_dims, mode, extra, factors, sections, r.choice((10, 4000)), back=how < 0.2, inplace=0.2 < how < 0.4
    )


def attend(r: Random) -> Call:
    type = r.choice(("f32", "f16", "f16", "bf16", "q8_0", "q4_0"))
    dk, dv = 32 * r.randint(1, 3), 32 * r.randint(1, 3)
    kv_heads, n, n_kv, n_q = r.choice((1, 2, 3)), r.choice((1, 1, 2)), r.choice((1, 7, 64, 600)), r.choice((1, 3, 70))
    heads = kv_heads * r.choice((1, 2, 4))
    mask = None
    if r.random() < 0.8:
        rows_, columns = np.arange(n_q)[:, None], np.arange(n_kv)[None, :]
        values = np.where(columns > rows_ + r.randint(-1, n_kv), -np.inf, 0.25)
        ne = (n_kv, n_q + r.randint(0, 2), r.choice((1, heads)), r.choice((1, n)))
        padded = np.zeros((ne[3], ne[2], ne[1], n_kv))
        padded[:, :, :n_q] = values
        mask = Src("f16", ne, data=padded)
    return attention(
        strided(r, "f32", (dk, n_q, heads, n)),
        strided(r, type, (dk, n_kv, kv_heads, n)),
        strided(r, type, (dv, n_kv, kv_heads, n)),
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
    image = Src(ne=(w, h, channels, n))
    match r.randint(0, 5):
        case 0:
            part = cut("f32", image.ne, (w, h + r.randint(0, 3), channels, n))
            return call("im2col", Src(type, (kw, kh, channels, out)), part, *s, *p, *d, True, TYPES[type])
        case 1:
            signal = strided(r, "f32", (w, channels, n))
            return call("im2col", Src(type, (kw, channels, out)), signal, s[0], 0, p[0], 0, d[0], 0, False, TYPES[type])
        case 2:
            if w + 2 * p[0] - d[0] * (kw - 1) < 1 or h + 2 * p[1] - d[1] * (kh - 1) < 1:
                d = [1, 1]
            whole = strided(r, "f32", (w, h, channels, n), rows_only=False)
            kernel = Src(type, (kw, kh, channels, out))
            return call("conv_2d_direct", kernel, whole, *s, *p, *d, nmse=1e-7 if type == "f32" else 5e-4)
        case 3:
            return call("conv_2d_dw_direct", Src(type, (kw, kh, 1, channels)), image, *s, *p, 1, 1)
        case 4:
            kernel = Src(type, (kw, out, channels))
            signal = strided(r, "f32", (w, channels))
            return call("conv_transpose_1d", kernel, signal, s[0], 0, 1, nmse=1e-7 if type == "f32" else 5e-4)
    kernel = Src(type, (kw, kh, out, channels))
    return call("conv_transpose_2d_p0", kernel, image, s[0], nmse=1e-7 if type == "f32" else 5e-4)


def pool(r: Random) -> Call:
    k, s = ([r.randint(1, 4) for _ in range(2)] for _ in range(2))
    type, data = r.choice(("f32", "f16")), r.choice(("normal", "special"))
    ne = (r.randint(1, 12), r.randint(1, 12), *smaller(r, (4, 2)))
    if r.random() < 0.5:
        return call("pool_1d", Src(type, ne, data=data), r.randint(0, 1), k[0], s[0], r.randint(0, 3))
    a = cut(type, ne, (ne[0] + r.randint(0, 2), *ne[1:]), data=data)
    return call("pool_2d", a, r.randint(0, 1), *k, *s, r.choice((0.0, 1.0, 1.5)), r.choice((0.0, 1.0, 2.25)))


MAKERS: tuple[Callable[[Random], Call], ...] = (
    product, product, experts, outer, copy, copy, rows, rows, rotation, rotation, attend, attend, convolution, pool,
)  # fmt: skip


def outcome(release: Release, case: Call, data: list[bytes]) -> Any:
    """As `outcome_here`, where the values decide whether ggml asserts; None for what the engine cannot compute."""
    try:
        return outcome_here(release, case, data)
    except NotComputable:
        return None
    except GgmlError as error:
        return error.message


@pytest.mark.parametrize("start", range(SEED, SEED + COUNT, BATCH))
def test_random_calls_agree(start: int, lib: Lib) -> None:
    cases = []
    for seed in range(start, start + BATCH):
        r = Random(seed)
        case = r.choice(MAKERS)(r)
        rng = np.random.default_rng(seed)
        cases.append((case, [bytes_of(lib, s, rng) for s in (*case.sources, case.sinks) if s is not None]))
    here = [outcome(release_of(lib), *c) for c in cases]
    assert None not in [h for h in here if not isinstance(h, tuple)]
    computed = [c for c, h in zip(cases, here, strict=True) if not isinstance(h, str)]
    batch = lib.run_forked(lambda: [outcome_there(lib, *c) for c in computed])
    rest = iter([] if isinstance(batch, Abort) else batch)
    for c, h in zip(cases, here, strict=True):
        if isinstance(h, str) or isinstance(batch, Abort):
            compare(c[0], h, lib.run_forked(lambda c=c: outcome_there(lib, *c)))  # type: ignore[misc]
        else:
            compare(c[0], h, next(rest))
