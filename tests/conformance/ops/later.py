"""What ops have since 0.20.2, against the libraries that have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ggmltool.ggml.ops.rope import IMROPE, NEOX, NORMAL
from ggmltool.ggml.releases.table import NEWEST
from tests.conformance.ops.attention import attention
from tests.conformance.ops.deepseek import post
from tests.conformance.ops.rope import rope
from tests.conformance.ops_case import Call, Src, call, cut, permuted

DAY = NEWEST.date
ROWS = (
    Src(ne=(64, 5)),
    Src(ne=(64, 5), data="wide"),
    Src(ne=(32, 2), data="special"),
    Src("f16", (64, 5)),
    Src(ne=(7, 5)),
    cut("f32", (32, 5), (40, 6)),
)
PLANES = (
    cut("f32", (8, 3, 2), (16, 6, 4), 64),
    permuted("f32", (8, 4, 6), (0, 2, 1, 3)),
    cut("f16", (5, 3, 2), (7, 4, 3)),
)


def clamped_units() -> Iterator[Call]:
    for a in ROWS:
        for limit in (7.0, 0.25, -1.0):
            yield call("swiglu_clamp", a, None, limit)
            yield call("swiglu_clamp", a, a, limit)


def clamps() -> Iterator[Call]:
    for a in (*ROWS, *PLANES):
        for inplace in (False, True):
            yield call("clamp", a, -0.5, 1.0, inplace=inplace, since=DAY)


def halves() -> Iterator[Call]:
    for data in ("normal", "wide", "special"):
        a = Src("bf16", (64, 5), data=data)
        for fn in ("gelu", "gelu_erf", "gelu_quick", "silu", "reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick"):
            yield call(fn, a, since=DAY)
        yield call("swiglu_split", a, a, since=DAY)
        yield call("scale_bias", a, 0.7, 1.5, since=DAY)


def products() -> Iterator[Call]:
    for type in ("bf16", "f16"):
        yield call("mul_mat", Src(ne=(64, 7)), Src(type, (64, 5)), since=DAY)
        yield call("mul_mat", Src(ne=(64, 7, 2)), permuted(type, (64, 4, 3, 2), (0, 2, 1, 3)), since=DAY)
    for ne in ((64, 5), (1, 3), (256, 2, 3)):
        yield call(
            "mul_mat", Src(ne=(ne[0], ne[0])), Src("f16", ne), after=("ggml_mul_mat_set_hint", 1), hint=1, since=DAY
        )


def turned() -> Iterator[Call]:
    for offset, back in ((0, False), (2, False), (64, False), (64, True)):
        for mode in (NORMAL, NEOX):
            for a in (Src(ne=(128, 4, 5, 2)), cut("f16", (80, 4, 5), (128, 9, 6), 64)):
                n = min(64, a.ne[0] - offset)
                case = rope(a, n, mode, back=back)
                yield with_offset(case, offset)
    yield with_offset(rope(Src(ne=(128, 2, 3)), 96, IMROPE, sections=(20, 20, 8, 0)), 32)


def with_offset(case: Call, offset: int) -> Call:
    after = ("ggml_rope_set_offset", offset)
    return replace(case, kwargs={**case.kwargs, "offset": offset}, after=after, since="2026-08-19")


def words() -> Iterator[Call]:
    a, b, ids = Src(ne=(64, 7)), Src(ne=(64, 5)), Src("i32", (1, 5), data="ints")
    by_id = (Src(ne=(64, 7, 5)), Src(ne=(64, 1, 5)), ids)
    for prec in (10, 15, 20, 30, 40):
        for fn, sources in (("mul_mat", (a, b)), ("mul_mat_id", by_id)):
            yield call(fn, *sources, after=("ggml_prec_set_acc", prec), prec=prec, since=DAY)
            yield call(fn, *sources, after=("ggml_prec_set_src", prec, 1), prec_b=prec, since=DAY)
    case = attention(Src(ne=(64, 5, 4)), Src("f16", (64, 32, 4)), Src("f16", (64, 32, 4)))
    yield replace(case, kwargs={**case.kwargs, "n_kv_max": 9}, after=("ggml_flash_attn_ext_set_n_kv_max", 9), since=DAY)


def streams() -> Iterator[Call]:
    x = Src(ne=(8, 4, 3))
    for gate in (x, replace(x, data="special"), cut("f32", (8, 4, 3), (9, 5, 4))):
        for scale in (1.0, 0.5, -2.0):
            yield call("dsv4_hc_pre_gated", x, gate, scale)
    yield replace(post(31, 17), sources=(*post(31, 17).sources[:3], None), since=DAY)


def images() -> Iterator[Call]:
    for type in ("f32", "f16"):
        for b, stride in ((Src(ne=(6, 7, 5, 3)), 2), (permuted("f32", (6, 5, 2, 3), (0, 2, 1, 3)), 1)):
            yield call("conv_transpose_2d", Src(type, (3, 2, 4, 5)), b, stride, real="conv_transpose_2d_p0", since=DAY)


COMPUTED = [
    *clamped_units(),
    *clamps(),
    *halves(),
    *products(),
    *turned(),
    *words(),
    *streams(),
    *images(),
    *(call("concat", *[Src("i64", (6, 4, 3), data="ints")] * 2, dim, since=DAY) for dim in range(4)),
]

REFUSED = [
    call("acc", ROWS[0], ROWS[0], 256, 1280, 1280, 1 << 30, since=DAY),
    call("repeat_4d", Src(ne=(1,)), 1 << 32, 1 << 32, 1, 1, since=DAY),
    with_offset(rope(Src(ne=(128, 4, 5)), 64, NEOX), -2),
    call("swiglu_clamp", ROWS[0], Src("f16", (64, 5)), 2.0),
    call("dsv4_hc_pre_gated", Src(ne=(8, 4, 3)), Src(ne=(8, 4, 2)), 1.0),
]
SHAPED = [call("permute", Src(ne=(1 << 20, 1024, 2)), 0, 2, 1, 3)]
