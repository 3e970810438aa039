"""Repeating, joining, padding, rolling, cutting out and making rows of numbers."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Src, call, cut, permuted

A = Src(ne=(6, 5, 4, 3))
REPEATS = [
    call("repeat", a, b)
    for a, b in (
        (A, A),
        (A, Src(ne=(12, 5, 4, 3))),
        (Src(ne=(6, 1, 4)), Src(ne=(6, 10, 4, 2))),
        (Src("f16", (6, 5)), Src(ne=(12, 5, 2))),
        (Src("bf16", (6, 5)), Src("i32", (6, 15))),
        (Src("i32", (6, 5), data="ints"), Src(ne=(6, 5, 3))),
        (Src("i16", (6, 5), data="ints"), Src(ne=(6, 5, 3))),
        (cut("f32", (6, 5), (9, 6)), Src(ne=(6, 5, 3))),
    )
]
REPEAT_4D = [
    call("repeat_4d", A, 12, 5, 4, 3),
    call("repeat_4d", Src("i32", (3,), data="ints"), 3, 2, 1, 4),
    call("repeat", A, ne=[12, 5, 4, 3], real=("repeat_4d", 0, (12,), (5,), (4,), (3,))),
]
CONCATS = [
    call("concat", Src(type, (6, 5, 4, 3), data=data), Src(type, ne, data=data), dim)
    for type, data in (("f32", "normal"), ("i32", "ints"), ("f16", "normal"), ("bf16", "normal"), ("i8", "ints"))
    for dim, ne in enumerate(((2, 5, 4, 3), (6, 1, 4, 3), (6, 5, 7, 3), (6, 5, 4, 2)))
]
CONCATS += [
    call("concat", Src("q8_0", (64, 3)), Src("q8_0", (32, 3)), 0),
    call("concat", Src("q4_0", (64, 3)), Src("q4_0", (64, 5)), 1),
    call("concat", Src("i64", (6, 3), data="ints"), Src("i64", (6, 5), data="ints"), 1),
    call("concat", permuted("f32", (5, 6, 4), (1, 0, 2, 3)), cut("f32", (6, 5, 2), (8, 7, 3)), 2),
]
PADS = [
    call("pad", A, 1, 2, 3, 0),
    call("pad", permuted("f32", (5, 6, 4), (1, 0, 2, 3)), 1, 0, 0, 2),
    call("pad", A, -1, 0, 0, 1),
    call("pad_circular", A, 1, 2, 3, 1),
    call("pad_ext", A, 1, 2, 0, 1, 3, 0, 0, 2),
    call("pad_ext", A, -1, 2, 1, -1, 0, 0, 0, 0),
    call("pad_ext_circular", A, 1, 2, 3, 1, 0, 4, 2, 0),
    call("pad_ext", A, 1, 1, 0, 0, 0, 0, 0, 0, circular=True, real=("pad_ext_circular", 0, (1,), (1,), *[(0,)] * 6)),
    call("pad_reflect_1d", A, 5, 3),
    call("pad_reflect_1d", Src(ne=(512, 4)), 10, 9),
]
INTERPOLATED = [
    call("interpolate", Src(ne=(7, 5, 2, 3)), *ne, mode)
    for mode in (0, 1, 2, 256, 257, 258, 513, 769)
    for ne in ((14, 10, 4, 6), (3, 2, 2, 3), (15, 3, 1, 3), (7, 5, 2, 3), (1, 1, 2, 3), (23, 17, 2, 1))
]
COMPUTED = [
    *REPEATS,
    *REPEAT_4D,
    *CONCATS,
    *PADS,
    *INTERPOLATED,
    *(call("upscale", Src(ne=(7, 5, 2, 3)), 2, mode) for mode in (0, 1, 2, 257, 513)),
    call("upscale", permuted("f32", (5, 7, 2), (1, 0, 2, 3)), 3, 1),
    call("upscale_ext", Src(ne=(7, 5, 2, 3)), 9, 9, 2, 3, 1),
    call("interpolate", Src(ne=(8, 8), data=np.float32([np.inf] + [1] * 63)), 3, 3, 1, 1, 513),
    call("roll", A, 1, -2, 3, 0),
    call("roll", A, -5, 4, 0, -2),
    call("roll", cut("f32", (6, 5), (9, 6)), 2, 2, 0, 0),
    call("diag", Src(ne=(7, 1, 3, 2))),
    *(call("tri", Src(ne=(7, 7, 3, 2)), kind) for kind in range(4)),
    call("arange", 0.0, 10.0, 1.0),
    call("arange", 0.5, 7.0, 0.3),
    call("arange", 0.0, 1048576.0, 1.0),
    call("arange", -1.0, 1e-3, 0.1),
    *(call("timestep_embedding", Src(ne=(5,), data=np.float32([0, 1, 12, 500, 999])), d, 10000) for d in (16, 17, 320)),
]
SHAPED = [
    call("repeat", Src(ne=(0, 3)), Src(ne=(0, 6))),
    call("repeat_4d", Src(ne=(0, 3)), 5, 5, 5, 5),
    call("repeat", Src("q8_0", (32, 3)), Src(ne=(64, 3))),
    call("pad", Src("f16", (6, 5)), 2, 0, 0, 0),
    call("arange", 0.0, 5.0, -1.0),
    call("arange", 0.0, 5.0, 1e-30),
    call("arange", 0.0, 0.7, 0.1),
    call("arange", 0.0, 5.0, 0.0),
    call("arange", -3e38, 3e38, 1e38),
    call("pad", A, -20, 0, 1, 0),
    call("top_k", A, -3),
    call("timestep_embedding", A, -2, 100),
    call("roll", Src("f16", (6, 5)), 2, 0, 0, 0),
    call("diag", Src("f16", (6, 1))),
    call("tri", Src(ne=(6, 6)), 9),
]
REFUSED = [
    call("repeat", A, Src(ne=(6, 5, 4, 4))),
    call("repeat", Src(ne=(0, 3)), Src(ne=(2, 3))),
    call("repeat_4d", A, 6, 5, 4, 4),
    call("repeat", A, ne=[5, 5, 4, 3], real=("repeat_4d", 0, (5,), (5,), (4,), (3,))),
    call("concat", A, A, -1),
    call("concat", A, A, 4),
    call("concat", A, Src("f16", (6, 5, 4, 3)), 0),
    call("concat", A, Src(ne=(6, 5, 3, 3)), 0),
    call("concat", A, Src(ne=(5, 5, 4, 3)), 3),
    call("pad_reflect_1d", A, -1, 0),
    call("pad_reflect_1d", A, 0, -1),
    call("pad_reflect_1d", A, 6, 0),
    call("pad_reflect_1d", A, 0, 6),
    call("pad_reflect_1d", permuted("f32", (5, 6), (1, 0, 2, 3)), 1, 1),
    call("pad_reflect_1d", Src("f16", (6, 5)), 1, 1),
    call("roll", permuted("f32", (5, 6), (1, 0, 2, 3)), 1, 0, 0, 0),
    call("roll", A, 6, 0, 0, 0),
    call("roll", A, 0, -5, 0, 0),
    call("roll", A, 0, 0, 4, 0),
    call("roll", A, 0, 0, 0, 3),
    call("diag", Src(ne=(6, 2))),
    call("tri", Src("f16", (6, 6)), 0),
    call("tri", permuted("f32", (6, 6), (1, 0, 2, 3)), 0),
    call("tri", Src(ne=(6, 5)), 0),
    call("arange", 1.0, 1.0, 1.0),
    call("arange", 1.0, float("nan"), 1.0),
    call("upscale", A, 1, 0),
    call("upscale", Src("f16", (6, 5)), 2, 0),
    call("interpolate", A, 6, 5, 4, 3, 3),
    call("interpolate", A, 6, 5, 4, 3, 512),
]
