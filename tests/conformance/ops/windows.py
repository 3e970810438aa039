"""Windows of images and relative positions."""

from __future__ import annotations

from tests.conformance.ops_case import Src, call, cut, permuted

GAPS = cut("f32", (6, 5, 4), (8, 6, 5))
WINDOWS = [
    *(call("win_part", Src(ne=(6, 5, 4)), w) for w in (1, 2, 3, 4, 5, 7)),
    call("win_part", Src(ne=(96, 14, 14)), 7),
    call("win_part", Src(ne=(1, 1, 1)), 3),
    call("win_part", Src(ne=(8, 10)), 4),
    call("win_part", GAPS, 2),
    call("win_part", permuted("f32", (4, 6, 5), (1, 0, 2, 3)), 3),
    *(call("win_unpart", Src(ne=(6, w, w, -(-5 // w) * -(-4 // w))), 5, 4, w) for w in (1, 2, 3, 4, 5, 7)),
    call("win_unpart", Src(ne=(96, 7, 7, 4)), 14, 14, 7),
    call("win_unpart", Src(ne=(6, 3, 3, 6)), 4, 2, 3),
    call("win_unpart", cut("f32", (6, 2, 2, 6), (8, 2, 2, 6)), 5, 4, 2),
]
POSITIONS = [
    *(call("get_rel_pos", Src(t, (8, 2 * n - 1)), n, n) for n in (1, 2, 7, 14) for t in ("f16", "bf16")),
    call("get_rel_pos", cut("f16", (8, 7), (10, 7)), 4, 4),
]


def added(n: int, columns: int, rows: int, windows: int, planes: int = 1) -> tuple[Src, Src, Src]:
    by_distance = Src(ne=(n, columns, rows, windows))
    return Src(ne=(n * n, columns * rows, windows, planes)), by_distance, by_distance


ADDED = [
    *(
        call("add_rel_pos", *added(*ne))
        for ne in ((1, 1, 1, 1), (2, 2, 2, 3), (7, 7, 7, 2), (3, 4, 2, 2), (2, 1, 3, 1))
    ),
    call("add_rel_pos", *added(3, 2, 2, 2, 2)),
    call("add_rel_pos", *added(4, 4, 4, 5), inplace=True),
]
SHAPED = [
    call("get_rel_pos", Src("f32", (8, 7)), 4, 4),
    call("get_rel_pos", Src("q8_0", (32, 7, 2)), 4, 4),
    call("add_rel_pos", Src("f16", (4, 4, 2)), *[Src(ne=(2, 2, 2, 2))] * 2),
]
P, Q = Src(ne=(2, 2, 2, 2)), Src(ne=(4, 4, 2))
GAPS_IN_P = cut("f32", (2, 2, 2, 2), (3, 2, 2, 2))
REFUSED = [
    call("win_part", Src(ne=(4, 4, 4, 2)), 2),
    call("win_part", Src("f16", (4, 4, 4)), 2),
    call("win_unpart", Src("f16", (4, 2, 2, 4)), 4, 4, 2),
    call("get_rel_pos", Src("f16", (8, 7)), 4, 3),
    call("get_rel_pos", Src("f16", (8, 8)), 4, 4),
    call("add_rel_pos", Q, P, Src(ne=(2, 2, 2))),
    call("add_rel_pos", cut("f32", (4, 4, 2), (5, 4, 2)), P, P),
    call("add_rel_pos", Q, GAPS_IN_P, P),
    call("add_rel_pos", Q, P, GAPS_IN_P),
    call("add_rel_pos", Q, Src("f16", (2, 2, 2, 2)), P),
    call("add_rel_pos", Q, P, Src("f16", (2, 2, 2, 2))),
    call("add_rel_pos", Src(ne=(4, 4, 3)), P, P),
    call("add_rel_pos", Src(ne=(5, 4, 2)), P, P),
    call("add_rel_pos", Src(ne=(4, 5, 2)), P, P),
]


COMPUTED = WINDOWS + POSITIONS + ADDED
