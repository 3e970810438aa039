"""What the library's CPU backend refuses to compute, and in which words."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.op import GluOp, UnaryOp
from ggmltool.ggml.ops.registry import since_of
from ggmltool.ggml.tensor import FLAG_PARAM
from tests.conformance.ops.softmax import ext
from tests.conformance.ops_case import Call, Src, call, cut, permuted

TYPES = ("f32", "f16", "bf16", "i32", "q8_0")
BLOCK = 32


def one(type: str) -> Src:
    return Src(type, (BLOCK, 4), data="ints")


COLUMNS = permuted("f32", (6, 8), (1, 0, 2, 3))
PLANES = permuted("f32", (8, 4, 6), (0, 2, 1, 3))
OTHER_ROWS = Src(ne=(8, 6))


def gated(function: GluOp, a: Src) -> Call:
    since = since_of("swiglu_clamp") if function == GluOp.SWIGLU_CLAMP else ""
    return call("glu", a, op=int(function), swapped=False, since=since)


CASES = [
    *(call(fn, one(a), one(b)) for fn in ("add", "mul") for a in TYPES for b in TYPES),
    *(call("add1", one(a), Src(b, (1,), data="ints")) for a in TYPES for b in TYPES[:4]),
    *(call("add_id", one(a), one(b), Src("i32", (4, 1), data=[0])) for a in TYPES for b in TYPES[:2]),
    *(call("set", one(a), one("f32"), 128, 512, 512, 0) for a in TYPES),
    *(
        call(fn, one(t))
        for fn in ("sqr", "sqrt", "log", "sin", "cos", "sum", "sum_rows", "mean", "argmax")
        for t in TYPES
    ),
    *(call(u.name.lower(), one(t)) for u in UnaryOp if u != UnaryOp.XIELU for t in TYPES),
    *(call("xielu", s, 0.8, 0.8, 0.5, -1e-6) for s in (*map(one, TYPES), COLUMNS, PLANES)),
    *(gated(g, one(t)) for g in GluOp for t in TYPES[:4]),
    *(call("clamp", one(t), 0.0, 1.0) for t in TYPES),
    *(call("scale", s, 2.0) for s in (*map(one, TYPES), cut("f32", (4, 3), (8, 3)))),
    *(call("leaky_relu", one(t), 0.1) for t in TYPES),
    *(call("silu_back", one(t), one(t)) for t in TYPES),
    *(call("count_equal", one(a), one(b)) for a in TYPES for b in TYPES),
    *(call("repeat", s, Src(ne=(64, 8))) for s in map(one, TYPES)),
    call("repeat", permuted("f32", (4, 32), (1, 0, 2, 3)), Src(ne=(64, 8))),
    *(call("repeat_back", s, Src(ne=(4, 2))) for s in (*map(one, TYPES[:4]), permuted("f32", (4, 32), (1, 0, 2, 3)))),
    *(call(fn, s, 1e-5) for fn in ("norm", "rms_norm", "l2_norm") for s in (*map(one, TYPES), COLUMNS, PLANES)),
    *(call("group_norm", s, 2, 1e-5) for s in (*map(one, TYPES), COLUMNS, PLANES)),
    *(call("rms_norm_back", s, s, 1e-5) for s in (*map(one, TYPES), COLUMNS)),
    call("rms_norm_back", Src(ne=(8, 6)), Src(ne=(8, 3)), 1e-5),
    *(ext(one(t), None, 1.0, 0.0) for t in TYPES),
    *(call("soft_max_ext_back", s, s, 1.0, 0.0) for s in (*map(one, TYPES), COLUMNS, PLANES)),
    call("soft_max_ext_back", Src(ne=(8, 6)), PLANES, 1.0, 0.0),
    call("soft_max_ext_back", Src(ne=(8, 6)), Src(ne=(8, 3)), 1.0, 0.0),
    *(call("diag_mask_inf", s, 1, inplace=i) for s in (*map(one, TYPES), COLUMNS, PLANES) for i in (False, True)),
    *(call("cross_entropy_loss", one(t), one(t)) for t in TYPES),
    call("cross_entropy_loss", one("f32"), one("f16")),
    call("cross_entropy_loss", COLUMNS, COLUMNS),
    *(call("cross_entropy_loss_back", Src(t, (1,), data="ints"), one(t), one(t)) for t in TYPES[:4]),
    call("cross_entropy_loss_back", Src(ne=(1,)), PLANES, PLANES),
    *(call("diag", Src(t, (32, 1), data="ints")) for t in TYPES),
    call("diag", permuted("f32", (1, 8), (1, 0, 2, 3))),
    *(call("pad", one(t), 32, 0, 0, 0) for t in TYPES),
    *(call("roll", one(t), 1, 0, 0, 0) for t in TYPES),
    *(call("timestep_embedding", s, 8, 100) for s in (*map(one, TYPES), COLUMNS)),
    *(call("argsort", one(t), 1) for t in TYPES),
    *(call("top_k", one(t), 1) for t in TYPES),
    *(call("mul", s, Src(ne=(8,))) for s in (COLUMNS, PLANES)),
    call("add", Src("q8_0", (32, 4)), Src(ne=(32, 1))),
    call("add", permuted("q8_0", (32, 4, 2), (0, 2, 1, 3)), Src(ne=(32, 2, 4))),
    call("add", Src("q8_0", (32, 4)), permuted("f32", (4, 32), (1, 0, 2, 3))),
    call("acc", Src(ne=(8, 6)), permuted("f32", (2, 4), (1, 0, 2, 3)), 32, 192, 192, 0),
    call("set", Src("i32", (8, 6), data="ints"), Src(ne=(4, 3)), 32, 192, 192, 0),
    call("set", Src("i32", (8, 6), data="ints"), permuted("f32", (2, 4), (1, 0, 2, 3)), 32, 192, 192, 0),
    *(call(fn, COLUMNS) for fn in ("cumsum", "sum_rows", "sqr")),
    *(call("get_rel_pos", Src(t, (32, 7), data="ints"), 4, 4) for t in TYPES),
    *(call("add_rel_pos", Src(t, (1, 1, 4), data="ints"), *[Src(ne=(1, 1, 1, 4))] * 2) for t in TYPES[:3]),
    *(call("opt_step_adamw", *[replace(s, flags=FLAG_PARAM)] * 4, Src(ne=(7,))) for s in (*map(one, TYPES), COLUMNS)),
    *(call("opt_step_sgd", *[replace(s, flags=FLAG_PARAM)] * 2, Src(ne=(2,))) for s in (*map(one, TYPES), COLUMNS)),
]
