"""flash_attn_ext."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Call, Src, call, cut, permuted


def causal(n_kv: int, n_q: int, *more: int, all_masked: int = 0) -> Src:
    """A mask that hides the keys after each query's own place; the first `all_masked` queries see nothing."""
    column, row = np.arange(n_kv)[None, :], np.arange(n_q)[:, None]
    mask = np.where(column > row + n_kv - n_q, -np.inf, 0)
    mask[:all_masked] = -np.inf
    return Src("f16", (n_kv, n_q, *more), data=np.broadcast_to(mask, (*more[::-1], n_q, n_kv)))


def window(n_kv: int, n_q: int, first: int, end: int) -> Src:
    """A mask that hides all keys but those from `first` to `end`; the last query sees one fewer at each side."""
    mask = np.full((n_q, n_kv), -np.inf)
    mask[:, first:end] = 0
    mask[-1, [first, end - 1]] = -np.inf
    return Src("f16", (n_kv, n_q), data=mask)


def attention(
    q: Src,
    k: Src,
    v: Src,
    mask: Src | None = None,
    sinks: Src | None = None,
    prec: int = 0,
    nmse: float = 5e-4,
    **params: float,
) -> Call:
    values = {"scale": 0.125, "max_bias": 0.0, "logit_softcap": 0.0, **params}
    real = ("flash_attn_ext", 0, 1, 2, 3, *((x,) for x in values.values()))
    if prec:
        values["prec"] = prec
    return Call(
        "flash_attn_ext",
        (q, k, v, mask),
        kwargs=values,
        real=real,
        sinks=sinks,
        after=("ggml_flash_attn_ext_set_prec", prec) if prec else None,
        nmse=nmse,
    )


def qkv(
    type: str = "f16",
    dk: int = 64,
    dv: int = 64,
    n_q: int = 3,
    n_kv: int = 40,
    heads: int = 8,
    kv_heads: int = 2,
    n: int = 1,
) -> tuple[Src, Src, Src]:
    return Src(ne=(dk, n_q, heads, n)), Src(type, (dk, n_kv, kv_heads, n)), Src(type, (dv, n_kv, kv_heads, n))


SINKS = Src(ne=(8,))
COMPUTED = [
    *(attention(*qkv(t), causal(40, 3)) for t in ("f32", "f16", "bf16", "q4_0", "q8_0")),
    *(attention(*qkv(t, n_q=80, n_kv=100), causal(100, 80)) for t in ("f32", "f16", "bf16", "q8_0")),
    *(attention(*qkv(t, n_q=1, n_kv=600), causal(600, 1)) for t in ("f32", "f16", "q8_0")),
    *(attention(*qkv(n_q=n), causal(40, n, all_masked=1)) for n in (3, 70)),
    *(attention(*qkv(n_q=n), causal(40, n, all_masked=1), SINKS) for n in (1, 3, 70)),
    *(attention(*qkv(t, n_q=n), window(40, n, 7, 31)) for t in ("f16", "q8_0") for n in (1, 3, 70)),
    *(attention(*qkv(n_q=n), causal(40, n), logit_softcap=20.0) for n in (3, 70)),
    *(attention(*qkv(n_q=n), causal(40, n), logit_softcap=20.0, max_bias=8.0) for n in (3, 70)),
    *(attention(*qkv(n_q=3, heads=h, kv_heads=h), Src("f16", (40, 3)), max_bias=8.0) for h in (1, 6, 8, 12)),
    attention(*qkv()),
    attention(*qkv(), sinks=SINKS),
    attention(*qkv(), prec=10),
    attention(*qkv(n=3), causal(40, 3, 1, 3)),
    attention(*qkv(n=3), causal(40, 3)),
    attention(*qkv(), causal(40, 3, 8)),
    attention(*qkv(), Src("f16", (40, 3, 4))),
    attention(*qkv(), Src("f16", (64, 8))),
    attention(*qkv(dk=192, dv=128), causal(40, 3)),
    attention(*qkv(dk=40, dv=40), causal(40, 3)),
    attention(Src(ne=(64, 3, 8)), Src("f16", (64, 40, 4)), Src("f16", (64, 40, 2))),
    attention(Src(ne=(64, 3, 8)), Src("f16", (64, 40, 2)), Src("q8_0", (64, 40, 2))),
    attention(
        permuted("f32", (64, 8, 3), (0, 2, 1, 3)),
        permuted("f16", (64, 2, 40), (0, 2, 1, 3)),
        permuted("f16", (64, 2, 40), (0, 2, 1, 3)),
        causal(40, 3),
    ),
    attention(
        permuted("f32", (64, 8, 70), (0, 2, 1, 3)),
        cut("f16", (64, 40, 2), (64, 100, 3)),
        cut("f16", (64, 40, 2), (64, 100, 3), 128),
        causal(40, 70),
    ),
    attention(*qkv(n_kv=0)),
]


Q, K, V = qkv()


REFUSED = [
    attention(Q, Src("f16", (32, 40, 2)), V),
    attention(Q, Src("f16", (64, 40, 3)), V),
    attention(Src(ne=(64, 3, 8, 2)), K, V),
    attention(Q, K, Src("f16", (64, 40, 2, 2))),
    attention(Q, K, V, Src(ne=(40, 3))),
    attention(Q, K, V, permuted("f16", (3, 40), (1, 0, 2, 3))),
    attention(Q, K, V, Src("f16", (40, 3, 3))),
    attention(Q, K, V, Src("f16", (40, 3, 1, 2))),
    attention(Q, K, V, max_bias=8.0),
    attention(Q, K, V, sinks=Src(ne=(7,))),
    attention(Q, K, V, sinks=Src("f16", (8,))),
    call("flash_attn_back", Q, K, V, Q, False),
]
