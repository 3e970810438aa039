"""The normalisations."""

from __future__ import annotations

import numpy as np

from tests.conformance.ops_case import Src, call, cut, permuted

SOURCES = [
    Src(ne=(64, 5, 4, 3)),
    Src(ne=(1025, 3)),
    Src(ne=(64, 5), data="wide"),
    Src(ne=(16, 4), data=np.float32([1e20] * 16 + [np.inf] + [1] * 15 + [np.nan] + [1] * 15 + [0] * 16)),
    cut("f32", (40, 5), (64, 6)),
    permuted("f32", (64, 4, 5), (0, 2, 1, 3)),
]
TRANSPOSED = permuted("f32", (5, 64, 2), (1, 0, 2, 3))
COMPUTED = [
    *(call(fn, s, eps) for fn in ("norm", "rms_norm", "l2_norm") for s in SOURCES for eps in (0.0, 1e-6, 0.1)),
    *(call(fn, s, 1e-5, inplace=True) for fn in ("norm", "rms_norm", "l2_norm") for s in SOURCES),
    *(call(fn, TRANSPOSED, 1e-5) for fn in ("norm", "l2_norm")),
    *(call("rms_norm_back", s, s, eps) for s in SOURCES[:3] for eps in (1e-6, 0.1)),
    *(
        call("group_norm", Src(ne=(6, 5, channels, 3)), groups, 1e-6, inplace=inplace)
        for channels, groups in ((8, 4), (8, 1), (8, 8), (7, 3), (5, 4), (320, 32))
        for inplace in (False, True)
    ),
    call("group_norm", Src(ne=(4, 2, 4), data=np.float32([1, np.inf, 2, 3] + [1, 2, 3, 5] * 7)), 2, 1e-5),
]
