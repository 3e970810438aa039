"""Random calls of the recurrent ops and of DeepSeek's, on views of every kind they take, against the real library.

GGMLTOOL_RANDOM_OPS sets how many (default 400), GGMLTOOL_SEED where they start.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest

from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import Call, Src, call, check_tensor, check_values, cut, permuted
from tests.conformance.test_ops_recurrent import ids, triangle

COUNT = int(os.environ.get("GGMLTOOL_RANDOM_OPS", "400"))
SEED = int(os.environ.get("GGMLTOOL_SEED", "0"))
BATCH = 50

MOST = 1 << 14
"""Values from which a source takes what it needs, from the beginning on."""


def source(r: Random, *ne: int, low: float = -1, high: float = 1, rows: bool = True, views: bool = True) -> Src:
    """A tensor between two bounds, or a view: with gaps, or permuted; with `rows` its rows stay in one piece."""
    data = np.random.default_rng(r.randrange(1 << 30)).uniform(low, high, MOST).astype(np.float32)
    dims = [*ne, *[1] * (4 - len(ne))]
    kind = r.random() if views else 0
    if kind < 0.4:
        return Src(ne=tuple(dims), data=data)
    if kind < 0.7:
        return cut("f32", dims, [n + r.randint(0, 2) for n in dims[:3]] + dims[3:], data=data)
    axes = [0, *r.sample((1, 2, 3), 3)] if rows else r.sample(range(4), 4)
    return permuted("f32", [dims[axes[i]] for i in range(4)], axes, data=data)


def packed(r: Random, *ne: int) -> Src:
    """As ssm_scan takes it: gaps between tokens, none between rows."""
    data = np.random.default_rng(r.randrange(1 << 30)).uniform(-1, 1, MOST).astype(np.float32)
    return cut("f32", ne, (ne[0], ne[1] + r.randint(0, 3), ne[2] + r.randint(0, 2), ne[3]), data=data)


def sizes(r: Random) -> tuple[int, int, int, int]:
    """The length of a row, heads, tokens, sequences."""
    return r.choice((1, 2, 5, 8, 16, 33)), r.choice((1, 2, 3, 6)), r.choice((1, 2, 3, 7, 16)), r.choice((1, 1, 2, 3))


def divisor(r: Random, n: int) -> int:
    return r.choice([d for d in range(1, n + 1) if n % d == 0])


def conv(r: Random) -> Call:
    width, (_, heads, tokens, seqs) = r.randint(1, 6), sizes(r)
    whole = (width - 1 + tokens, heads + r.randint(0, 2), seqs + 1)
    sx = cut("f32", (width - 1 + tokens, heads, seqs), whole)
    return call("ssm_conv", sx, Src(ne=(width, heads)))


def scan(r: Random) -> Call:
    dim, heads, tokens, seqs = sizes(r)
    states, d_state, groups = seqs + r.randint(0, 2), r.choice((1, 4, 16, 37)), divisor(r, heads)
    columns = d_state if r.random() < 0.3 else 1
    return call(
        "ssm_scan",
        source(r, d_state, dim, heads, states, views=False),
        packed(r, dim, heads, tokens, seqs),
        source(r, heads, tokens, seqs, low=-2, high=2, views=False),
        source(r, columns, heads, low=-1, high=-0.2, views=False),
        packed(r, d_state, groups, tokens, seqs),
        packed(r, d_state, groups, tokens, seqs),
        ids(*(r.randrange(states) for _ in range(seqs))),
        r.randint(1, tokens) if columns == 1 else 1,
    )


def attention(r: Random) -> Call:
    size, heads, tokens, seqs = sizes(r)
    name = r.choice(("rwkv_wkv6", "gated_linear_attn", "rwkv_wkv7"))
    size = 64 if name == "rwkv_wkv7" else size
    ne = (size, heads, tokens * seqs)
    k, v, q, a, b = (source(r, *ne, low=-0.15, high=0.15, views=False) for _ in range(5))
    decay = source(r, *ne, low=0, views=False)
    state = source(r, size * size * heads, seqs, views=False)
    if name == "rwkv_wkv6":
        return call(name, k, v, q, source(r, size, heads, views=False), decay, state)
    if name == "gated_linear_attn":
        return call(name, k, v, q, decay, state, 0.5)
    return call(name, q, decay, k, v, a, b, state)


def delta(r: Random) -> Call:
    size, heads, tokens, seqs = sizes(r)
    shared = divisor(r, seqs)
    q, k = (source(r, size, r.choice((1, 2, heads)), tokens, shared, low=-0.3, high=0.3) for _ in range(2))
    return call(
        "gated_delta_net",
        q,
        k,
        source(r, size, heads, tokens, seqs),
        source(r, r.choice((1, size)), heads, tokens, seqs, high=0, views=False),
        source(r, 1, heads, tokens, seqs, low=0, views=False),
        source(r, size, size, heads, seqs, views=False),
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
        "lightning_indexer", source(r, size, heads, tokens, streams), k, source(r, heads, tokens, 1, streams), mask
    )


def hyper_connections(r: Random) -> Call:
    n_embd, hc, tokens, _ = sizes(r)

    def any_view(*ne: int, bound: float = 1) -> Src:
        return source(r, *ne, low=-bound, high=bound, rows=False)

    match r.randint(0, 2):
        case 0:
            return call("dsv4_hc_pre", any_view(n_embd, hc, tokens), any_view(hc, tokens))
        case 1:
            streams, comb = any_view(n_embd, hc, tokens), any_view(hc, hc, tokens)
            return call("dsv4_hc_post", any_view(n_embd, tokens), streams, any_view(hc, tokens), comb)
    mixes, base = any_view(24, tokens, bound=9), any_view(24)
    return call("dsv4_hc_comb", mixes, source(r, 3), base, r.choice((0.0, 1e-6, 1e-2)), r.choice((1, 2, 9)))


MAKERS = (conv, scan, scan, attention, delta, delta, system, indexer, hyper_connections, hyper_connections)


@pytest.mark.parametrize("start", range(SEED, SEED + COUNT, BATCH))
def test_random_calls_agree(start: int, lib: Lib) -> None:
    for seed in range(start, start + BATCH):
        r = Random(seed)
        case = r.choice(MAKERS)(r)
        check_tensor(lib, case)
        check_values(lib, case, seed)
