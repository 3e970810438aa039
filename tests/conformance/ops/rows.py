"""get_rows, set_rows and get_rows_back."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Src, call, cut, permuted

IDS = Src("i32", (4,), data=[3, 0, 3, 1])
TYPES_READ = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K",
              "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4")  # fmt: skip


def ids(type: str, *ne: int, high: int, seed: int = 0) -> Src:
    """Different numbers below `high` in each row."""
    rng = np.random.default_rng(seed)
    rows = int(np.prod(ne[1:], dtype=int))
    return Src(type, ne, data=np.stack([rng.permutation(high)[: ne[0]] for _ in range(rows)]))


GET = [
    *(call("get_rows", Src(t, (256, 5)), IDS) for t in TYPES_READ),
    call("get_rows", Src("i32", (8, 5), data="ints"), IDS),
    call("get_rows", Src(ne=(8, 5, 3)), ids("i32", 4, 3, high=5)),
    call("get_rows", Src(ne=(8, 5, 3, 2)), ids("i32", 4, 3, 2, high=5)),
    call("get_rows", Src("q8_0", (64, 5, 3, 2)), ids("i32", 4, 3, 2, high=5)),
    call("get_rows", cut("f32", (8, 5, 2), (16, 9, 2), 32), ids("i32", 4, 2, high=5)),
    call("get_rows", permuted("f16", (8, 3, 5), (0, 2, 1, 3)), ids("i32", 4, 3, high=5)),
    call("get_rows", Src(ne=(1, 8, 6)), cut("i32", (2, 6), (8, 6), data="ints")),
    call("get_rows", Src(ne=(8, 5)), Src("i32", (0,))),
    call("get_rows", Src("f16", (16, 5), data="special"), IDS),
]
SET = [
    call("set_rows", Src(to, (64, 8)), Src(of, (64, 4)), ids(index, 4, high=8))
    for to in ("f32", "f16", "bf16")
    for of in ("f32", "f16")
    for index in ("i64", "i32")
] + [
    call("set_rows", Src("f16", (8, 9, 6, 4)), Src(ne=(8, 4, 6, 4)), ids("i64", 4, 3, 2, high=9)),
    call("set_rows", Src("f16", (8, 9, 6, 4)), Src(ne=(8, 4, 6, 4)), ids("i64", 4, high=9)),
    call("set_rows", cut("f16", (8, 9, 2), (16, 20, 3), 40), Src(ne=(8, 4, 2)), ids("i64", 4, high=9)),
    call("set_rows", Src(ne=(1, 32)), Src(ne=(1, 4)), ids("i64", 4, high=32)),
    call("set_rows", Src(ne=(8, 9)), cut("f32", (8, 4), (16, 5), 32), ids("i64", 4, high=9)),
    call("set_rows", Src("f16", (16, 9)), Src(ne=(16, 4), data="special"), ids("i64", 4, high=9)),
    call("set_rows", Src(ne=(8, 9), name="cache_k_l0 (view)"), Src(ne=(8, 0)), Src("i64", (0,))),
]
BACK = [
    call("get_rows_back", Src(t, (8, 4)), Src("i32", (4,), data=[0, 2, 2, 4]), Src(ne=(8, 5))) for t in ("f32", "f16")
] + [
    call(
        "get_rows_back",
        Src(ne=(8, 4)),
        Src("i32", (4,), data=[0, 2, 2, 4]),
        ne=(8, 4, 1, 1),
        real=("get_rows_back", 0, 1, 0),
    )
]


REFUSED = [
    call("get_rows", Src(ne=(8, 5, 2)), IDS),
    call("get_rows", Src(ne=(8, 5, 1, 2)), IDS),
    call("get_rows", Src(ne=(8, 5)), Src("i32", (4, 1, 1, 2))),
    call("get_rows", Src(ne=(8, 5)), Src("i64", (4,))),
    call("get_rows_back", Src(ne=(8, 4, 2)), IDS, Src(ne=(8, 5))),
    call("get_rows_back", Src(ne=(8, 4)), Src("i64", (4,)), Src(ne=(8, 5))),
    call("get_rows_back", Src(ne=(8, 4)), IDS, Src(ne=(9, 5))),
    call("get_rows_back", Src(ne=(8, 4)), IDS, Src(ne=(8, 5, 2))),
    call("set_rows", Src(ne=(8, 9)), Src(ne=(7, 4)), Src("i64", (4,))),
    call("set_rows", Src(ne=(8, 9, 2)), Src(ne=(8, 4)), Src("i64", (4,))),
    call("set_rows", Src(ne=(8, 9, 1, 2)), Src(ne=(8, 4)), Src("i64", (4,))),
    call("set_rows", Src(ne=(8, 9)), Src(ne=(8, 4)), Src("i64", (5,))),
    call("set_rows", Src(ne=(8, 9, 3)), Src(ne=(8, 4, 3)), Src("i64", (4, 2))),
    call("set_rows", Src(ne=(8, 9, 1, 3)), Src(ne=(8, 4, 1, 3)), Src("i64", (4, 1, 2))),
    call("set_rows", Src(ne=(8, 9)), Src(ne=(8, 4)), Src("i64", (4, 1, 1, 2))),
    call("set_rows", Src(ne=(8, 9)), Src("bf16", (8, 4)), Src("i64", (4,))),
    call("set_rows", Src(ne=(8, 9)), Src(ne=(8, 4)), Src("i16", (4,))),
    call("set_rows", permuted("f32", (9, 8), (1, 0, 2, 3)), Src(ne=(8, 4)), Src("i64", (4,))),
    call("set_rows", Src(ne=(8, 9)), permuted("f32", (4, 8), (1, 0, 2, 3)), Src("i64", (4,))),
]


COMPUTED = GET + SET + BACK[:-1]
SHAPED = BACK[-1:]
