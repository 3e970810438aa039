"""rope in all its modes, forwards and backwards,."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggmltool.ggml.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION
from tests.conformance.ops_case import Call, Src, call, cut, permuted

PLAIN = {"n_ctx_orig": 0, "freq_base": 10000.0, "freq_scale": 1.0, "ext_factor": 0.0, "attn_factor": 1.0,
         "beta_fast": 0.0, "beta_slow": 0.0}  # fmt: skip
YARN = {"n_ctx_orig": 512, "freq_base": 10000.0, "freq_scale": 0.7465, "ext_factor": 0.7465, "attn_factor": 1.424,
        "beta_fast": 32.0, "beta_slow": 1.0}  # fmt: skip
NO_BETAS = {**YARN, "beta_fast": 0.0, "beta_slow": 0.0}
SCALED = {**PLAIN, "freq_base": 1e6, "freq_scale": 0.125, "n_ctx_orig": 4096}


def positions(n: int, high: int = 1000, times: int = 1) -> Src:
    return Src("i32", (n * times,), data=np.random.default_rng(5).integers(0, high, n * times))


def rope(
    a: Src,
    n_dims: int,
    mode: int,
    extra: dict[str, Any] | None = None,
    factors: Src | None = None,
    sections: tuple[int, ...] | None = None,
    high: int = 1000,
    back: bool = False,
    inplace: bool = False,
) -> Call:
    """The same call by rope_ext or rope_multi."""
    extra = {**PLAIN, **(extra or {})}
    b = positions(a.ne[2], high, 4 if mode & MROPE else 1)
    order = [(extra[k],) for k in PLAIN]
    real = ["rope_multi" if sections is not None else "rope_ext", 0, 1, 2 if factors else None, (n_dims,)]
    if sections is not None:
        real.append((((*sections, 0, 0, 0, 0)[:4]),))
        extra = {**extra, "sections": sections}
    real += [(mode,), *order]
    real[0] += "_back" if back else "_inplace" if inplace else ""
    fn = "rope_back" if back else "rope_multi" if sections is not None else "rope_ext"
    sources = (a, b, factors) if factors else (a, b)
    nmse = 1e-7 if a.type == "f32" else 1e-6
    return Call(fn, sources, (), inplace, {"n_dims": n_dims, "mode": mode, **extra}, tuple(real), nmse=nmse)


HEADS = Src(ne=(128, 4, 5, 2))
FACTORS = Src(ne=(64,), data="positive")

CASES = [
    *(rope(Src(t, (128, 4, 5, 2)), n, mode) for t in ("f32", "f16") for n in (128, 64, 20) for mode in (NORMAL, NEOX)),
    *(rope(HEADS, 128, mode, extra) for mode in (NORMAL, NEOX) for extra in (YARN, NO_BETAS, SCALED)),
    *(rope(HEADS, 128, mode, extra, FACTORS) for mode in (NORMAL, NEOX) for extra in (None, YARN)),
    *(rope(HEADS, 64, mode, YARN, FACTORS, back=back) for mode in (NORMAL, NEOX) for back in (False, True)),
    *(rope(a, 64, NEOX) for a in (cut("f32", (64, 4, 5), (80, 9, 6), 32), permuted("f32", (64, 5, 4), (0, 2, 1, 3)))),
    *(rope(a, 64, NEOX, inplace=True) for a in (HEADS, cut("f32", (64, 4, 5), (80, 9, 6), 32))),
    rope(HEADS, 128, NEOX, high=100000),
    rope(HEADS, 128, NORMAL, {**YARN, "n_ctx_orig": 131072, "freq_base": 500000.0}, high=100000),
    rope(HEADS, 0, NORMAL),
    rope(Src(ne=(7, 2, 3)), 4, NEOX),
    rope(Src(ne=(8, 0, 3)), 8, NEOX),
    *(
        rope(Src(t, (128, 4, 5)), n, mode, extra, sections=sections)
        for t in ("f32", "f16")
        for mode, n, sections in (
            (MROPE, 128, (16, 24, 24, 0)),
            (MROPE, 64, (16, 8, 8, 0)),
            (MROPE, 128, (20, 20, 0, 20)),
            (MROPE, 20, (3, 3, 4)),
            (IMROPE, 128, (24, 20, 20, 0)),
            (IMROPE, 64, (12, 10, 10, 0)),
            (IMROPE, 64, (2, 9, 9, 4)),
            (VISION, 64, (16, 16, 16, 16)),
            (VISION, 64, (32, 32, 0, 0)),
            (VISION, 64, (20, 10)),
        )
        for extra in ((None,) if t == "f16" else (None, YARN))
    ),
    *(
        rope(Src(ne=(64, 4, 5)), n, mode, sections=(8, 12, 12, 0), back=True)
        for mode, n in ((MROPE, 64), (IMROPE, 64), (VISION, 32))
    ),
    rope(Src(ne=(64, 4, 5)), 64, MROPE, sections=(8, 12, 12, 0), factors=Src(ne=(32,), data="positive")),
    rope(Src(ne=(64, 4, 5)), 64, MROPE, sections=(8, 12, 12, 0), inplace=True),
    rope(Src(ne=(64, 4, 5)), 64, NEOX, sections=(8, 12, 12, 0)),
    call("rope", HEADS, positions(5), n_dims=64, mode=NEOX),
    call("rope", HEADS, positions(5), n_dims=64, mode=NORMAL, inplace=True),
    call("rope_custom", HEADS, positions(5), 64, NEOX, *YARN.values()),
    call("rope_custom", HEADS, positions(5), 64, NEOX, *YARN.values(), inplace=True),
]

WITHOUT_PAIRS = rope(HEADS, 0, NORMAL)


REFUSED = [
    call("rope", HEADS, positions(5), n_dims=64, mode=1),
    call("rope", HEADS, positions(5), n_dims=64, mode=3),
    call("rope", HEADS, Src("i32", (5, 2)), n_dims=64, mode=0),
    call("rope", HEADS, Src("i64", (5,)), n_dims=64, mode=0),
    call("rope", HEADS, positions(6), n_dims=64, mode=0),
    call("rope", HEADS, positions(5), n_dims=64, mode=MROPE),
    rope(HEADS, 128, NEOX, None, Src("f16", (64,))),
    rope(HEADS, 128, NEOX, None, Src(ne=(63,))),
]
SHAPED = [c for c in CASES if c.kwargs.get("n_dims") == 0]
COMPUTED = [c for c in CASES if c.kwargs.get("n_dims") != 0]
