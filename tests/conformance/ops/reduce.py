"""Sums, means, places of the largest, sorting and counting."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Src, call, cut, permuted

SOURCES = [
    Src(ne=(33, 5, 3, 2)),
    Src(ne=(1, 1)),
    Src(ne=(20000,), data="positive"),
    Src(ne=(16, 4), data=np.float32([1e38] * 16 + [np.inf] + [1] * 15 + [np.nan] + [1] * 15 + [0] * 16)),
    cut("f32", (40, 5), (64, 6)),
    permuted("f32", (8, 4, 5), (0, 2, 1, 3)),
]
NAN, INF = np.nan, np.inf
ROWS = np.float32(
    [
        [1, 3, 3, 2],
        [NAN, 1, 2, 0],
        [5, NAN, 1, 0],
        [5, 6, NAN, NAN],
        [NAN, NAN, NAN, NAN],
        [-INF, -INF, -INF, NAN],
        [INF, NAN, INF, 1],
        [7, NAN, -INF, NAN],
        [0.0, -0.0, 0.0, -1],
    ]
)
SORTED = [
    Src(ne=(9, 5), data="distinct"),
    Src(ne=(300, 4, 3), data="distinct"),
    Src(ne=(2000, 2), data="distinct"),
    Src(ne=(16, 3), data="ints"),
    Src(ne=(1, 3)),
]
SUMS = [call(fn, s) for fn in ("sum", "sum_rows", "mean", "cumsum") for s in SOURCES]
COMPUTED = [
    *SUMS,
    *(call("sum", Src(t, (2049, 3), data="positive")) for t in ("f16", "bf16")),
    call("argmax", Src(ne=(33, 7))),
    call("argmax", Src(ne=(100, 7), data="ints")),
    call("argmax", Src(ne=(4, 9), data=ROWS)),
    call("count_equal", Src("i32", (50, 7), data="ints"), Src("i32", (50, 7), data="ints")),
    call("repeat_back", Src(ne=(8, 6, 4, 2)), Src(ne=(4, 3, 4, 1))),
    call("repeat_back", Src(ne=(8, 6)), Src(ne=(8, 6))),
    *(call("argsort", s, order) for s in SORTED for order in (0, 1)),
    *(call("top_k", s, k) for s in SORTED for k in (1, 2, 7) if k <= s.ne[0] and s.data != "ints"),
]
SHAPED = [
    call("sum", Src("i32", (3, 4))),
    call("sum_rows", Src("f16", (3, 4, 5))),
    call("mean", Src("f16", (3, 4, 5))),
    call("repeat_back", Src("f16", (8, 6)), Src(ne=(4, 6))),
    call("argsort", Src("f16", (3, 4)), 1),
    call("top_k", Src("i32", (3, 4)), 0),
    call("argmax", Src("i32", (3, 0))),
]
REFUSED = [
    call("cumsum", Src("f16", (4, 3))),
    call("argmax", Src(ne=(4, 3, 2))),
    call("count_equal", Src("i32", (4, 3)), Src("i32", (4, 2))),
    call("repeat_back", Src(ne=(4, 3)), Src(ne=(4, 2))),
    call("top_k", Src(ne=(4, 3)), 5),
]
