"""mul_mat, mul_mat_id and out_prod."""

from __future__ import annotations

import platform

import numpy as np

from tests.conformance.ops_case import Call, Src, call, cut, permuted

QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "iq4_xs",
             "tq1_0", "tq2_0", "mxfp4", "nvfp4")  # fmt: skip
PLAIN = ("f32", "f16", "bf16")
HALF = 1e-7
SUMS = 1e-11 if platform.machine() in ("x86_64", "AMD64") else HALF
"""NMSE where nothing but the order of sums differs: other processors round a few values to another one of 8 bits."""


def tolerance(*types: str) -> float:
    return 1e-7 if set(types) == {"f32"} else HALF


def product(a: Src, b: Src, **more: object) -> Call:
    return call("mul_mat", a, b, nmse=tolerance(a.type, b.type), **more)


MUL_MAT = [
    *(product(Src(t, (256, m)), Src(ne=(256, n))) for t in PLAIN + QUANTIZED for m, n in ((16, 1), (7, 9))),
    *(
        product(Src(t, (256, 5, *a)), Src(ne=(256, 3, *b)))
        for t in ("f32", "f16", "q8_0")
        for a, b in (((2,), (2,)), ((2,), (6,)), ((1,), (6,)), ((2, 1), (4, 3)), ((2, 2), (4, 4)), ((1, 3), (1, 3)))
    ),
    *(product(permuted(t, (64, 3, 16, 2), (0, 2, 1, 3)), Src(ne=(64, 4, 3, 2))) for t in ("f32", "f16", "q8_0")),
    *(product(Src(t, (64, 5, 3)), permuted("f32", (64, 3, 4), (0, 2, 1, 3))) for t in ("f32", "f16", "q8_0")),
    product(cut("f32", (8, 3, 2), (16, 6, 4), 64), cut("f32", (8, 5, 2), (12, 6, 4), 48)),
    product(cut("q4_0", (64, 3), (128, 6), 36), Src(ne=(64, 5))),
    product(Src("f16", (32, 5)), Src("f16", (32, 3))),
    product(Src("bf16", (32, 5)), Src("bf16", (32, 3))),
    product(Src("q8_0", (32, 5)), Src("q8_0", (32, 3))),
    product(Src(ne=(1, 5)), Src(ne=(1, 3))),
    product(Src(ne=(33, 5)), Src(ne=(33, 3))),
    product(Src("f16", (33, 5)), Src(ne=(33, 3))),
    product(Src(ne=(32, 1)), Src(ne=(32, 1))),
    product(Src(ne=(32, 0)), Src(ne=(32, 4))),
    product(Src(ne=(16, 3), data="special"), Src(ne=(16, 3), data="special")),
    product(Src("f16", (32, 4)), Src(ne=(32, 3), data="wide")),
    product(Src("q8_0", (512, 4)), Src(ne=(512, 3), data="wide")),
    product(Src("q4_K", (512, 4)), Src(ne=(512, 3), data=np.zeros(3 * 512))),
    *(call("mul_mat", Src(t, (2048, 4)), Src(ne=(2048, 200)), nmse=SUMS) for t in ("q8_0", "q4_1", "q4_K")),
    call("mul_mat", Src(ne=(32, 5)), Src(ne=(32, 3)), prec=10, after=("ggml_mul_mat_set_prec", 10)),
    *(
        call("mul_mat", Src(ne=(n, n)), Src(ne=(n, *more)), hint=1, after=("ggml_mul_mat_set_hint", 1))
        for n, *more in ((64, 3), (8, 3, 2))
    ),
]


def experts(type: str, cols: int, rows: int, n: int, used: int, slots: int, tokens: int, **more: object) -> Call:
    rng = np.random.default_rng(3)
    chosen = np.stack([rng.permutation(n)[:used] for _ in range(tokens)]) if tokens else np.zeros((0, used))
    return call(
        "mul_mat_id",
        Src(type, (cols, rows, n)),
        Src(ne=(cols, slots, tokens)),
        Src("i32", (used, tokens), data=chosen),
        nmse=tolerance(type),
        **more,
    )


MUL_MAT_ID = [
    *(experts(t, 256, 7, 4, 2, 1, 5) for t in PLAIN + QUANTIZED),
    experts("f32", 16, 7, 8, 2, 2, 5),
    experts("f32", 16, 7, 8, 4, 2, 5),
    experts("f32", 16, 7, 8, 1, 1, 1),
    experts("q8_0", 64, 7, 3, 3, 3, 4),
    experts("f16", 16, 7, 2, 2, 1, 9),
    call(
        "mul_mat_id",
        Src(ne=(16, 7, 8)),
        Src(ne=(16, 1, 3)),
        cut("i32", (2, 3), (8, 3), data=[*range(8), *range(7, -1, -1), *range(8)]),
    ),
    call("mul_mat_id", permuted("f32", (16, 8, 7), (0, 2, 1, 3)), Src(ne=(16, 1, 3)), Src("i32", (2, 3), data=[0, 1])),
    call(
        "mul_mat_id", Src(ne=(16, 7, 8)), permuted("f32", (16, 3, 2), (0, 2, 1, 3)), Src("i32", (2, 3), data=[5, 7, 1])
    ),
]
OUT_PROD = [
    *(call("out_prod", Src(t, (32, 5)), Src(ne=(7, 5)), nmse=tolerance(t)) for t in ("f32", "f16", "q4_0", "q8_0")),
    call("out_prod", Src(ne=(8, 5, 2)), Src(ne=(7, 5, 4))),
    call("out_prod", Src(ne=(8, 5, 2, 1)), Src(ne=(7, 5, 4, 3))),
    call("out_prod", Src(ne=(8, 5)), permuted("f32", (5, 7), (1, 0, 2, 3))),
    call("out_prod", cut("f32", (8, 5), (16, 6), 32), Src(ne=(7, 5))),
    call("out_prod", Src("f16", (8, 5, 2)), Src(ne=(7, 5, 2)), nmse=HALF),
    call("out_prod", Src(ne=(8, 0)), Src(ne=(7, 0))),
]


IDS = Src("i32", (2, 3), data=[0, 1])


REFUSED = [
    call("mul_mat", Src(ne=(8, 5)), Src(ne=(9, 3))),
    call("mul_mat", Src(ne=(8, 5, 2)), Src(ne=(8, 3, 3))),
    call("mul_mat", Src(ne=(8, 5, 1, 2)), Src(ne=(8, 3, 1, 3))),
    call("mul_mat", permuted("f32", (5, 8), (1, 0, 2, 3)), Src(ne=(8, 3))),
    call("mul_mat_id", permuted("f32", (7, 16, 8), (1, 0, 2, 3)), Src(ne=(16, 1, 3)), IDS),
    call("mul_mat_id", Src(ne=(16, 7, 8)), Src(ne=(16, 1, 3)), Src("i64", (2, 3), data="ints")),
    call("mul_mat_id", Src(ne=(16, 7, 8, 2)), Src(ne=(16, 1, 3)), IDS),
    call("mul_mat_id", Src(ne=(16, 7, 8)), Src(ne=(16, 1, 3, 2)), IDS),
    call("mul_mat_id", Src(ne=(16, 7, 8)), Src(ne=(16, 1, 3)), Src("i32", (2, 3, 2), data="ints")),
    call("mul_mat_id", Src(ne=(16, 7, 8)), Src(ne=(16, 1, 4)), IDS),
    call("mul_mat_id", Src(ne=(17, 7, 8)), Src(ne=(16, 1, 3)), IDS),
    call("mul_mat_id", Src(ne=(16, 7, 8)), Src(ne=(16, 3, 3)), IDS),
    call("out_prod", Src(ne=(8, 5)), Src(ne=(7, 6))),
    call("out_prod", Src(ne=(8, 5, 2)), Src(ne=(7, 5, 3))),
    call("out_prod", permuted("f32", (5, 8), (1, 0, 2, 3)), Src(ne=(7, 5))),
]
COMPUTED = MUL_MAT + MUL_MAT_ID + OUT_PROD
