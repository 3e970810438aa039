"""The gated linear units."""

from __future__ import annotations

from ggmltool.ggml.op import GluOp
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from tests.conformance.ops_case import Src, call, cut, permuted

NAMES = [g.name.lower() for g in GluOp if f"{g.name.lower()}_split" in CONSTRUCTORS]
WHOLE = [
    Src(ne=(64, 5)),
    Src(ne=(64, 5), data="wide"),
    Src(ne=(32, 2), data="special"),
    Src("f16", (64, 5)),
    Src(ne=(7, 5)),
    cut("f32", (32, 5), (40, 6)),
]
PAIRS = [
    (Src(ne=(64, 5)), Src(ne=(64, 5))),
    (Src(ne=(64, 5), data="wide"), Src(ne=(64, 5), data="wide")),
    (Src(ne=(16, 2), data="special"), Src(ne=(16, 2))),
    (Src("f16", (64, 5)), Src("f16", (64, 5))),
    (cut("f32", (32, 5), (40, 6)), cut("f32", (32, 5), (48, 6))),
]
OAI = [
    *(call("swiglu_oai", a, b, 1.702, 7.0) for a, b in PAIRS if a.type == "f32"),
    call("swiglu_oai", Src(ne=(64, 5), data="wide"), None, 1.702, 7.0),
    call("swiglu_oai", Src(ne=(64, 5)), None, 0.5, 0.25),
    *(
        call("swiglu_oai", Src(ne=ne, data="wide"), Src(ne=ne, data="wide"), *params)
        for ne in ((1,), (7, 5), (256, 3, 2, 2))
        for params in ((1.702, 7.0), (0.5, 0.25), (-1.0, 3.0), (0.0, 0.0))
    ),
    *(call("swiglu_oai", s, None, *params) for s in WHOLE if s.type == "f32" for params in ((1.702, 7.0), (-1.0, 3.0))),
]
COMPUTED = [
    *(call(f"{name}{variant}", s) for name in NAMES for variant in ("", "_swapped") for s in WHOLE),
    *(call(f"{name}_split", a, b) for name in NAMES for a, b in PAIRS),
    *OAI,
]
SHAPED = [
    *(call("glu", WHOLE[0], op=int(g), swapped=s) for g in GluOp if g != GluOp.SWIGLU_CLAMP for s in (True, False)),
    *(call("glu_split", *PAIRS[0], int(g)) for g in GluOp if g != GluOp.SWIGLU_CLAMP),
    *(call("glu", *PAIRS[0], op=int(g), real="glu_split") for g in GluOp if g != GluOp.SWIGLU_CLAMP),
    *(call(name, *PAIRS[0], real=f"{name}_split") for name in NAMES),
    call("glu", WHOLE[0], op=3, alpha=1.7, limit=7.0, real=("swiglu_oai", 0, None, (1.7,), (7.0,))),
]
OTHER_ROWS = permuted("f32", (8, 4, 6), (0, 2, 1, 3))
REFUSED = [
    call("geglu", OTHER_ROWS),
    call("swiglu_split", Src(ne=(8, 6, 4)), OTHER_ROWS),
    call("swiglu_split", OTHER_ROWS, Src(ne=(8, 6, 4))),
    call("reglu_split", Src(ne=(8, 6)), Src(ne=(8, 5))),
    call("geglu_quick_split", Src(ne=(8, 6)), Src("f16", (8, 6))),
    call("swiglu_oai", Src(ne=(8, 6)), Src("f16", (8, 6)), 1.0, 2.0),
]
