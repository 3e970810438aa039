"""view, reshape, permute and transpose."""

from __future__ import annotations

from tests.conformance.ops_case import Call, Src, call, cut, permuted

A = Src(ne=(8, 6, 4, 2))
NAMED = Src(ne=(8, 6, 4, 2), name="cache_k_l0")
LONG = Src(ne=(8, 6, 4, 2), name="x" * 63)
CUT = cut("f32", (8, 3, 2), (16, 6, 4), 64)


def view(a: Src, ne: tuple[int, ...], nb: tuple[int, ...], offset: int) -> Call:
    n = len(ne)
    return call("view", a, ne, nb, offset, real=(f"view_{n}d", 0, *((v,) for v in (*ne, *nb, offset))))


VIEWS = [
    view(A, (10,), (), 0),
    view(A, (10,), (), 36),
    view(A, (4, 5), (32,), 16),
    view(A, (4, 5), (100000,), 16),
    view(A, (4, 5, 3), (32, 192), 16),
    view(A, (4, 5, 3, 2), (32, 192, 768), 128),
    view(A, (0, 5), (32,), 16),
    view(A, (8, 6, 4, 2), (0, 0, 0), 0),
    view(CUT, (8, 2), (64,), 8),
    view(CUT, (3,), (), 4),
    view(Src("q4_0", (64, 6)), (64, 2), (36,), 72),
    view(Src("q4_0", (64, 6)), (32, 2), (36,), 18),
    view(NAMED, (4, 2), (32,), 0),
    view(LONG, (4, 2), (32,), 0),
    call("view_1d", A, 10, 36),
    call("view_2d", A, 4, 5, 32, 16),
    call("view_3d", A, 4, 5, 3, 32, 192, 16),
    call("view_4d", A, 4, 5, 3, 2, 32, 192, 768, 128),
]
RESHAPES = [
    call("reshape", A, Src(ne=(24, 16))),
    call("reshape", A, permuted("f16", (6, 8, 4, 2), (1, 0, 2, 3))),
    call("reshape", A, ne=(384,), real=("reshape_1d", 0, (384,))),
    call("reshape", A, ne=(24, 16), real=("reshape_2d", 0, (24,), (16,))),
    call("reshape", A, ne=(24, 4, 4), real=("reshape_3d", 0, (24,), (4,), (4,))),
    call("reshape", A, ne=(2, 12, 4, 4), real=("reshape_4d", 0, (2,), (12,), (4,), (4,))),
    call("reshape_1d", NAMED, 384),
    call("reshape_2d", NAMED, 24, 16),
    call("reshape_3d", NAMED, 24, 4, 4),
    call("reshape_4d", LONG, 2, 12, 4, 4),
    call("reshape_2d", Src("q8_0", (64, 6)), 32, 12),
    call("reshape_2d", cut("f32", (8, 6), (8, 12), 64), 6, 8),
    call("reshape_2d", Src(ne=(0, 4)), 4, 0),
    call("reshape_2d", cut("f32", (1, 6), (1, 12)), 6, 1),
]
OTHERS = [
    call("permute", a, *axes)
    for a in (A, NAMED, CUT, Src("q8_0", (64, 3, 2)), permuted("f16", (6, 8, 4, 2), (1, 0, 2, 3)))
    for axes in ((0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1))
] + [call("transpose", a) for a in (A, NAMED, LONG, CUT, Src("q8_0", (64, 3, 2)), Src(ne=(5,)))]
HUGE = [
    call("permute", Src("f16", (1024, 1 << 20, 2, 1)), 0, 2, 1, 3),
    call("permute", Src("i8", (1 << 31, 1, 1, 1)), 1, 0, 2, 3),
    call("permute", Src("f16", (128, 8, 1 << 21, 2)), 0, 2, 1, 3),
]

REFUSED = [
    view(Src(ne=(8,)), (9,), (), 0),
    view(Src(ne=(8,)), (8,), (), 4),
    view(Src(ne=(8, 6)), (8, 7), (32,), 0),
    view(CUT, (8, 100), (64,), 8),
    call("reshape_1d", A, 383),
    call("reshape_2d", A, 24, 17),
    call("reshape_3d", A, 24, 4, 5),
    call("reshape_4d", A, 2, 12, 4, 5),
    call("reshape", A, Src(ne=(24, 17))),
    call("reshape", CUT, Src(ne=(48,))),
    call("reshape_1d", CUT, 48),
    call("reshape_2d", permuted("f32", (6, 8), (1, 0, 2, 3)), 6, 8),
    call("reshape_3d", CUT, 8, 3, 2),
    call("reshape_4d", CUT, 8, 3, 2, 1),
    call("permute", A, 4, 1, 2, 3),
    call("permute", A, 0, -1, 2, 3),
    call("permute", A, 0, 1, 4, 3),
    call("permute", A, 0, 1, 2, 9),
    call("permute", A, 0, 0, 2, 3),
    call("permute", A, 0, 1, 0, 3),
    call("permute", A, 0, 1, 2, 0),
    call("permute", A, 0, 1, 1, 3),
    call("permute", A, 0, 1, 2, 1),
    call("permute", A, 0, 1, 2, 2),
]
COMPUTED: list[Call] = []
SHAPED = VIEWS + RESHAPES + OTHERS + HUGE
