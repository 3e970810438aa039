"""add and its family, mul, scale, clamp, fill …."""

from __future__ import annotations

from ggmltool.ggml.dtypes import TYPES
from tests.conformance.ops_case import Call, Src, call, cut, permuted

A = Src(ne=(8, 6, 4, 2))
F32, F16, BF16 = "f32", "f16", "bf16"

BINARY = [
    call(fn, a, b, inplace=inplace)
    for fn in ("add", "sub", "mul", "div")
    for inplace in (False, True)
    for a, b in (
        (Src(ne=(8, 6)), Src(ne=(8, 6))),
        (A, Src(ne=(8,))),
        (A, Src(ne=(1, 6))),
        (A, Src(ne=(4, 2, 2, 1))),
        (A, Src(ne=(1, 1, 1, 2))),
        (A, permuted(F32, (6, 8, 4, 2), (1, 0, 2, 3))),
        (permuted(F32, (8, 4, 6, 2), (0, 2, 1, 3)), Src(ne=(8, 6, 4, 2))),
        (cut(F32, (8, 3, 2), (16, 6, 4), 64), Src(ne=(8, 3))),
        (Src(F16, (8, 6)), Src(F16, (8, 1))),
        (Src(F16, (8, 6)), Src(F32, (8, 6))),
        (Src(BF16, (8, 6)), Src(BF16, (8, 6))),
        (Src(BF16, (8, 6)), Src(F32, (8, 6))),
        (Src(ne=(16, 4), data="special"), Src(ne=(16, 1), data="special")),
        (Src(ne=(0, 4)), Src(ne=(0, 1))),
    )
]
FUNCTIONS = [
    call(fn, a, inplace=inplace)
    for fn in ("sqr", "sqrt", "log", "sin", "cos")
    for inplace in (False, True)
    for a in (
        A,
        Src(ne=(100, 3), data="wide"),
        Src(ne=(16, 2), data="special"),
        Src(F16, (8, 6), data="positive"),
        Src(BF16, (8, 6), data="positive"),
        permuted(F32, (8, 4, 6, 2), (0, 2, 1, 3)),
    )
]
OTHERS = [
    call("add_cast", Src(F16, (32, 4)), Src(F32, (32, 4)), TYPES["f32"]),
    call("add_cast", Src("q4_0", (64, 4)), Src(F32, (64, 4)), TYPES["f32"]),
    call("add", Src("q8_0", (64, 4)), Src(F32, (64, 4))),
    call("add", Src("q4_0", (64, 4)), Src(F32, (64, 4)), inplace=True),
    call("add_id", Src(ne=(8, 3, 5)), Src(ne=(8, 5)), Src("i32", (3, 5), data="ints")),
    call("add_id", Src(ne=(8, 3, 5, 2)), Src(ne=(8, 5)), cut("i32", (3, 5), (6, 5), data="ints")),
    call("add1", Src(ne=(8, 6)), Src(ne=(1,))),
    call("add1", Src(ne=(8, 6)), Src(ne=(1,)), inplace=True),
    call("add1", Src(F16, (8, 6)), Src(F16, (1,))),
    call("add1", Src(F16, (8, 6)), Src(F32, (1,))),
    call("add1", Src(BF16, (8, 6)), Src(BF16, (1,))),
    call("add1", Src("q8_0", (64, 1)), Src(F32, (1,))),
    call("acc", Src(ne=(8, 6, 2)), Src(ne=(4, 3, 2)), 32, 192, 384, 16),
    call("acc", Src(ne=(8, 6, 2)), Src(ne=(4, 3, 2)), 32, 192, 384, 16, inplace=True),
    call("set", Src(ne=(8, 6, 2)), Src(ne=(4, 3, 2)), 32, 192, 384, 16),
    call("set", Src(ne=(8, 6, 2)), Src(ne=(4, 3, 2)), 32, 192, 384, 16, inplace=True),
    call("set", Src("i32", (8, 6), data="ints"), Src("i32", (4, 3), data="ints"), 32, 192, 192, 8),
    # R1: strides that go backwards, as size_t's do, and stay inside.
    call("acc", Src(ne=(8, 6)), Src(ne=(4, 3)), (1 << 64) - 32, 192, 192, 128),
    call("set", Src(ne=(8, 6)), Src(ne=(4, 3)), (1 << 64) - 32, 192, 192, 128),
    call("acc", Src(ne=(8, 6, 2)), Src(ne=(4, 3, 2)), 32, (1 << 64) - 192, 384, 192),
    call("set_1d", Src(ne=(8, 6)), Src(ne=(5,)), 12),
    call("set_1d", Src(ne=(8, 6)), Src(ne=(5,)), 12, inplace=True),
    call("set_2d", Src(ne=(8, 6)), Src(ne=(4, 3)), 32, 64),
    call("set_2d", Src(ne=(8, 6)), Src(ne=(4, 3)), 32, 64, inplace=True),
    call("scale", A, 0.1),
    call("scale", A, -3.0, inplace=True),
    call("scale", Src(ne=(16,), data="special"), 0.0),
    call("scale_bias", A, 0.5, 2.0),
    call("scale_bias", A, 0.5, 2.0, inplace=True),
    call("clamp", A, -0.5, 0.5),
    call("clamp", Src(ne=(16, 2), data="special"), -2.0, 2.0),
    call("clamp", Src(F16, (16, 2)), -0.3, 0.2),
    call("clamp", Src(ne=(16,)), 0.5, -0.5),
    call("leaky_relu", A, 0.1),
    call("leaky_relu", A, 0.1, inplace=True),
    call("leaky_relu", Src(ne=(16,), data="special"), 0.1),
    call("leaky_relu", Src(F16, (16, 3)), 0.1),
    call("fill", A, 2.5),
    call("fill", Src(F16, (8, 6)), -7.3, inplace=True),
    call("silu_back", A, A),
    call("silu_back", Src(F16, (8, 6)), Src(F16, (8, 6))),
]
ALL = BINARY + FUNCTIONS + OTHERS

REFUSED = [
    *(call(fn, Src(ne=(8, 6)), Src(ne=(3,)), inplace=i) for fn in ("add", "sub", "mul", "div") for i in (False, True)),
    call("mul", Src(ne=(8, 6)), Src(ne=(0,))),
    call("add_cast", Src(F16, (8, 6)), Src(ne=(4, 6)), TYPES["f32"]),
    call("add_cast", Src(F32, (8, 6)), Src(ne=(8, 6)), TYPES["f16"]),
    call("add_id", Src(ne=(8, 3, 5)), Src(ne=(4, 5)), Src("i32", (3, 5))),
    call("add_id", Src(ne=(8, 3, 5)), Src(ne=(8, 5)), Src("i32", (4, 5))),
    call("add_id", Src(ne=(8, 3, 5)), Src(ne=(8, 5)), Src("i32", (3, 4))),
    call("add_id", Src(ne=(8, 3, 5)), Src(ne=(8, 5)), Src("f32", (3, 5))),
    call("add1", Src(ne=(8, 3)), Src(ne=(2,))),
    call("add1", permuted(F32, (8, 3), (1, 0, 2, 3)), Src(ne=(1,))),
    call("acc", Src(ne=(8, 3)), Src(ne=(8, 4)), 32, 32, 32, 0),
    call("acc", permuted(F32, (8, 3), (1, 0, 2, 3)), Src(ne=(8,)), 32, 32, 32, 0),
    call("acc", Src(F16, (8, 3)), Src(ne=(8,)), 32, 32, 32, 0),
    call("acc", Src(ne=(8, 3)), Src(F16, (8,)), 32, 32, 32, 0),
    call("set", Src(ne=(8, 3)), Src(ne=(8, 4)), 32, 32, 32, 0),
    call("set", Src(ne=(8, 3)), Src(ne=(8, 1)), 32, 32, 32, 1 << 30),
    call("scale", permuted(F32, (8, 3), (1, 0, 2, 3)), 2.0),
    call("scale", permuted(F32, (8, 3, 2), (0, 2, 1, 3)), 2.0, inplace=True),
    call("fill", Src("i32", (8, 3)), 1.0),
    call("fill", permuted(F32, (8, 3), (1, 0, 2, 3)), 1.0),
]


def computable(case: Call) -> bool:
    """Where the library's CPU backend computes too."""
    a = case.sources[0]
    assert a is not None
    return not (case.fn == "scale" and a.is_view) and 0 not in a.ne


COMPUTED = [c for c in ALL if computable(c)]
SHAPED = [
    *(c for c in ALL if not computable(c)),
    call("set", Src(ne=(8, 3)), Src(ne=(8, 1)), 2**32 + 32, 2**31, 2**33 - 1, 16),
    call("add", Src(name="n" * 60), Src(), inplace=True),
    call("mul", cut(F32, (8, 3, 2), (16, 6, 4), 64), Src(ne=(8,)), inplace=True),
]
