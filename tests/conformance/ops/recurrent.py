"""Scans, linear attention and triangular systems, with cases as in ggml's own tests."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Call, Src, call, cut, permuted


def uniform(low: float, high: float, *ne: int, type: str = "f32", seed: int = 7) -> Src:
    """A tensor of numbers between two bounds."""
    values = np.random.default_rng(seed).uniform(low, high, int(np.prod(ne))).astype(np.float32)
    return Src(type, ne, data=values)


def small(*ne: int) -> Src:
    """A tensor of numbers so small that a recurrence over them stays bounded."""
    return uniform(-0.15, 0.15, *ne)


def ids(*values: int) -> Src:
    return Src("i32", (len(values),), data=values)


def conv(d_conv: int, d_inner: int, tokens: int, seqs: int = 1) -> Call:
    return call("ssm_conv", Src(ne=(d_conv - 1 + tokens, d_inner, seqs)), Src(ne=(d_conv, d_inner)))


CONVOLUTIONS = [
    *(
        conv(d_conv, 1024, *more)
        for d_conv in (3, 4, 9)
        for more in ((1, 1), (d_conv + 1, 1), (1, 4), (64, 1), (64, 4))
    ),
    conv(4, 1536, 1),
    conv(1, 3, 5),
    conv(1, 1, 1),
    conv(4, 7, 0),
    conv(4, 7, 3, 0),
    call("ssm_conv", cut("f32", (9, 6, 2), (9, 10, 3), 72), Src(ne=(4, 6))),
    call("ssm_conv", Src(ne=(9, 6, 2), data="special"), Src(ne=(4, 6))),
    call("ssm_conv", Src(ne=(9, 1, 2)), cut("f32", (4, 1), (7, 2))),
]


def scan(
    d_state: int, dim: int, heads: int, groups: int, tokens: int, seqs: int, keep: int = 1, mamba1: bool = False
) -> Call:
    """As in ggml's tests: the sequences start with states in another order, of more states than sequences."""
    order = np.random.default_rng(3).permutation(seqs + 1)[:seqs]
    return call(
        "ssm_scan",
        Src(ne=(d_state, dim, heads, seqs + 1)),
        Src(ne=(dim, heads, tokens, seqs)),
        Src(ne=(heads, tokens, seqs)),
        uniform(-1.0, -0.5, d_state if mamba1 else 1, heads),
        Src(ne=(d_state, groups, tokens, seqs)),
        Src(ne=(d_state, groups, tokens, seqs)),
        ids(*order),
        keep,
    )


def overlapping() -> Call:
    """x, B and C are views that lie in one another, as in llama.cpp."""
    d, heads, tokens, seqs = 128, 4, 16, 2
    whole = (d, heads, tokens, 2 * seqs)
    step = d * heads * tokens * 4
    shared = {"data": "normal"}
    return call(
        "ssm_scan",
        Src(ne=(d, d, heads, seqs)),
        cut("f32", (d, heads, tokens, seqs), whole, step, **shared),
        Src(ne=(heads, tokens, seqs)),
        uniform(-1.0, -0.5, 1, heads),
        cut("f32", (d, heads, tokens, seqs), whole, 0, **shared),
        cut("f32", (d, heads, tokens, seqs), whole, 2 * step, **shared),
        ids(1, 0),
        1,
    )


SCANS = [
    scan(16, 1, 1024, 1, 32, 4, mamba1=True),
    scan(128, 64, 16, 2, 32, 4),
    scan(256, 64, 8, 2, 32, 4),
    overlapping(),
    scan(128, 80, 32, 1, 64, 1),
    scan(128, 64, 16, 2, 4, 2, keep=4),
    scan(128, 64, 16, 2, 8, 2, keep=3),
    scan(128, 64, 8, 8, 1, 1),
    scan(5, 3, 6, 3, 7, 2),
    scan(5, 3, 6, 3, 7, 2, mamba1=True),
    scan(1, 1, 1, 1, 1, 1),
    scan(16, 2, 4, 1, 2, 3, keep=2),
]

WIDE_STEPS = call(
    "ssm_scan",
    Src(ne=(16, 4, 3, 1)),
    Src(ne=(4, 3, 6, 1)),
    uniform(-30.0, 30.0, 3, 6, 1),
    uniform(-1.0, -0.5, 1, 3),
    Src(ne=(16, 1, 6, 1)),
    Src(ne=(16, 1, 6, 1)),
    ids(0),
    1,
)
"""Steps beyond 20, where softplus is linear."""


def wkv6(heads: int, size: int, tokens: int, seqs: int) -> Call:
    per_token = (size, heads, tokens * seqs)
    k, v, r = (Src(ne=per_token) for _ in range(3))
    state = Src(ne=(size * size * heads, seqs))
    return call("rwkv_wkv6", k, v, r, Src(ne=(size, heads)), uniform(0.0, 1.0, *per_token), state)


def wkv7(heads: int, size: int, tokens: int, seqs: int) -> Call:
    per_token = (size, heads, tokens * seqs)
    r, k, v = (Src(ne=per_token) for _ in range(3))
    a, b = small(*per_token), uniform(-0.15, 0.15, *per_token, seed=8)
    state = Src(ne=(size * size * heads, seqs))
    return call("rwkv_wkv7", r, uniform(0.0, 1.0, *per_token), k, v, a, b, state)


def gla(heads: int, size: int, tokens: int, seqs: int) -> Call:
    per_token = (size, heads, tokens * seqs)
    k, v, q = (Src(ne=per_token) for _ in range(3))
    state = Src(ne=(size * size * heads, seqs))
    return call("gated_linear_attn", k, v, q, uniform(0.0, 1.0, *per_token), state, size**-0.5)


LENGTHS = ((1, 1), (32, 1), (32, 4), (1, 4))
LINEAR = [
    *(make(32, 64, *lengths) for make in (wkv6, wkv7, gla) for lengths in LENGTHS),
    *(make(4, 64, 128, 4) for make in (wkv6, wkv7, gla)),
    *(make(1, 128, 3, 2) for make in (wkv6, wkv7, gla)),
    *(make(3, size, 5, 2) for make in (wkv6, gla) for size in (1, 7, 20)),
    call("rwkv_wkv6", *[Src(ne=(4, 2, 3, 2))] * 3, Src(ne=(20,)), small(4, 2, 3, 2), Src(ne=(4, 1, 4, 2))),
]


def delta(
    heads: int,
    size: int,
    tokens: int,
    seqs: int,
    repeat: int = 1,
    permute: bool = False,
    kda: bool = False,
    keep: int = 1,
    qk_seqs: int = 0,
) -> Call:
    """As in ggml's tests; q and k so short that the state stays bounded."""

    def vectors(heads: int, low: float, high: float, seqs: int = seqs, seed: int = 1) -> Src:
        if not permute:
            return uniform(low, high, size, heads, tokens, seqs, seed=seed)
        data = uniform(low, high, size, tokens, heads, seqs, seed=seed).data
        return permuted("f32", (size, tokens, heads, seqs), (0, 2, 1, 3), data=data)

    bound = 1.7 / size**0.5
    n = heads * repeat
    return call(
        "gated_delta_net",
        vectors(heads, -bound, bound, qk_seqs or seqs),
        vectors(heads, -bound, bound, qk_seqs or seqs, 2),
        vectors(n, -0.3, 5.0, seed=3),
        uniform(-20.0 if seqs > 1 else -0.5, -1e-4, size if kda else 1, n, tokens, seqs),
        uniform(0.0, 1.0, 1, n, tokens, seqs),
        uniform(-1.0, 1.0, size, size, n, seqs),
        keep,
    )


DELTAS = [
    *(delta(32, size, 1, 1) for size in (16, 128)),
    *(delta(32, 16, 1, 1, permute=p, kda=True) for p in (False, True)),
    delta(16, 64, 1, 2),
    *(delta(4, 64, 4, seqs, permute=p, kda=k) for seqs in (1, 2) for p in (False, True) for k in (False, True)),
    *(delta(8, 32, 4, 2, 2, kda=k) for k in (False, True)),
    *(delta(4, 64, tokens, 1) for tokens in (64, 65, 127, 200)),
    *(delta(4, 64, tokens, 1, kda=True) for tokens in (33, 100)),
    delta(4, 64, 127, 2),
    *(delta(4, size, n, 1, keep=n) for size, n in ((16, 2), (32, 4))),
    *(delta(4, 64, 4, 2, keep=4, kda=k) for k in (False, True)),
    *(delta(8, 32, 4, 2, 2, keep=4, kda=k) for k in (False, True)),
    delta(4, 32, 8, 1, keep=3),
    delta(4, 64, 16, 2, keep=4),
    delta(2, 16, 3, 4, 3, qk_seqs=2),
    delta(2, 1, 3, 1),
    delta(2, 8, 0, 2),
]


def triangle(n: int, *batch: int) -> Src:
    """Well-conditioned, with numbers above the diagonal that nobody may look at."""
    rng = np.random.default_rng(n)
    values = rng.uniform(-1, 1, (*batch[::-1], n, n)) / max(n, 1) ** 0.5 + np.eye(n) * 2
    return Src(ne=(n, n, *batch), data=values.astype(np.float32))


def solve(n: int, k: int, *batch: int) -> Call:
    return call("solve_tri", triangle(n, *batch), Src(ne=(k, n, *batch)), True, True, False)


SYSTEMS = [
    *(solve(n, k, *batch) for n, k, *batch in ((10, 3), (11, 5), (17, 9, 2, 4), (30, 8, 7), (42, 10, 5, 2))),
    *(solve(n, k, *batch) for n, k, *batch in ((64, 64, 2, 2), (79, 417, 5, 3), (128, 32, 4, 2), (256, 64, 2, 2))),
    *(solve(n, k) for n, k in ((1, 1), (1, 9), (9, 1))),
    call("solve_tri", Src(ne=(4, 4), data=np.diag([1.0, 0.0, 2.0, 0.0])), Src(ne=(3, 4)), True, True, False),
    call("solve_tri", triangle(16), Src(ne=(5, 16), data="special"), True, True, False),
]

CASES = [*CONVOLUTIONS, *SCANS, WIDE_STEPS, *LINEAR, *DELTAS, *SYSTEMS]


X = Src(ne=(4, 2, 6))
STATE = Src(ne=(32, 2))
TF = Src(ne=(4, 2))


def changed(case: Call, i: int, source: Src) -> Call:
    """The case with another source `i`."""
    return Call(case.fn, (*case.sources[:i], source, *case.sources[i + 1 :]), case.params)


def transposed(*ne: int) -> Src:
    return permuted("f32", (ne[1], ne[0], *ne[2:]), (1, 0, 2, 3))


CONV = conv(4, 6, 3)
SCAN = scan(8, 4, 2, 1, 3, 2)
SCAN1 = scan(8, 4, 2, 1, 3, 2, mamba1=True)
WKV6 = call("rwkv_wkv6", X, X, X, TF, X, STATE)
WKV7 = call("rwkv_wkv7", X, X, X, X, X, X, STATE)
GLA = call("gated_linear_attn", X, X, X, X, STATE, 0.5)
DELTA = delta(4, 8, 3, 2)
SOLVE = solve(4, 3, 2, 2)

REFUSED = [
    changed(CONV, 0, Src(ne=(6, 6, 1, 2))),
    changed(CONV, 1, Src(ne=(4, 6, 2))),
    changed(CONV, 1, Src(ne=(4, 5))),
    changed(CONV, 0, Src(ne=(2, 6))),
    Call("ssm_scan", SCAN.sources, (0,)),
    Call("ssm_scan", SCAN.sources, (2**31,)),
    *(changed(SCAN1, i, transposed(*SCAN1.sources[i].ne)) for i in range(6)),
    *(changed(SCAN, i, cut("f32", SCAN.sources[i].ne, (9, 2, 3, 2))) for i in (1, 4, 5)),
    changed(SCAN, 5, Src(ne=(8, 2, 3, 2))),
    changed(SCAN, 6, Src("i64", (2,), data="ints")),
    changed(SCAN, 2, Src(ne=(3, 3, 2))),
    changed(SCAN, 2, Src(ne=(2, 4, 2))),
    changed(SCAN, 2, Src(ne=(2, 3, 3))),
    changed(SCAN, 2, Src(ne=(2, 3, 2, 2))),
    changed(SCAN, 0, Src(ne=(8, 5, 2, 2))),
    changed(SCAN, 0, Src(ne=(8, 4, 3, 2))),
    changed(SCAN, 0, Src(ne=(9, 4, 2, 2))),
    *(changed(changed(SCAN, 4, Src(ne=ne)), 5, Src(ne=ne)) for ne in ((8, 1, 4, 2), (8, 1, 3, 3))),
    changed(SCAN, 6, ids(0, 1, 0)),
    changed(SCAN, 6, Src("i32", (2, 2), data="ints")),
    changed(SCAN, 3, Src(ne=(1, 3))),
    changed(SCAN, 3, Src(ne=(1, 2, 2))),
    changed(SCAN, 3, Src(ne=(7, 2))),
    Call("ssm_scan", SCAN1.sources, (2,)),
    *(changed(c, i, transposed(*c.sources[i].ne)) for c in (WKV6, WKV7, GLA) for i in range(len(c.sources))),
    *(
        changed(c, i, Src(ne=ne))
        for c, checked in ((WKV6, (1, 2, 4)), (WKV7, (1, 3, 4, 5)), (GLA, (1, 2, 3)))
        for i in checked
        for ne in ((5, 2, 6), (4, 3, 6), (4, 2, 7))
    ),
    *(changed(c, len(c.sources) - 1, Src(ne=(31, 2))) for c in (WKV6, WKV7, GLA)),
    *(changed(DELTA, i, transposed(*DELTA.sources[i].ne)) for i in (0, 1, 2)),
    *(changed(DELTA, i, permuted("f32", DELTA.sources[i].ne, (0, 2, 1, 3))) for i in (3, 4, 5)),
    *(changed(DELTA, i, Src("f16", DELTA.sources[i].ne)) for i in range(6)),
    changed(DELTA, 3, Src(ne=(2, 4, 3, 2))),
    changed(DELTA, 4, Src(ne=(2, 4, 3, 2))),
    *(changed(DELTA, 5, Src(ne=ne)) for ne in ((7, 8, 4, 2), (8, 7, 4, 2), (8, 8, 3, 2), (8, 8, 4, 3))),
    Call("gated_delta_net", DELTA.sources, (0,)),
    changed(SOLVE, 0, Src("f16", (4, 4, 2, 2))),
    changed(SOLVE, 1, Src("f16", (3, 4, 2, 2))),
    changed(SOLVE, 0, Src(ne=(5, 4, 2, 2))),
    changed(SOLVE, 1, Src(ne=(3, 5, 2, 2))),
    changed(SOLVE, 1, Src(ne=(3, 4, 3, 2))),
    changed(SOLVE, 1, Src(ne=(3, 4, 2, 3))),
    changed(SOLVE, 0, transposed(4, 4, 2, 2)),
    changed(SOLVE, 1, transposed(3, 4, 2, 2)),
    *(Call("solve_tri", SOLVE.sources, p) for p in ((False, True, False), (True, False, False), (True, True, True))),
]


def is_empty(case: Call) -> bool:
    return 0 in case.sources[2 % len(case.sources)].dims


SHAPED = [c for c in CASES if is_empty(c)]
COMPUTED = [c for c in CASES if not is_empty(c)]
