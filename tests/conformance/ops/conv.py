"""im2col, the direct and the transposed convolutions, and pooling."""

from __future__ import annotations

from ggmltool.ggml.dtypes import TYPES
from tests.conformance.ops_case import Src, call, cut, permuted

F16, F32 = TYPES["f16"], TYPES["f32"]
IMAGE = Src(ne=(20, 17, 3, 2))
CWHN = permuted("f32", (6, 12, 10, 2), (2, 0, 1, 3))
CWHN_KERNEL = permuted("f32", (1, 6, 3, 3), (2, 3, 0, 1))

IM2COL = [
    call("im2col", Src(k, (3, 2, 3, 5)), IMAGE, *spd, True, to)
    for k, to in (("f32", F32), ("f16", F16), ("f16", F32))
    for spd in ((1, 1, 0, 0, 1, 1), (2, 1, 1, 2, 1, 1), (1, 3, 4, 0, 2, 3), (3, 3, 1, 1, 1, 1))
] + [
    call("im2col", Src("f16", (3, 2, 3, 5)), Src("f16", (20, 17, 3, 2)), 1, 1, 1, 1, 1, 1, True, F16),
    call("im2col", Src("f16", (3, 2, 3, 5)), cut("f32", (10, 8, 3), (10, 17, 4), 40), 1, 1, 1, 1, 1, 1, True, F16),
    call("im2col", Src("f16", (3, 2, 3, 5)), cut("f32", (10, 8, 3), (20, 17, 4), 40), 1, 1, 1, 1, 1, 1, True, F32),
    *(
        call("im2col", Src(k, (3, 4, 5)), Src(ne=(20, 4, 2)), s, 0, p, 0, d, 0, False, to)
        for k, to in (("f32", F32), ("f16", F16))
        for s, p, d in ((1, 0, 1), (2, 1, 1), (1, 3, 2))
    ),
    call("im2col", Src("f16", (3, 4, 5)), permuted("f32", (20, 2, 4), (0, 2, 1, 3)), 1, 0, 1, 0, 1, 0, False, F16),
    *(
        call("im2col_3d", Src("f16", (3, 2, 2, 6)), Src(ne=(9, 8, 7, 6)), 3, *more, to)
        for to in (F32, F16)
        for more in ((1, 1, 1, 0, 0, 0, 1, 1, 1), (2, 1, 3, 1, 1, 1, 1, 2, 1))
    ),
]
CONV = [
    call("conv_2d", Src(k, (3, 2, 3, 5)), IMAGE, *spd, real="conv_2d_direct", nmse=nmse)
    for k, nmse in (("f32", 1e-7), ("f16", 5e-4))
    for spd in ((1, 1, 0, 0, 1, 1), (2, 1, 1, 2, 1, 1), (1, 3, 4, 0, 2, 3))
] + [
    call("conv_2d_direct", Src(ne=(3, 3, 3, 5)), permuted("f32", (3, 12, 10, 2), (2, 0, 1, 3)), 1, 1, 1, 1, 1, 1),
    call("conv_2d_direct", Src(ne=(1, 1, 8, 5)), Src(ne=(6, 5, 8)), 1, 1, 0, 0, 1, 1),
]
DEPTHWISE = [
    call("conv_2d_dw", Src(k, (3, 2, 1, 6)), Src(ne=(12, 10, 6, 2)), *spd, real="conv_2d_dw_direct")
    for k in ("f32", "f16")
    for spd in ((1, 1, 0, 0, 1, 1), (2, 1, 1, 2, 1, 1), (1, 3, 4, 0, 2, 3))
] + [
    call("conv_2d_dw_direct", CWHN_KERNEL, CWHN, 1, 1, 1, 1, 1, 1),
    call("conv_2d_dw_direct", CWHN_KERNEL, CWHN, 2, 1, 0, 1, 1, 2),
    call("conv_2d_dw_direct", permuted("f16", (1, 6, 3, 3), (2, 3, 0, 1)), CWHN, 1, 1, 1, 1, 1, 1),
]
TRANSPOSED = [
    *(
        call("conv_transpose_1d", Src(k, (3, 4, 5)), Src(ne=(9, 5)), s, 0, 1, nmse=nmse)
        for k, nmse in (("f32", 1e-7), ("f16", 5e-4))
        for s in (1, 2, 4)
    ),
    *(
        call("conv_transpose_2d", Src(k, (3, 2, 4, 5)), Src(ne=(9, 7, 5)), s, real="conv_transpose_2d_p0", nmse=nmse)
        for k, nmse in (("f32", 1e-7), ("f16", 5e-4))
        for s in (1, 2, 4)
    ),
    call("conv_transpose_2d_p0", Src(ne=(3, 2, 4, 5)), Src(ne=(9, 7, 5, 2)), 2),
]
POOL = [
    *(
        call("pool_1d", a, op, k, s, p)
        for op in (0, 1)
        for a in (
            Src(ne=(20, 3, 2)),
            Src("f16", (20, 3, 2)),
            cut("f32", (20, 3), (32, 5), 16),
            Src(ne=(20,), data="wide"),
        )
        for k, s, p in ((3, 1, 0), (2, 2, 0), (4, 3, 2), (1, 1, 3))
    ),
    *(
        call("pool_2d", a, op, k0, k1, s0, s1, float(p0), float(p1))
        for op in (0, 1)
        for a in (IMAGE, Src("f16", (20, 17, 3, 2)), cut("f32", (20, 9, 3), (20, 17, 4), 80))
        for k0, k1, s0, s1, p0, p1 in (
            (3, 3, 1, 1, 0, 0),
            (2, 3, 2, 1, 1, 1),
            (3, 2, 2, 3, 0.5, 1.9),
            (4, 4, 4, 4, 2, 0),
        )
    ),
    *(call("pool_2d", Src(ne=(16, 4), data="special"), op, 2, 2, 1, 1, 1.0, 1.0) for op in (0, 1)),
    *(call("pool_1d", Src(ne=(16, 4), data="special"), op, 2, 1, 1) for op in (0, 1)),
]
SPD3 = ((1, 1, 1, 0, 0, 0, 1, 1, 1), (2, 1, 3, 1, 1, 1, 1, 2, 1))
FURTHER = [
    *(
        call(fn, Src(k, (3, 2, 2, 6)), b, *more, real="conv_3d_direct", nmse=1e-6)
        for fn in ("conv_3d", "conv_3d_direct")
        for k in ("f32", "f16")
        for more in ((*spd, 3, 2, 2) for spd in SPD3)
        for b in (Src(ne=(9, 8, 7, 6)), permuted("f32", (8, 9, 7, 6), (1, 0, 2, 3)))
    ),
    call("conv_3d_direct", Src(ne=(1, 1, 1, 4)), Src(ne=(5, 4, 3, 2)), *SPD3[0], 2, 1, 2),
    *(
        call("col2im_1d", Src(t, (6, 5)), s0, oc, p0, nmse=1e-6)
        for t in ("f32", "f16", "bf16")
        for s0, oc, p0 in ((1, 1, 0), (2, 2, 1), (4, 3, 0), (3, 6, 2))
    ),
    *(
        call("im2col_back", Src(ne=(18, *out, 2)), Src(k, (3, 2, 3, 5)), ne=(20, 17, 3, 2), **spd, is_2D=True)
        for k in ("f32", "f16")
        for out, spd in (
            ((18, 16), {"s0": 1, "s1": 1, "p0": 0, "p1": 0, "d0": 1, "d1": 1}),
            ((10, 20), {"s0": 2, "s1": 1, "p0": 1, "p1": 2, "d0": 1, "d1": 1}),
            ((24, 5), {"s0": 1, "s1": 3, "p0": 4, "p1": 0, "d0": 2, "d1": 3}),
        )
    ),
    call(
        "im2col_back",
        Src(ne=(12, 10, 2)),
        Src(ne=(3, 4, 5)),
        ne=(20, 4, 2, 1),
        s0=2,
        s1=0,
        p0=1,
        p1=0,
        d0=1,
        d1=0,
        is_2D=False,
    ),
    *(
        call("pool_2d_back", Src(ne=out), Src(ne=(20, 17, 3, 2), data=data), op, *more)
        for op in (0, 1)
        for data in ("normal", "ints", "special")
        for out, more in (
            ((18, 15, 3, 2), (3, 3, 1, 1, 0.0, 0.0)),
            ((11, 9, 3, 2), (2, 3, 2, 2, 1.0, 1.0)),
            ((6, 6, 3, 2), (4, 4, 4, 4, 2.0, 2.5)),
        )
    ),
]
COMPUTED = FURTHER + IM2COL + CONV + DEPTHWISE + TRANSPOSED + POOL


REFUSED = [
    call("im2col", Src("f16", (3, 2, 4, 5)), IMAGE, 1, 1, 0, 0, 1, 1, True, F16),
    call("im2col", Src("f16", (3, 2, 3, 5)), Src(ne=(20, 1, 3)), 1, 1, 0, 0, 1, 1, True, F16),
    call("im2col", Src("f16", (3, 2, 3, 5)), Src(ne=(2, 20, 3)), 1, 1, 0, 0, 1, 1, True, F16),
    call("im2col", Src("f16", (3, 3, 5)), Src(ne=(20, 4)), 1, 0, 0, 0, 1, 0, False, F16),
    call("im2col", Src("f16", (3, 4, 5)), Src(ne=(20, 4, 1, 2)), 1, 0, 0, 0, 1, 0, False, F16),
    call("im2col", Src("f16", (3, 4, 5)), Src(ne=(2, 4)), 1, 0, 0, 0, 1, 0, False, F16),
    call("im2col_3d", Src("f16", (3, 2, 9, 6)), Src(ne=(9, 8, 7, 6)), 3, 1, 1, 1, 0, 0, 0, 1, 1, 1, F16),
    call("im2col_3d", Src("f16", (3, 9, 2, 6)), Src(ne=(9, 8, 7, 6)), 3, 1, 1, 1, 0, 0, 0, 1, 1, 1, F16),
    call("im2col_3d", Src("f16", (12, 2, 2, 6)), Src(ne=(9, 8, 7, 6)), 3, 1, 1, 1, 0, 0, 0, 1, 1, 1, F16),
    call("conv_2d_direct", Src(ne=(3, 2, 4, 5)), IMAGE, 1, 1, 0, 0, 1, 1),
    call("conv_2d_dw_direct", Src(ne=(3, 2, 2, 3)), IMAGE, 1, 1, 0, 0, 1, 1),
    call("conv_2d_dw_direct", Src(ne=(3, 2, 1, 4)), IMAGE, 1, 1, 0, 0, 1, 1),
    call("conv_transpose_1d", Src(ne=(3, 4, 5)), Src(ne=(9, 5, 2)), 1, 0, 1),
    call("conv_transpose_1d", Src(ne=(3, 4, 6)), Src(ne=(9, 5)), 1, 0, 1),
    call("conv_transpose_1d", Src(ne=(3, 4, 5, 2)), Src(ne=(9, 5)), 1, 0, 1),
    call("conv_transpose_1d", Src(ne=(3, 4, 5)), Src(ne=(9, 5)), 1, 1, 1),
    call("conv_transpose_1d", Src(ne=(3, 4, 5)), Src(ne=(9, 5)), 1, 0, 2),
    call("conv_transpose_2d_p0", Src(ne=(3, 2, 4, 6)), Src(ne=(9, 7, 5)), 1),
    call("conv_3d_direct", Src(ne=(3, 2, 2, 5)), Src(ne=(9, 8, 7, 6)), *SPD3[0], 3, 2, 2),
    call("conv_3d_direct", Src(ne=(3, 2, 2, 6)), Src(ne=(9, 8, 7, 5)), *SPD3[0], 3, 2, 2),
    call("col2im_1d", Src(ne=(6, 5, 2)), 1, 2, 0),
    call("col2im_1d", cut("f32", (6, 5), (8, 5)), 1, 2, 0),
    call("col2im_1d", Src("i32", (6, 5)), 1, 2, 0),
    call("col2im_1d", Src(ne=(6, 5)), 0, 2, 0),
    call("col2im_1d", Src(ne=(6, 5)), 1, 0, 0),
    call("col2im_1d", Src(ne=(6, 5)), 1, 2, -1),
    call("col2im_1d", Src(ne=(6, 5)), 1, 4, 0),
    call("col2im_1d", Src(ne=(6, 5)), 1, 2, 9),
    call("pool_1d", Src(ne=(2, 3)), 0, 4, 1, 0),
    call("pool_2d", Src(ne=(2, 8)), 0, 4, 4, 1, 1, 0.0, 0.0),
    call("pool_2d", Src(ne=(8, 2)), 0, 4, 4, 1, 1, 0.0, 0.0),
]
