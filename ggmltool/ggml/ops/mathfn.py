"""The functions of one variable that ggml computes and array libraries lack or compute otherwise.

All take and give float32 arrays; `xp` is the array library.
"""

from __future__ import annotations

from functools import cache
from typing import Any

GELU_COEF_A = 0.044715
GELU_QUICK_COEF = -1.702
SQRT_2_OVER_PI = 0.79788456080286535587989211986876
SQRT_2_INV = 0.70710678118654752440084436210484

_ERF_SMALL = (
    (
        1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
        -5.77027029648944159157e-03, -2.37630166566501626084e-05,
    ),
    (
        1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02,
        5.08130628187576562776e-03, 1.32494738004321644526e-04, -3.96022827877536812320e-06,
    ),
)  # fmt: skip
_ERF_MIDDLE = (
    (
        -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
        3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
        -2.16637559486879084300e-03,
    ),
    (
        1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01,
        7.18286544141962662868e-02, 1.26171219808761642112e-01, 1.36370839120290507362e-02,
        1.19844998467991074170e-02,
    ),
)  # fmt: skip
_ERF_LARGE = (
    (
        -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
        -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
        -8.12874355063065934246e+01, -9.81432934416914548592e+00,
    ),
    (
        1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02,
        4.34565877475229228821e+02, 6.45387271733267880336e+02, 4.29008140027567833386e+02,
        1.08635005541779435134e+02, 6.57024977031928170135e+00, -6.04244152148580987438e-02,
    ),
)  # fmt: skip
_ERF_ONE = 8.45062911510467529297e-01


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], z: Any) -> Any:
    top = bottom = 0.0
    for c in reversed(coefficients[0]):
        top = top * z + c
    for c in reversed(coefficients[1]):
        bottom = bottom * z + c
    return top / bottom


def erf(xp: Any, x: Any) -> Any:
    """erff: the error function, by the rational approximations of fdlibm (in double precision, then rounded)."""
    y = x.astype(xp.float64)
    s = xp.minimum(xp.abs(y), 4.0)  # beyond, float32 has no value between erf and 1
    small = y + y * _ratio(_ERF_SMALL, y * y)
    middle = _ERF_ONE + _ratio(_ERF_MIDDLE, s - 1)
    z = 1 / xp.maximum(s, 1.0) ** 2
    large = 1 - xp.exp(-s * s - 0.5625 + _ratio(_ERF_LARGE, z)) / xp.maximum(s, 1.0)
    out = xp.where(s < 0.84375, small, xp.copysign(xp.where(s < 1.25, middle, large), y))
    return out.astype(xp.float32)


def exp(xp: Any, x: Any) -> Any:
    """expf: as C libraries give it, rounded correctly but for a few arguments."""
    return xp.exp(x.astype(xp.float64)).astype(xp.float32)


def log(xp: Any, x: Any) -> Any:
    """logf: rounded correctly but for a few arguments."""
    return xp.log(x.astype(xp.float64)).astype(xp.float32)


def tanh(xp: Any, x: Any) -> Any:
    """tanhf: rounded correctly but for a few arguments."""
    return xp.tanh(x.astype(xp.float64)).astype(xp.float32)


def _gelu(xp: Any, x: Any) -> Any:
    """ggml_gelu_f32: the tanh approximation; its polynomial is one fused multiply-add."""
    f = xp.float32
    inner = ((f(GELU_COEF_A) * x).astype(xp.float64) * x + 1).astype(f)
    return f(0.5) * x * (1 + tanh(xp, f(SQRT_2_OVER_PI) * x * inner))


def _gelu_quick(xp: Any, x: Any) -> Any:
    """ggml_gelu_quick_f32: x / (1 + exp(-1.702 x))."""
    return x * (1 / (1 + exp(xp, xp.float32(GELU_QUICK_COEF) * x)))


def gelu_erf(xp: Any, x: Any) -> Any:
    """The exact GELU, in float32."""
    return xp.float32(0.5) * x * (1 + erf(xp, x * xp.float32(SQRT_2_INV)))


@cache
def _half_table(xp: Any, quick: bool) -> Any:
    """ggml_table_gelu_f16 and ggml_table_gelu_quick_f16: the function of every f16, rounded to f16."""
    halves = xp.arange(1 << 16, dtype=xp.uint32).astype(xp.uint16).view(xp.float16)
    return (_gelu_quick if quick else _gelu)(xp, halves.astype(xp.float32)).astype(xp.float16)


def _look_up(xp: Any, quick: bool, x: Any) -> Any:
    return _half_table(xp, quick)[x.astype(xp.float16).view(xp.uint16)].astype(xp.float32)


def gelu_table(xp: Any, x: Any, half: bool) -> Any:
    """GELU as ggml's CPU computes it, through the f16 table; of f32 values only within (-10, 10).

    `half` says that x comes from f16.
    """
    values = _look_up(xp, False, x)
    return values if half else xp.where(x <= -10, xp.float32(0), xp.where(x >= 10, x, values))


def gelu_quick_table(xp: Any, x: Any) -> Any:
    """GELU_QUICK as ggml's CPU computes it, through the f16 table."""
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
