"""cpy, cast, cont and dup."""

from __future__ import annotations

from ggmltool.ggml.dtypes import TYPES
from tests.conformance.ops_case import Src, call, cut, permuted

A = Src(ne=(8, 6, 4, 2))
CUT = cut("f32", (8, 3, 2), (16, 6, 4), 64)
SWAPPED = permuted("f32", (6, 8, 4, 2), (1, 0, 2, 3))
INNER = permuted("f32", (8, 4, 6, 2), (0, 2, 1, 3))
FLOATS = ("f32", "f16", "bf16")

SAME = [
    call(fn, a)
    for fn in ("cont", "dup")
    for a in (
        A,
        CUT,
        SWAPPED,
        INNER,
        permuted("f16", (6, 8, 4, 2), (3, 1, 0, 2)),
        permuted("bf16", (6, 8, 4, 2), (1, 0, 2, 3)),
        permuted("i32", (6, 8, 4, 2), (1, 0, 2, 3), data="ints"),
        permuted("i16", (6, 8), (1, 0, 2, 3), data="ints"),
        permuted("i8", (6, 8), (1, 0, 2, 3), data="ints"),
        permuted("i64", (6, 8), (1, 0, 2, 3), data="ints"),
        Src("q8_0", (64, 6)),
        permuted("q8_0", (64, 6, 4), (0, 2, 1, 3)),
        cut("q4_0", (32, 3), (96, 6), 18),
        Src(ne=(0, 4)),
        Src(ne=(8, 6), name="x" * 63),
    )
]
EXTENTS = [
    call("cont", SWAPPED, (24, 16), real=("cont_2d", 0, (24,), (16,))),
    call("cont", INNER, (384,), real=("cont_1d", 0, (384,))),
    call("cont", INNER, (4, 12, 2, 4), real=("cont_4d", 0, (4,), (12,), (2,), (4,))),
    call("cont_1d", SWAPPED, 384),
    call("cont_2d", SWAPPED, 24, 16),
    call("cont_3d", CUT, 4, 6, 2),
    call("cont_4d", SWAPPED, 4, 6, 8, 2),
    call("dup", A, inplace=True),
]
CASTS = [
    call("cast", a, TYPES[to])
    for to in FLOATS
    for a in (*(Src(t, (32, 6, 2)) for t in FLOATS), *(permuted(t, (6, 32, 2), (1, 0, 2, 3)) for t in FLOATS))
] + [
    call("cast", Src(ne=(16, 2), data="special"), TYPES["f16"]),
    call("cast", Src(ne=(16, 2), data="special"), TYPES["bf16"]),
    call("cast", Src("f32", (8, 6), data="wide"), TYPES["i32"]),
    call("cast", Src("i32", (8, 6), data="ints"), TYPES["f32"]),
    call("cast", permuted("i32", (8, 6), (1, 0, 2, 3), data="ints"), TYPES["f32"]),
    *(call("cast", Src(t, (256, 3)), TYPES["f32"]) for t in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K")),
    call("cast", permuted("q8_0", (64, 6, 4), (0, 2, 1, 3)), TYPES["f32"]),
]
COPIES = [
    call("cpy", a, b)
    for a, b in (
        (A, Src(ne=(8, 6, 4, 2))),
        (A, Src("f16", (8, 6, 4, 2))),
        (A, Src(ne=(24, 16))),
        (A, permuted("f32", (6, 8, 4, 2), (1, 0, 2, 3))),
        (SWAPPED, Src("f16", (16, 24))),
        (SWAPPED, permuted("f16", (6, 8, 4, 2), (1, 0, 2, 3))),
        (Src(ne=(48,)), CUT),
        (Src("f16", (48,)), CUT),
        (Src("q8_0", (64, 6)), Src("q8_0", (32, 12))),
        (Src("q8_0", (64, 6)), cut("q8_0", (64, 6), (128, 6), 34)),
        (Src("q8_0", (64, 6)), Src("f32", (6, 64))),
        (Src("i32", (8, 6), data="ints"), Src("f32", (6, 8))),
        (Src("f32", (8, 6), data="wide"), Src("i32", (6, 8), data="ints")),
        (Src(ne=(8, 6), name=""), Src(ne=(8, 6), name="cache_k_l0 (view)")),
        (Src(ne=(0, 6)), Src(ne=(6, 0))),
    )
]
COMPUTED = SAME + EXTENTS + CASTS + COPIES


QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq2_0", "mxfp4")


REFUSED = [
    call("cpy", A, Src(ne=(8, 6))),
    call("cont_4d", A, 8, 6, 4, 3),
    call("cont_1d", A, 12),
    call("cont", A, (12,), real=("cont_1d", 0, (12,))),
]
