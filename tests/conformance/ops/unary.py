"""The 22 unary functions."""

from __future__ import annotations

from ggmltool.ggml.op import UnaryOp
from tests.conformance.ops_case import Call, Src, call, cut, permuted

NAMES = [u.name.lower() for u in UnaryOp if u != UnaryOp.XIELU]
TWINS = [n for n in NAMES if n not in ("hardswish", "hardsigmoid")]
SOURCES = [
    Src(ne=(33, 6)),
    Src(ne=(129, 3), data="wide"),
    Src(ne=(48,), data="special"),
    Src("f16", (33, 6), data="wide"),
    Src("bf16", (33, 6)),
    permuted("f32", (8, 4, 6, 2), (0, 2, 1, 3)),
    cut("f32", (8, 3, 2), (16, 6, 4), 64),
]
NO_BF16 = ("gelu", "gelu_erf", "gelu_quick", "silu")
"""Functions the library's CPU backend has no bf16 kernel for."""

CALLS = [call(name, s) for name in NAMES for s in SOURCES]
CALLS += [call(name, s, inplace=True) for name in TWINS for s in SOURCES[:1] + SOURCES[-1:]]
CALLS += [call("unary", Src(), int(u), inplace=i) for u in UnaryOp for i in (False, True)]
XIELU = [
    call("xielu", s, *params)
    for s in (*SOURCES, permuted("f32", (8, 6), (1, 0, 2, 3)))
    for params in ((0.8, 0.8, 0.5, -1e-6), (4.0, 20.0, 0.5, 0.0), (-3.0, 20.5, 0.25, -0.1))
]
XIELU += [
    call("xielu", s, *params)
    for s in (
        *(Src(t, ne, data="wide") for t in ("f32", "f16", "bf16") for ne in ((1,), (256, 2, 3, 2), (7, 5, 3))),
        *(Src(t, (48,), data="special") for t in ("f16", "bf16")),
    )
    for params in ((0.8, 0.8, 0.5, -1e-6), (0.0, 0.0, 0.0, 0.0), (19.9, -30.0, 2.0, 0.5))
]


def computable(case: Call) -> bool:
    a = case.sources[0]
    assert a is not None
    if case.fn == "xielu":
        return not a.is_view
    return case.fn != "unary" and not (case.fn in NO_BF16 and a.type == "bf16")


COMPUTED = [c for c in CALLS + XIELU if computable(c)]
SHAPED = [c for c in CALLS + XIELU if not computable(c)]
REFUSED = [call(name, permuted("f32", (8, 3), (1, 0, 2, 3))) for name in NAMES]
REFUSED += [call("unary", permuted("f32", (8, 3), (1, 0, 2, 3)), 3)]
