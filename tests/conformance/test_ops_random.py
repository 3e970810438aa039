"""Random calls of every op here, random shapes, strides and types, against the real library.

GGMLTOOL_RANDOM_OPS sets how many (default 400), GGMLTOOL_SEED where they start.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import UnaryOp
from ggmltool.ggml.ops.cpu.limits import check
from ggmltool.ggml.releases.release import Release
from ggmltool.oracle.lib import Abort, Lib
from tests.conformance.ops_case import (
    Call,
    Engine,
    Real,
    Src,
    bytes_of,
    call,
    check_result,
    cut,
    permuted,
)
from tests.conformance.releases import release_of
from tests.conformance.test_ops_softmax import ext

COUNT = int(os.environ.get("GGMLTOOL_RANDOM_OPS", "400"))
SEED = int(os.environ.get("GGMLTOOL_SEED", "0"))
BATCH = 50

UNARY = [u.name.lower() for u in UnaryOp if u != UnaryOp.XIELU]
GLU = [f + v for f in ("reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick") for v in ("", "_swapped", "_split")]


def dims(r: Random, most: int = 9) -> tuple[int, int, int, int]:
    return (r.choice((1, 2, 5, 8, 33)), r.randint(1, most), r.choice((1, 1, 2, 3)), r.choice((1, 1, 2)))


def source(
    r: Random, type: str = "f32", ne: tuple[int, ...] | None = None, data: str | None = None, slack: int = 0
) -> Src:
    """A tensor, or a view with gaps, or a permuted one; with `slack`, a view amid so many bytes of its tensor."""
    ne = ne or dims(r)
    data = data or r.choice(("normal", "normal", "wide", "special", "ints"))
    kind = r.random()
    offset = slack or r.choice((0, 0, 64))
    if kind < 0.6:
        return cut(type, ne, ne, offset, data=data, slack=slack) if slack else Src(type, ne, data=data)
    if kind < 0.8:
        return cut(type, ne, [n + r.randint(0, 2) for n in ne], offset, data=data, slack=slack)
    axes = [0, *r.sample((1, 2, 3), 3)] if kind < 0.95 else r.sample(range(4), 4)
    return permuted(type, [ne[axes[i]] for i in range(4)], axes, data=data, offset=slack, slack=slack)


def float_type(r: Random) -> str:
    return r.choice(("f32", "f32", "f32", "f16", "bf16"))


def smaller(r: Random, ne: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(r.choice([d for d in range(1, n + 1) if n % d == 0]) if r.random() < 0.6 else n for n in ne)


def binary(r: Random) -> Call:
    a = source(r, float_type(r))
    b = source(r, r.choice((a.type, "f32")), smaller(r, a.dims))
    return call(r.choice(("add", "sub", "mul", "div")), a, b, inplace=r.random() < 0.3)


def unary(r: Random) -> Call:
    return call(r.choice([*UNARY, "sqr", "sqrt", "log", "sin", "cos"]), source(r, float_type(r)))


def glu(r: Random) -> Call:
    name, type = r.choice(GLU), float_type(r)
    a = source(r, type)
    return call(name, a, source(r, type, a.dims)) if name.endswith("_split") else call(name, a)


def one_operand(r: Random) -> Call:
    a = source(r)
    eps = r.choice((0.0, 1e-5, 0.3))
    return r.choice(
        (
            call("scale", a, r.choice((0.0, -1.5, 1e30))),
            call("scale_bias", a, 0.5, r.choice((0.0, 1.0)), inplace=r.random() < 0.5),
            call("fill", a, 3.25),
            call("norm", a, eps),
            call("rms_norm", a, eps),
            call("l2_norm", a, eps, inplace=r.random() < 0.3),
            call("group_norm", a, r.randint(1, 4), 1e-5),
            call("sum", a),
            call("sum_rows", a),
            call("mean", a),
            call("cumsum", a),
            call("argmax", a),
            call("soft_max", a),
            call("diag_mask_zero", a, r.randint(0, 5)),
            call("pad_reflect_1d", a, r.randint(0, 5), r.randint(0, 5)),
            call("roll", a, *(r.randint(-n + 1, n - 1) for n in a.dims)),
            call("tri", a, r.randint(0, 3)),
            call("diag", source(r, ne=(*dims(r)[:1], 1, *dims(r)[2:]))),
        )
    )


def moved(r: Random) -> Call:
    type = r.choice(("f32", "f16", "bf16", "i32", "i8"))
    a = source(r, type, data="ints")
    match r.randint(0, 3):
        case 0:
            return call("repeat_4d", a, *(n * r.randint(1, 3) for n in a.dims))
        case 1:
            dim = r.randint(0, 3)
            ne = tuple(r.randint(1, 6) if i == dim else n for i, n in enumerate(a.dims))
            return call("concat", a, source(r, type, ne, data="ints"), dim)
        case 2:
            return call(r.choice(("pad_ext", "pad_ext_circular")), a, *(r.randint(0, 2) for _ in range(8)))
    return call("repeat_back", a, Src(ne=smaller(r, a.dims)))


def resized(r: Random) -> Call:
    a = source(r, data=r.choice(("normal", "wide", "ints")))
    ne = (r.randint(1, 20), r.randint(1, 20), *(n * r.randint(1, 2) for n in a.dims[2:]))
    return call("interpolate", a, *ne, r.choice((0, 1, 2, 256, 257, 258, 513, 769)))


def soft_max(r: Random) -> Call:
    a = Src(ne=dims(r), data=r.choice(("normal", "wide")))
    ne = (a.ne[0], a.ne[1] + r.randint(0, 2), *smaller(r, a.dims[2:]))
    mask = Src(r.choice(("f32", "f16")), ne, data="mask") if r.random() < 0.7 else None
    sinks = Src(ne=(a.ne[2],)) if r.random() < 0.3 else None
    return ext(a, mask, r.choice((1.0, 0.125)), r.choice((0.0, 8.0)) if mask else 0.0, r.random() < 0.3, sinks)


def gradient(r: Random) -> Call:
    a = source(r, ne=(r.randint(2, 33), *dims(r)[1:]), data="normal")
    b = source(r, ne=a.dims, data="normal")
    return r.choice((call("rms_norm_back", a, b, 1e-5),))


FLAT = 1 << 17
"""More than any of these kernels strays by going through all rows with one stride."""


def stray(r: Random) -> Call:
    a = source(r, data="normal", slack=FLAT)
    i = source(r, "i32", data="ints", slack=FLAT)
    inplace = r.random() < 0.5 and a.strides[1] >= 4 * a.ne[0]
    b = source(r, ne=a.dims, data="normal", slack=FLAT)
    return r.choice(
        (
            call("clamp", a, -0.5, r.choice((0.5, -1.0))),
            call("leaky_relu", a, 0.1, inplace=inplace, real=("leaky_relu", 0, (0.1,), (inplace,))),
            call("diag_mask_inf", a, r.randint(0, 5), inplace=inplace),
            call("argsort", source(r, data="distinct", slack=FLAT), r.randint(0, 1)),
            call("top_k", source(r, data="distinct", slack=FLAT), 1),
            call("silu_back", a, b),
            call("cross_entropy_loss", a, b),
            call("soft_max_ext_back", a, b, 0.5, 0.0),
            call("cross_entropy_loss_back", Src(ne=(1,)), a, b),
            call("count_equal", i, source(r, "i32", i.dims, "ints", FLAT)),
        )
    )


MAKERS = (binary, binary, unary, unary, glu, one_operand, one_operand, moved, resized, soft_max, gradient, stray, stray)


def outcome_here(release: Release, case: Call, data: list[bytes]) -> Any:
    """What the engine makes of a case: the message it refuses with, or the tensor and the values."""
    try:
        engine = Engine(case, release)
        engine.place()
        if 0 not in engine.result.ne:
            check(engine.result, engine.ctx.rules)
    except GgmlError as error:
        return error.message
    return engine.fields(), np.array(engine.compute(data))


def outcome_there(lib: Lib, case: Call, data: list[bytes]) -> Any:
    real = Real(lib, lib.init(1 << 20), case)
    return real.fields(), real.compute(data)


def compare(case: Call, here: Any, there: Any) -> None:
    if isinstance(here, str) or isinstance(there, Abort):
        assert (here if isinstance(here, str) else "computes") == (
            there.text if isinstance(there, Abort) else "computes"
        ), str(case)
        return
    assert here[0] == there[0], str(case)
    check_result(case, here[1], there[1])


@pytest.mark.parametrize("start", range(SEED, SEED + COUNT, BATCH))
def test_random_calls_agree(start: int, lib: Lib) -> None:
    cases = []
    for seed in range(start, start + BATCH):
        r = Random(seed)
        case = r.choice(MAKERS)(r)
        rng = np.random.default_rng(seed)
        data = [bytes_of(lib, s, rng) for s in (*case.sources, case.sinks) if s is not None]
        cases.append((case, data))
    here = [outcome_here(release_of(lib), *c) for c in cases]
    computed = [c for c, h in zip(cases, here, strict=True) if not isinstance(h, str)]
    batch = lib.run_forked(lambda: [outcome_there(lib, *c) for c in computed])
    rest = iter([] if isinstance(batch, Abort) else batch)
    for c, h in zip(cases, here, strict=True):
        if isinstance(h, str) or isinstance(batch, Abort):
            compare(c[0], h, lib.run_forked(lambda c=c: outcome_there(lib, *c)))  # type: ignore[misc]
        else:
            compare(c[0], h, next(rest))
