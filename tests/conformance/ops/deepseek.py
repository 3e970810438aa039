"""lightning_indexer and hyper-connections, with cases as in ggml's own tests."""

from __future__ import annotations

from tests.conformance.ops_case import Call, Src, call, cut, permuted


def indexer(
    heads: int, kv: int, tokens: int, streams: int = 1, masks: int = 1, type: str = "f16", d: int = 128
) -> Call:
    """Where k is quantized, both dequantize it: the products are of f32."""
    return call(
        "lightning_indexer",
        Src(ne=(d, heads, tokens, streams)),
        Src(type, (d, 1, kv, streams)),
        Src(ne=(heads, tokens, 1, streams)),
        Src("f16", (kv, tokens, 1, masks), data="mask"),
    )


TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
STREAMS = ((1, 1), (4, 4), (4, 1))
INDEXERS = [
    *(indexer(heads, 256, 1, *s, type) for heads in (32, 64) for s in STREAMS for type in TYPES),
    *(indexer(32, 256, 70, *s, type) for s in STREAMS for type in ("f32", "q4_0")),
    *(indexer(64, kv, 32, 4, 1, type) for kv in (1, 7, 8, 63, 64, 65) for type in ("f16", "q8_0")),
    indexer(3, 5, 2, 4, 2, "f32", 7),
    indexer(1, 1, 1, 1, 1, "f32", 1),
    indexer(2, 0, 3),
    call(
        "lightning_indexer",
        permuted("f32", (32, 5, 4, 2), (0, 2, 1, 3)),
        cut("f16", (32, 1, 9, 2), (32, 3, 12, 2), 64),
        cut("f32", (4, 5, 1, 2), (6, 5, 2, 2), 8),
        cut("f16", (9, 5, 1, 2), (16, 5, 1, 2), data="mask"),
    ),
    call(
        "lightning_indexer",
        Src(ne=(8, 2, 3), data="special"),
        Src(ne=(8, 1, 4)),
        Src(ne=(2, 3)),
        Src("f16", (4, 3), data="mask"),
    ),
]


def comb(tokens: int, n_iter: int, eps: float = 1e-6) -> Call:
    return call("dsv4_hc_comb", Src(ne=(24, tokens)), Src(ne=(3,)), Src(ne=(24,)), eps, n_iter)


def pre(n_embd: int, tokens: int, hc: int = 4) -> Call:
    return call("dsv4_hc_pre", Src(ne=(n_embd, hc, tokens)), Src(ne=(hc, tokens)))


def post(n_embd: int, tokens: int, hc: int = 4) -> Call:
    shapes = ((n_embd, tokens), (n_embd, hc, tokens), (hc, tokens), (hc, hc, tokens))
    return call("dsv4_hc_post", *(Src(ne=ne) for ne in shapes))


SIZES = ((1, 1), (31, 17), (128, 257), (4096, 21))
HYPER = [
    *(comb(*c) for c in ((1, 1), (17, 4), (257, 8), (17, 20), (3, 2, 0.5), (0, 1))),
    call("dsv4_hc_comb", Src(ne=(24, 9), data="wide"), Src(ne=(5,)), Src(ne=(24,), data="wide"), 1e-6, 4),
    call("dsv4_hc_comb", Src(ne=(24, 9), data="special"), Src(ne=(3,), data=[1, 1, 1]), Src(ne=(24,)), 1e-6, 4),
    call(
        "dsv4_hc_comb",
        permuted("f32", (9, 24), (1, 0, 2, 3)),
        cut("f32", (4,), (8,), 8),
        permuted("f32", (1, 24), (1, 0, 2, 3)),
        1e-6,
        4,
    ),
    *(make(*size) for make in (pre, post) for size in SIZES),
    *(make(5, 3, hc) for make in (pre, post) for hc in (1, 3, 8)),
    *(make(*size) for make in (pre, post) for size in ((0, 3), (3, 0))),
    call("dsv4_hc_pre", permuted("f32", (4, 3, 20), (1, 2, 0, 3)), permuted("f32", (3, 4), (1, 0, 2, 3))),
    call(
        "dsv4_hc_post",
        permuted("f32", (3, 20), (1, 0, 2, 3)),
        permuted("f32", (4, 3, 20), (1, 2, 0, 3)),
        cut("f32", (4, 3), (7, 3), 4),
        permuted("f32", (4, 3, 4), (1, 2, 0, 3)),
    ),
    call("dsv4_hc_post", Src(ne=(6, 2), data="special"), Src(ne=(6, 4, 2)), Src(ne=(4, 2)), Src(ne=(4, 4, 2))),
]

CASES = [*INDEXERS, *HYPER]


def changed(case: Call, i: int, *ne: int, type: str | None = None) -> Call:
    """The case with another shape or type of source `i`."""
    old = case.sources[i]
    assert old is not None
    source = Src(type or old.type, ne or old.ne)
    return Call(case.fn, (*case.sources[:i], source, *case.sources[i + 1 :]), case.params)


INDEXER, COMB, PRE, POST = indexer(4, 8, 3, 6, 2, d=16), comb(3, 2), pre(8, 3), post(8, 3)

REFUSED = [
    *(changed(INDEXER, i, type="f16") for i in (0, 2)),
    changed(INDEXER, 3, type="f32"),
    changed(INDEXER, 0, 17, 4, 3, 6),
    changed(INDEXER, 3, 9, 3, 1, 2),
    changed(INDEXER, 2, 5, 3, 1, 6),
    changed(INDEXER, 1, 16, 2, 8, 6),
    changed(INDEXER, 3, 8, 4, 1, 2),
    changed(changed(INDEXER, 3, 8, 4, 1, 2), 0, 16, 4, 4, 6),
    changed(INDEXER, 2, 4, 3, 2, 6),
    changed(INDEXER, 3, 8, 3, 2, 2),
    changed(INDEXER, 1, 16, 1, 8, 5),
    changed(INDEXER, 2, 4, 3, 1, 5),
    changed(INDEXER, 3, 8, 3, 1, 4),
    *(changed(c, i, type="f16") for c in (COMB, PRE, POST) for i in range(len(c.sources))),
    comb(3, 0),
    *(changed(COMB, 0, n, 3) for n in (0, 1, 3, 8, 23, 25, 35)),
    *(changed(COMB, 0, *ne) for ne in ((24, 3, 2), (24, 3, 1, 2))),
    *(changed(COMB, 1, *ne) for ne in ((2,), (3, 2), (3, 1, 2), (3, 1, 1, 2))),
    *(changed(COMB, 2, *ne) for ne in ((23,), (24, 2), (24, 1, 2), (24, 1, 1, 2))),
    *(changed(PRE, 0, *ne) for ne in ((8, 0, 3), (8, 4, 3, 2))),
    *(changed(PRE, 1, *ne) for ne in ((5, 3), (4, 2), (4, 3, 2), (4, 3, 1, 2))),
    *(changed(POST, 0, *ne) for ne in ((8, 3, 2), (8, 3, 1, 2), (7, 3), (8, 2))),
    *(changed(POST, 1, *ne) for ne in ((8, 0, 3), (7, 4, 3), (8, 4, 2), (8, 4, 3, 2))),
    *(changed(POST, 2, *ne) for ne in ((5, 3), (4, 2), (4, 3, 2), (4, 3, 1, 2))),
    *(changed(POST, 3, *ne) for ne in ((5, 4, 3), (4, 5, 3), (4, 4, 2), (4, 4, 3, 2))),
]


SHAPED = [c for c in CASES if any(0 in s.dims for s in c.sources if s)]
COMPUTED = [c for c in CASES if c not in SHAPED]
