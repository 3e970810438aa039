"""The functions of one variable that ggml computes and array libraries lack or compute otherwise.

All take and give float32 arrays; `xp` is the array library. On the host they give what ggml's CPU backend does, through
doubles and tables; a GPU's own functions are as exact as those that ggml's kernels call there.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

GELU_COEF_A = 0.044715
GELU_QUICK_COEF = -1.702
SQRT_2_OVER_PI = 0.79788456080286535587989211986876
SQRT_2_INV = 0.70710678118654752440084436210484

_ERF_STEPS = 128
_ERF_END = 4
"""From here on erf is 1 in float32."""


def on_host(xp: Any) -> bool:
    """Whether the array library is numpy."""
    return bool(xp.__name__ == "numpy")


def _wide(xp: Any, x: Any) -> Any:
    """Doubles on the host, so that the result is rounded once; a GPU stays with float32."""
    return x.astype(xp.float64) if on_host(xp) else x


@cache
def _erf_series(xp: Any) -> Any:
    """The Taylor series of erf around each multiple of 1/128 up to 4: float64[5, nodes], constant term first."""
    nodes = [i / _ERF_STEPS for i in range(_ERF_STEPS * _ERF_END + 1)]
    terms = []
    for x in nodes:
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        terms.append((math.erf(x), slope, -x * slope, (2 * x * x - 1) / 3 * slope, (3 - 2 * x * x) * x / 6 * slope))
    return xp.asarray(terms, dtype=xp.float64).T


def erf(xp: Any, x: Any) -> Any:
    """erff: the error function, on the host from its Taylor series around the nearest node."""
    if not on_host(xp):
        return import_module(f"{xp.__name__}x.scipy.special").erf(x)
    y = x.astype(xp.float64)
    s = xp.minimum(xp.abs(y), _ERF_END)
    node = xp.rint(xp.where(xp.isnan(s), 0, s) * _ERF_STEPS)
    d = s - node / _ERF_STEPS
    out = 0.0
    for term in _erf_series(xp)[::-1]:
        out = out * d + term[node.astype(xp.int64)]
    return xp.copysign(out, y).astype(xp.float32)


def exp(xp: Any, x: Any) -> Any:
    """expf: as C libraries give it, rounded correctly but for a few arguments."""
    return xp.exp(_wide(xp, x)).astype(xp.float32)


def log(xp: Any, x: Any) -> Any:
    """logf: rounded correctly but for a few arguments."""
    return xp.log(_wide(xp, x)).astype(xp.float32)


def tanh(xp: Any, x: Any) -> Any:
    """tanhf: rounded correctly but for a few arguments."""
    return xp.tanh(_wide(xp, x)).astype(xp.float32)


def gelu(xp: Any, x: Any) -> Any:
    """ggml_gelu_f32: the tanh approximation; its polynomial is one fused multiply-add."""
    f = xp.float32
    inner = (_wide(xp, f(GELU_COEF_A) * x) * x + 1).astype(f)
    return f(0.5) * x * (1 + tanh(xp, f(SQRT_2_OVER_PI) * x * inner))


def gelu_quick(xp: Any, x: Any) -> Any:
    """ggml_gelu_quick_f32: x / (1 + exp(-1.702 x))."""
    return x * (1 / (1 + exp(xp, xp.float32(GELU_QUICK_COEF) * x)))


def gelu_erf(xp: Any, x: Any) -> Any:
    """The exact GELU, in float32."""
    return xp.float32(0.5) * x * (1 + erf(xp, x * xp.float32(SQRT_2_INV)))


@cache
def half_table(xp: Any, quick: bool) -> Any:
    """ggml_table_gelu_f16 and ggml_table_gelu_quick_f16: the function of every f16, rounded to f16."""
    halves = xp.arange(1 << 16, dtype=xp.uint32).astype(xp.uint16).view(xp.float16)
    return (gelu_quick if quick else gelu)(xp, halves.astype(xp.float32)).astype(xp.float16)


def _look_up(xp: Any, quick: bool, x: Any) -> Any:
    return half_table(xp, quick)[x.astype(xp.float16).view(xp.uint16)].astype(xp.float32)


def gelu_table(xp: Any, x: Any, half: bool) -> Any:
    """GELU as ggml's CPU computes it, through the f16 table; of f32 values only within (-10, 10).

    `half` says that x comes from f16. On a GPU it is computed for every value.
    """
    if not on_host(xp):
        return gelu(xp, x)
    values = _look_up(xp, False, x)
    return values if half else xp.where(x <= -10, xp.float32(0), xp.where(x >= 10, x, values))


def gelu_quick_table(xp: Any, x: Any) -> Any:
    """GELU_QUICK as ggml's CPU computes it, through the f16 table; on a GPU it is computed for every value."""
    if not on_host(xp):
        return gelu_quick(xp, x)
    return _look_up(xp, True, x)


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + exp(xp, -x))


def silu(xp: Any, x: Any) -> Any:
    """ggml_silu_f32: x / (1 + exp(-x))."""
    return x / (1 + xp.exp(-x))


def softplus(xp: Any, x: Any) -> Any:
    """ggml_compute_softplus_f32: log(1 + exp(x)), x above 20."""
    return xp.where(x > 20, x, log(xp, 1 + exp(xp, x)))


def round_half_away(xp: Any, x: Any) -> Any:
    """roundf: halves away from zero, the sign of a zero kept."""
    whole = xp.trunc(x)
    return xp.where(xp.abs(x - whole) >= 0.5, whole + xp.copysign(xp.float32(1), x), whole)


def hard_sigmoid(xp: Any, x: Any) -> Any:
    """min(1, max(0, (x + 3) / 6)); NaN gives 0, as C's fmax does."""
    f = xp.float32
    return xp.fmin(f(1), xp.fmax(f(0), (x + f(3)) / f(6)))
