"""UPSCALE: images (dimensions 0 and 1) interpolated to another size, also a smaller one."""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import new_tensor, operand, param_i32, require_elements, requirer, sources_of
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor

NEAREST, BILINEAR, BICUBIC = 0, 1, 2
N_MODES = 3
ALIGN_CORNERS = 1 << 8
ANTIALIAS = 1 << 9

MODES: dict[str, int] = {
    "nearest": NEAREST,
    "bilinear": BILINEAR,
    "bicubic": BICUBIC,
    "nearest|align_corners": NEAREST | ALIGN_CORNERS,
    "bilinear|align_corners": BILINEAR | ALIGN_CORNERS,
    "bicubic|align_corners": BICUBIC | ALIGN_CORNERS,
    "bilinear|antialias": BILINEAR | ANTIALIAS,
    "bilinear|align_corners|antialias": BILINEAR | ALIGN_CORNERS | ANTIALIAS,
}
"""ggml_scale_mode with the ggml_scale_flag that go with it."""


@constructor(
    Op.UPSCALE,
    "interpolate",
    "upscale_ext",
    canonical=True,
    unpack=lambda raw: {**{f"ne{i}": n for i, n in enumerate(raw.ne)}, "mode": raw.word(0)},
    choices={"mode": MODES},
    prototype={"interpolate": "tqqqqI", "upscale_ext": "tiiiii"},
)
def interpolate(ctx: Context, a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int, mode: int) -> Tensor:
    """ggml_interpolate and ggml_upscale_ext: a in the size ne0 … ne3; `mode` is a word or ggml's number."""
    require = requirer("ggml_interpolate_impl")
    require(mode & 255 < N_MODES, "(mode & 0xFF) < GGML_SCALE_MODE_COUNT", "there is no mode {}", mode & 255)
    condition = "!(mode & GGML_SCALE_FLAG_ANTIALIAS) || (mode & 0xFF) == GGML_SCALE_MODE_BILINEAR"
    require(mode & ANTIALIAS == 0 or mode & 255 == BILINEAR, condition, "antialias goes with bilinear only")
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    return new_tensor(ctx, a.type, (ne0, ne1, ne2, ne3)).set_op(Op.UPSCALE, words(mode), a)


@constructor(
    Op.UPSCALE,
    choices={"mode": MODES},
    example="image: f32[8, 8, 2]; upscale(image, scale_factor=2, mode=bilinear)",
    shape="a.type = f32 -> f32[a.ne[0] * scale_factor, a.ne[1] * scale_factor, a.ne[2], a.ne[3]]",
    means={"scale_factor": "how many times as large", "mode": "how values between elements are found"},
    parts=(OpPart("mode but nearest", "2025-04-09", words=(0,)),),
)
def upscale(ctx: Context, a: Tensor, scale_factor: int, mode: int) -> Tensor:
    """ggml_upscale: dimensions 0 and 1 `scale_factor` times as large."""
    why = "the scale factor is {}; it must be 2 or more"
    requirer("ggml_upscale")(scale_factor > 1, "scale_factor > 1", why, scale_factor)
    return interpolate(ctx, a, a.ne[0] * scale_factor, a.ne[1] * scale_factor, a.ne[2], a.ne[3], mode)


def _nearest(xp: Any, n: int, factor: Any) -> Any:
    return (xp.arange(n).astype(xp.float32) / factor).astype(xp.int64)


def _coordinates(xp: Any, n: int, factor: Any, offset: Any) -> Any:
    return (xp.arange(n).astype(xp.float32) + offset) / factor


def _linear(xp: Any, n: int, size: int, factor: Any, offset: Any) -> tuple[Any, Any, Any]:
    """For each of `n` results the two neighbors in a row of `size`, and the share of the second."""
    at = _coordinates(xp, n, factor, offset) - offset
    low = xp.floor(at).astype(xp.int64)
    low, high = xp.clip(low, 0, size - 1), xp.clip(low + 1, 0, size - 1)
    return low, high, xp.clip(at - low.astype(xp.float32), xp.float32(0), xp.float32(1))


def _bilinear(xp: Any, v: Any, dst: Tensor, factors: list[Any], offset: Any) -> Any:
    x0, x1, dx = _linear(xp, dst.ne[0], v.shape[3], factors[0], offset)
    y0, y1, dy = _linear(xp, dst.ne[1], v.shape[2], factors[1], offset)
    upper, lower = v[:, :, y0], v[:, :, y1]
    dy = dy[:, None]
    return (
        upper[..., x0] * (1 - dx) * (1 - dy)
        + upper[..., x1] * dx * (1 - dy)
        + lower[..., x0] * (1 - dx) * dy
        + lower[..., x1] * dx * dy
    )


def _window(xp: Any, n: int, size: int, factor: Any, offset: Any) -> tuple[Any, Any]:
    """For each of `n` results the places of a window in a row of `size`, and their weights; both [n, window]."""
    support = max(xp.float32(1), xp.float32(1) / factor)
    at = _coordinates(xp, n, factor, offset)
    first = xp.maximum((at - support + offset).astype(xp.int64), 0)
    end = xp.minimum((at + support + offset).astype(xp.int64), size)
    width = int(2 * support) + 2
    places = first[:, None] + xp.arange(width)
    distance = (places.astype(xp.float32) - at[:, None] + offset) * (xp.float32(1) / support)
    weights = xp.maximum(1 - xp.abs(distance), xp.float32(0))
    return xp.minimum(places, size - 1), xp.where(places < end[:, None], weights, xp.float32(0))


def _antialiased(xp: Any, v: Any, dst: Tensor, factors: list[Any], offset: Any) -> Any:
    # Elements outside the window must not be touched, not even by a zero weight: they may be infinite.
    for axis, i in ((3, 0), (2, 1)):
        places, weights = _window(xp, dst.ne[i], v.shape[axis], factors[i], offset)
        v = xp.moveaxis(v, axis, -1)[..., places]
        v = xp.where(weights > 0, v * weights, xp.float32(0)).sum(axis=-1)
        total = weights.sum(axis=-1)
        v = xp.moveaxis(xp.where(total > 0, v / total, v), -1, axis)
    return v


def _cubic(xp: Any, n: int, size: int, factor: Any, offset: Any) -> tuple[list[Any], list[Any]]:
    """For each of `n` results the four neighbors in a row of `size`, and their weights (Keys, alpha -0.75)."""
    a = xp.float32(-0.75)

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    at = _coordinates(xp, n, factor, offset) - offset
    low = xp.floor(at).astype(xp.int64)
    d = at - low.astype(xp.float32)
    places = [xp.clip(low + i, 0, size - 1) for i in (-1, 0, 1, 2)]
    return places, [far(d + 1), near(d), near(1 - d), far(2 - d)]


def _bicubic(xp: Any, v: Any, dst: Tensor, factors: list[Any], offset: Any) -> Any:
    places, weights = _cubic(xp, dst.ne[0], v.shape[3], factors[0], offset)
    v = sum(v[..., p] * w for p, w in zip(places, weights, strict=True))
    places, weights = _cubic(xp, dst.ne[1], v.shape[2], factors[1], offset)
    return sum(v[:, :, p] * w[:, None] for p, w in zip(places, weights, strict=True))


@kernel(Op.UPSCALE)
def _upscale(x: Arrays, dst: Tensor) -> None:
    require_elements(dst, *sources_of(dst))
    xp, v = x.xp, operand(x, dst)
    flags = param_i32(dst, 0)
    sizes = v.shape[::-1]
    factors = [xp.float32(n) / xp.float32(m) for n, m in zip(dst.ne, sizes, strict=True)]
    offset = xp.float32(0.5)
    if flags & ALIGN_CORNERS:
        offset = xp.float32(0)
        for i in (0, 1):
            if dst.ne[i] > 1 and sizes[i] > 1:
                factors[i] = xp.float32(dst.ne[i] - 1) / xp.float32(sizes[i] - 1)
    v = v[_nearest(xp, dst.ne[3], factors[3])][:, _nearest(xp, dst.ne[2], factors[2])]
    mode = flags & 0xFF
    if mode == NEAREST:
        out = v[:, :, _nearest(xp, dst.ne[1], factors[1])][..., _nearest(xp, dst.ne[0], factors[0])]
    elif mode == BILINEAR:
        out = (_antialiased if flags & ANTIALIAS else _bilinear)(xp, v, dst, factors, offset)
    elif mode == BICUBIC:
        out = _bicubic(xp, v, dst, factors, offset)
    else:
        raise GgmlAbort("ggml_compute_forward_upscale_f32", "unsupported upscale mode")
    x.put(dst, out)
