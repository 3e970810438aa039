"""Softmax, causal masks and the cross entropy loss."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Call, Src, call, cut, permuted

A = Src(ne=(33, 6, 8, 2))
MASKS = [
    Src(type, ne, data="mask")
    for type in ("f32", "f16")
    for ne in ((33, 6), (33, 9), (33, 6, 8), (33, 6, 4, 2), (33, 7, 1, 2), (33, 6, 8, 1))
]


def ext(
    a: Src, mask: Src | None, scale: float, max_bias: float, inplace: bool = False, sinks: Src | None = None
) -> Call:
    return call("soft_max_ext", a, mask, scale=scale, max_bias=max_bias, inplace=inplace, sinks=sinks)


SOFT_MAX = [
    call("soft_max", A),
    call("soft_max", A, inplace=True),
    call("soft_max", Src(ne=(1, 3))),
    call(
        "soft_max", Src(ne=(4, 4), data=np.float32([1, np.inf, 2, 3] + [-np.inf] * 4 + [np.nan, 1, 2, 3] + [1e30] * 4))
    ),
    call("soft_max", Src(ne=(1000, 2), data="wide")),
    *(ext(A, mask, 0.125, bias) for mask in MASKS for bias in (0.0, 8.0)),
    *(ext(Src(ne=(33, 6, heads)), MASKS[0], 1.0, 8.0) for heads in (1, 5, 12, 32)),
    ext(A, None, 0.1, 0.0),
    ext(A, MASKS[0], 0.1, 8.0, inplace=True),
    ext(A, None, 1.0, -1.0),
    ext(A, None, 1.0, 0.0, sinks=Src(ne=(8,))),
    ext(A, MASKS[6], 0.5, 8.0, sinks=Src(ne=(8,), data="wide")),
    ext(Src(ne=(33, 6)), None, 0.5, 0.0, sinks=Src(ne=(1,), data=np.float32([50]))),
]
COMPUTED = [
    *SOFT_MAX,
    *(call("soft_max_ext_back", A, A, scale, 0.0, inplace=i) for scale in (1.0, 0.1) for i in (False, True)),
    *(
        call(fn, a, past, inplace=i)
        for fn in ("diag_mask_inf", "diag_mask_zero")
        for i in (False, True)
        for a in (Src(ne=(10, 10)), Src(ne=(10, 6, 4, 2)), Src(ne=(3, 6)))
        for past in (0, 2, 20)
    ),
    call("diag_mask_inf", cut("f32", (5, 5, 2), (8, 6, 3)), 1, inplace=True),
    call("cross_entropy_loss", Src(ne=(33, 6)), Src(ne=(33, 6), data="positive")),
    call("cross_entropy_loss", Src(ne=(33, 6, 3), data="wide"), Src(ne=(33, 6, 3))),
    call("cross_entropy_loss_back", Src(ne=(1,)), Src(ne=(33, 6)), Src(ne=(33, 6), data="positive")),
]
OTHER = permuted("f32", (33, 8, 6, 2), (0, 2, 1, 3))
REFUSED = [
    call("soft_max", OTHER),
    ext(A, Src("bf16", (33, 6)), 1.0, 0.0),
    ext(A, permuted("f32", (6, 33), (1, 0, 2, 3)), 1.0, 0.0),
    ext(A, Src(ne=(32, 6)), 1.0, 0.0),
    ext(A, Src(ne=(33, 5)), 1.0, 0.0),
    ext(A, Src(ne=(33, 6, 3)), 1.0, 0.0),
    ext(A, Src(ne=(33, 6, 1, 3)), 1.0, 0.0),
    ext(A, None, 1.0, 8.0),
    ext(A, None, 1.0, 0.0, sinks=Src(ne=(7,))),
    ext(A, None, 1.0, 0.0, sinks=Src("f16", (8,))),
    call("cross_entropy_loss", Src(ne=(3, 4)), Src(ne=(3, 5))),
    call("cross_entropy_loss_back", Src(ne=(2,)), Src(ne=(3, 4)), Src(ne=(3, 4))),
    call("cross_entropy_loss_back", Src(ne=(1,)), Src(ne=(3, 4)), Src(ne=(3, 5))),
]
