"""Copies, products, rows, rope, attention, convolutions: what the library's CPU refuses, over all pairs of types."""

from __future__ import annotations

import numpy as np

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.ops.rope import MROPE, NEOX, NORMAL, VISION
from tests.conformance.ops.attention import K, Q, V, attention
from tests.conformance.ops.conv import CWHN, IMAGE
from tests.conformance.ops.rope import HEADS, rope
from tests.conformance.ops_case import (
    Src,
    call,
    cut,
    permuted,
)

PLAIN = ("f32", "f16", "bf16", "i8", "i16", "i32", "i64", "f64")
KINDS = (*PLAIN, "q8_0", "q4_K", "q8_1", "q8_K", "iq4_nl", "tq2_0")
MANY = (*PLAIN, "q8_0", "q4_0")
INTERMEDIATE = ("q8_1", "q8_K")
IDS = Src("i32", (2, 3), data=[0, 1, 2, 2, 1, 0])
ROWS = Src("i32", (3,), data=[3, 0, 1])


def block(type: str, *ne: int) -> Src:
    """Small whole numbers, so that every type can hold them; zeros in types that are only ever intermediate."""
    if type in INTERMEDIATE:
        return Src(type, ne, data=bytes(TYPES[type].row_size(int(np.prod(ne)))))
    return Src(type, ne, data="ints")


def columns(type: str, ne0: int, *ne: int) -> Src:
    """A transposed matrix: its rows have gaps."""
    return permuted(type, (ne[0], ne0, *ne[1:]), (1, 0, 2, 3), data="ints")


def gaps(type: str, ne0: int, *ne: int) -> Src:
    return cut(type, (ne0, *ne), (2 * ne0, *ne), data="ints")


PAIRS = [(s, d) for s in KINDS for d in KINDS if (s, d) not in (("f16", "i32"), ("bf16", "i32"))]
"""Halves to i32 are left out: they need a work buffer, which ggml makes only if another node of the graph needs one."""

COPIES = [
    *(call("cpy", block(s, 256, 4), block(d, 256, 4)) for s, d in PAIRS),
    *(call("cast", block(s, 256, 4), TYPES[d]) for s, d in PAIRS),
    *(call("cpy", a, b) for s in MANY[:6] for d in MANY for a in (columns(s, 32, 4),) for b in (block(d, 32, 4),)),
    *(call("cpy", block(s, 32, 4), b) for s in MANY for d in MANY for b in (gaps(d, 32, 4),)),
    *(call("cpy", block("q8_0", 32, 4), b) for b in (columns("f32", 32, 4), gaps("f32", 16, 8))),
    *(call(fn, block(s, 256, 4)) for fn in ("cont", "dup") for s in KINDS),
]
PRODUCTS = [
    *(call("mul_mat", block(a, 256, 3), block(b, 256, 2), nmse=5e-4) for a in KINDS for b in KINDS),
    *(
        call("mul_mat", a, b, nmse=5e-4)
        for t in ("f32", "f16", "q8_0")
        for a, b in (
            (block(t, 32, 3), columns("f32", 32, 2)),
            (gaps(t, 32, 3), gaps("f32", 32, 2)),
            (block(t, 32, 3), block("f16", 32, 2)),
        )
    ),
    *(
        call(
            "mul_mat",
            block(t, n, n),
            block(t, n, 3),
            hint=1,
            after=("ggml_mul_mat_set_hint", 1),
        )
        for t in ("f32", "f16")
        for n in (12, 16)
    ),
    *(
        call("mul_mat_id", block(a, 256, 3, 3), block(b, 256, 1, 3), IDS, nmse=5e-4)
        for a in KINDS
        for b in ("f32", "f16", "q8_0", "q8_K")
    ),
    call("mul_mat_id", block("f32", 16, 7, 8), columns("f32", 16, 2, 3), IDS),
    *(call("out_prod", block(a, 256, 3), block(b, 5, 3), nmse=5e-4) for a in KINDS for b in ("f32", "f16", "bf16")),
    *(call("out_prod", block(t, 32, 3, 1), block("f32", 5, 3, 2)) for t in ("f32", "f16", "q8_0")),
    *(call("out_prod", block(t, 32, 3, 1, 1), block("f32", 5, 3, 1, 2)) for t in ("f32", "f16", "q8_0")),
    *(call("out_prod", permuted(t, (3, 32, 1, 2), (2, 1, 0, 3)), Src(ne=(5, 32, 3, 2))) for t in ("f32", "f16")),
]
TABLES = [
    *(call("get_rows", block(t, 256, 4), ROWS) for t in KINDS),
    *(call("set_rows", block(d, 256, 5), block(s, 256, 3), ROWS) for d in KINDS for s in ("f32", "f16")),
    *(call("get_rows_back", block(t, 256, 3), ROWS, Src(ne=(256, 5))) for t in KINDS if t != "q8_K"),
    *(call("get_rows_back", columns(t, 8, 3), ROWS, Src(ne=(8, 5))) for t in ("f32", "f16")),
]
ROPES = [
    *(rope(Src(t, (64, 4, 5), data="ints"), 64, NEOX, back=back) for t in MANY for back in (False, True)),
    rope(HEADS, 130, NEOX),
    rope(HEADS, 63, NEOX),
    rope(HEADS, 64, 4),
    rope(HEADS, 64, MROPE, sections=(0, 0, 0, 9)),
    rope(HEADS, 64, MROPE),
    rope(HEADS, 128, MROPE, sections=(100, 20, 20, 0)),
    rope(HEADS, 128, MROPE + 2, sections=(10, 20, 20, 0)),
    rope(HEADS, 128, VISION, sections=(20, 20)),
    *(rope(permuted("f32", (4, 64, 5), (1, 0, 2, 3)), 64, mode, inplace=i) for mode in (NORMAL, NEOX) for i in (0, 1)),
]
ATTENTIONS = [
    *(attention(block("f32", 256, 3, 8), block(k, 256, 40, 2), V) for k in KINDS),
    *(attention(Q, K, block(v, 256, 40, 2)) for v in KINDS),
    *(attention(block(q, 64, 3, 8), K, V) for q in ("f16", "bf16")),
    *(
        attention(block("f32", 64, 70, 8), block(t, 64, 40, 2), block(t, 64, 40, 2))
        for t in ("f32", "f16", "bf16", "q8_0")
    ),
    attention(permuted("f32", (3, 64, 8), (1, 0, 2, 3)), K, V),
    attention(Q, permuted("f16", (40, 64, 2), (1, 0, 2, 3)), V),
    attention(Q, K, permuted("f16", (40, 64, 2), (1, 0, 2, 3))),
    attention(Q, K, V, prec=5),
]
KERNEL = Src("f16", (3, 2, 3, 5))
CONVOLUTIONS = [
    *(
        call("im2col", KERNEL, block(b, 32, 17, 3), 1, 1, 0, 0, 1, 1, True, TYPES[to])
        for b in MANY
        for to in ("f32", "f16", "bf16", "i32")
    ),
    *(call("im2col", KERNEL, columns(b, 20, 17, 3), 1, 1, 0, 0, 1, 1, True, TYPES[b]) for b in ("f32", "f16")),
    *(
        call("im2col_3d", Src("f16", (3, 2, 2, 6)), b, 3, 1, 1, 1, 0, 0, 0, 1, 1, 1, TYPES[to])
        for b in (block("f32", 9, 8, 7, 6), block("f16", 9, 8, 7, 6), columns("f32", 9, 8, 7, 6))
        for to in ("f32", "f16", "bf16")
    ),
    *(call("conv_2d_direct", block(a, 32, 2, 3, 5), Src(ne=(40, 17, 3)), 1, 1, 0, 0, 1, 1, nmse=5e-4) for a in MANY),
    call("conv_2d_direct", KERNEL, block("f16", 20, 17, 3), 1, 1, 0, 0, 1, 1),
    call("conv_2d_direct", permuted("f32", (2, 3, 3, 5), (1, 0, 2, 3)), IMAGE, 1, 1, 0, 0, 1, 1),
    *(call("conv_2d_dw_direct", block(a, 32, 2, 1, 3), Src(ne=(40, 17, 3)), 1, 1, 0, 0, 1, 1, nmse=5e-4) for a in MANY),
    call("conv_2d_dw_direct", Src(ne=(3, 2, 1, 3)), permuted("f32", (17, 20, 3), (1, 0, 2, 3)), 1, 1, 0, 0, 1, 1),
    call("conv_2d_dw_direct", Src(ne=(3, 3, 1, 6)), CWHN, 1, 1, 0, 0, 1, 1),
    *(
        call("conv_transpose_1d", a, b, 1, 0, 1, nmse=5e-4)
        for a in (*(block(t, 32, 4, 5) for t in MANY), columns("f32", 3, 4, 5), columns("f16", 3, 4, 5))
        for b in (block("f32", 9, 5), block("f16", 9, 5), columns("f32", 9, 5))
    ),
    *(
        call("conv_transpose_2d_p0", a, b, 1, nmse=5e-4)
        for a in (*(block(t, 32, 2, 4, 5) for t in MANY), columns("f32", 3, 2, 4, 5), columns("f16", 3, 2, 4, 5))
        for b in (block("f32", 9, 7, 5), block("f16", 9, 7, 5), columns("f32", 9, 7, 5))
    ),
    *(
        call("conv_3d_direct", a, b, 1, 1, 1, 0, 0, 0, 1, 1, 1, 3, 2, 2, nmse=5e-4)
        for a in (*(block(t, 32, 2, 2, 6) for t in MANY), columns("f32", 3, 2, 2, 6))
        for b in (block("f32", 40, 8, 7, 6), block("f16", 40, 8, 7, 6))
    ),
    *(
        call(
            "im2col_back",
            block(t, 18, 10, 2),
            block(k, 32, 2, 3),
            (41, 11, 3, 1),
            *(1, 1, 0, 0, 1, 1, True),
        )
        for t in ("f16", "bf16")
        for k in MANY
    ),
    *(
        call(
            "im2col_back",
            block("f32", 192, 10, 10),
            block(k, 32, 2, 3),
            (41, 11, 3, 1),
            *(1, 1, 0, 0, 1, 1, True),
        )
        for k in MANY
    ),
    *(
        call("pool_2d_back", block(t, 31, 7), block(t, 32, 8), op, 2, 2, 1, 1, 0.0, 0.0)
        for t in ("f32", "f16")
        for op in (0, 2)
    ),
    *(call("pool_1d", block(t, 32, 3), op, 2, 2, 0) for t in ("f32", "f16") for op in (0, 1, 2)),
    *(call("pool_2d", block(t, 32, 8), op, 2, 2, 1, 1, 0.0, 0.0) for t in ("f32", "f16") for op in (0, 1, 2)),
]
BACKWARD = (1 << 64) - 32

# R1: parts that end beyond the result, or would if size_t did not wrap.
PARTS = [
    call(fn, Src(ne=(8, 6)), Src(ne=(4, 3)), nb1, 192, 192, offset)
    for fn in ("acc", "set")
    for nb1, offset in ((32, 180), (32, 64), (BACKWARD, 32), (BACKWARD, 64))
]

CASES = PARTS + COPIES + PRODUCTS + TABLES + ROPES + ATTENTIONS + CONVOLUTIONS
