"""The gated linear units against the real library."""

from __future__ import annotations

import pytest

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import GluOp
from ggmltool.ggml.ops.cpu.limits import check
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import (
    Engine,
    Src,
    call,
    check_values,
    cut,
    permuted,
    same_refusal,
    same_tensor,
    same_values,
)
from tests.conformance.releases import release_of

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
    call("swiglu_oai", Src(ne=(64, 5), data="wide"), None, 1.702, 7.0, real=("swiglu_oai", 0, None, (1.702,), (7.0,))),
    call("swiglu_oai", Src(ne=(64, 5)), None, 0.5, 0.25, real=("swiglu_oai", 0, None, (0.5,), (0.25,))),
    *(
        call("swiglu_oai", Src(ne=ne, data="wide"), Src(ne=ne, data="wide"), *params)
        for ne in ((1,), (7, 5), (256, 3, 2, 2))
        for params in ((1.702, 7.0), (0.5, 0.25), (-1.0, 3.0), (0.0, 0.0))
    ),
    *(
        call("swiglu_oai", s, None, *params, real=("swiglu_oai", 0, None, (params[0],), (params[1],)))
        for s in WHOLE
        if s.type == "f32"
        for params in ((1.702, 7.0), (-1.0, 3.0))
    ),
]
CALLS = [
    *(call(f"{name}{variant}", s) for name in NAMES for variant in ("", "_swapped") for s in WHOLE),
    *(call(f"{name}_split", a, b) for name in NAMES for a, b in PAIRS),
    *OAI,
]
GENERAL = [
    *(
        call("glu", WHOLE[0], op=int(g), swapped=s, real=("glu", 0, (int(g),), (s,)))
        for g in GluOp
        if g != GluOp.SWIGLU_CLAMP
        for s in (True, False)
    ),
    *(call("glu_split", *PAIRS[0], int(g)) for g in GluOp if g != GluOp.SWIGLU_CLAMP),
    *(call("glu", *PAIRS[0], op=int(g), real=("glu_split", 0, 1, (int(g),))) for g in GluOp if g != GluOp.SWIGLU_CLAMP),
    *(call(name, *PAIRS[0], real=(f"{name}_split", 0, 1)) for name in NAMES),
    call("glu", WHOLE[0], op=3, alpha=1.7, limit=7.0, real=("swiglu_oai", 0, None, (1.7,), (7.0,))),
]
OTHER_ROWS = permuted("f32", (8, 4, 6), (0, 2, 1, 3))
ABORTS = [
    call("geglu", OTHER_ROWS),
    call("swiglu_split", Src(ne=(8, 6, 4)), OTHER_ROWS),
    call("swiglu_split", OTHER_ROWS, Src(ne=(8, 6, 4))),
    call("reglu_split", Src(ne=(8, 6)), Src(ne=(8, 5))),
    call("geglu_quick_split", Src(ne=(8, 6)), Src("f16", (8, 6))),
    call("swiglu_oai", Src(ne=(8, 6)), Src("f16", (8, 6)), 1.0, 2.0),
]

test_the_tensor_is_ggmls = same_tensor(CALLS + GENERAL)
test_ggml_refuses_for_the_same_reason = same_refusal(ABORTS)
test_the_values_are_ggmls = same_values(CALLS)


@pytest.mark.parametrize("name", NAMES)
def test_of_bf16_every_value_is_computed(name: str, lib: Lib) -> None:
    case = call(name, Src("bf16", (256, 5), data="wide"))
    engine = Engine(case, release_of(lib))
    if release_of(lib).ops.has_bf16_functions:
        check_values(lib, case)
    else:
        engine.place()
        with pytest.raises(GgmlError):
            check(engine.result, engine.ctx.rules)
