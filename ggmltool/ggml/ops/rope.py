"""Rotary position embedding: rope, rope_ext, rope_multi, rope_custom and their backward twins.

Each pair of a row's elements is turned by an angle that grows with the token's position and falls with the pair's
number. The modes differ in which elements are a pair and, for several positions per token, in which position counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import not_computable, param_f32, param_i32, requirer, same_as, show, taking
from ggmltool.ggml.ops.registry import (
    Arrays,
    Build,
    Constructor,
    OpPart,
    Raw,
    constructor,
    float_bits,
    float_of,
    kernel,
    words,
)
from ggmltool.ggml.tensor import Tensor, is_vector

NORMAL, NEOX, MROPE, VISION, IMROPE = 0, 2, 8, 24, 40
MODES = {"normal": NORMAL, "norm": NORMAL, "neox": NEOX, "mrope": MROPE, "vision": VISION, "imrope": IMROPE}
"""ggml_rope_type; every mode with the bit MROPE has four positions per token."""

N_SECTIONS = 4

OFFSET = 15
"""The word of op_params that says how many elements of a row stay before those that are turned."""

_CHOICES = {"mode": MODES}
_MEANS = {
    "n_dims": "elements of each row that are turned",
    "mode": "which elements of a row are a pair",
    "n_ctx_orig": "context length of the training (YaRN)",
    "freq_base": "base of the frequencies",
    "freq_scale": "factor of the positions",
    "ext_factor": "how much is extrapolated (YaRN); 0 for not at all",
    "attn_factor": "factor of the cosines and sines",
    "beta_fast": "turns from which on a dimension is extrapolated (YaRN)",
    "beta_slow": "turns up to which a dimension is interpolated (YaRN)",
    "sections": "pairs that each of a token's four positions turns",
    "offset": "elements of each row before those that are turned; since August 2026",
}
_SHAPE = "b is a vector; b.type = i32; b.ne[0] = a.ne[2]; c.type = f32; c.ne[0] >= n_dims / 2 -> a.type[a.ne]"
_PARTS = (OpPart("offset", "2026-08-19", words=(OFFSET,)),)


def _read_params(raw: Raw) -> dict[str, Any]:
    """The parameters of a ROPE or ROPE_BACK node."""
    ints = {"n_dims": 1, "mode": 2, "n_ctx_orig": 4, "offset": OFFSET}
    floats = {"freq_base": 5, "freq_scale": 6, "ext_factor": 7, "attn_factor": 8, "beta_fast": 9, "beta_slow": 10}
    out: dict[str, Any] = {name: raw.word(i) for name, i in ints.items()}
    out |= {name: float_of(raw.word(i)) for name, i in floats.items()}
    out["sections"] = [raw.word(11 + i) for i in range(N_SECTIONS)]
    return out


def _require(a: Tensor, b: Tensor, c: Tensor | None, n_dims: int, mode: int) -> None:
    """The assertions of ggml_rope_impl."""

    require = requirer("ggml_rope_impl")

    def refuse(condition: str, why: str) -> GgmlAssert:
        return GgmlAssert("ggml_rope_impl", condition, why)

    require(mode & 1 == 0, '(mode & 1) == 0 && "mode & 1 == 1 is no longer supported"', "the mode {} is odd", mode)
    require(is_vector(b), "ggml_is_vector(b)", "the positions {} must be a vector", b)
    require(b.type is I32, "b->type == GGML_TYPE_I32", "the positions must be i32, not {}", b)
    if mode & MROPE:
        why = "{} must have four positions for each of the {} tokens of {}"
        require(a.ne[2] * N_SECTIONS == b.ne[0], "a->ne[2] * 4 == b->ne[0]", why, b, a.ne[2], a)
    elif a.ne[2] != b.ne[0]:
        raise refuse(
            "a->ne[2] == b->ne[0]",
            f"{show(b)} must have a position for each of the {a.ne[2]} tokens (ne[2]) of {show(a)}",
        )
    if c is not None:
        require(c.type is F32, "c->type == GGML_TYPE_F32", "the frequency factors must be f32, not {}", c)
        why = "{} must have a factor for each of {} pairs"
        require(c.ne[0] >= int(n_dims / 2), "c->ne[0] >= n_dims / 2", why, c, n_dims // 2)


def _require_offset(offset: int, mode: int) -> None:
    """The assertions of ggml_rope_set_offset, which is called where there is an offset."""
    require = requirer("ggml_rope_set_offset")
    require(offset >= 0, "n_offs >= 0", "the offset is {}; it is a number of elements", offset)
    why = "vision turns whole rows: there is no offset"
    require(not offset or mode != VISION, "mode != GGML_ROPE_TYPE_VISION", why)


@constructor(
    Op.ROPE,
    "rope",
    "rope_ext",
    canonical=True,
    inplace=True,
    unpack=_read_params,
    choices=_CHOICES,
    example="q: f32[64, 8, 4]; pos: i32[4]; rope(q, pos, n_dims=64, mode=neox)",
    shape=_SHAPE,
    means=_MEANS,
    parts=_PARTS,
    prototype={"rope": "ttii", "rope_ext": "tttiiiffffff"},
)
def rope_ext(
    ctx: Context,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    n_dims: int,
    mode: int,
    n_ctx_orig: int = 0,
    freq_base: float = 10000.0,
    freq_scale: float = 1.0,
    ext_factor: float = 0.0,
    attn_factor: float = 1.0,
    beta_fast: float = 0.0,
    beta_slow: float = 0.0,
    sections: Sequence[int] = (),
    offset: int = 0,
    inplace: bool = False,
) -> Tensor:
    """ggml_rope_ext; ggml_rope where only `n_dims` and `mode` are given.

    a [row, heads, tokens, batch], b the positions (i32), c factors of the frequencies. Of each row `n_dims` elements
    are turned, from `offset` on (ggml_rope_set_offset). `sections` count the pairs that each of a token's four
    positions turns (ggml_rope_multi).
    """
    _require(a, b, c, n_dims, mode)
    if len(sections) > N_SECTIONS:
        raise ValueError(f"rope has {N_SECTIONS} sections, not {len(sections)}")
    result = same_as(ctx, a, inplace)
    _require_offset(offset, mode)
    floats = [float_bits(f) for f in (freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow)]
    used = [*sections, 0, 0, 0, 0][:N_SECTIONS] if mode & MROPE else [0] * N_SECTIONS
    params = words(0, n_dims, mode, 0, n_ctx_orig, *floats, *used, offset)
    return result.set_op(Op.ROPE, params, a, b, c)


def _rope_back(**given: Any) -> Tensor:
    """The turn of rope_ext, backwards."""
    result = rope_ext(**given)
    return result.set_op(Op.ROPE_BACK, result.op_params, *result.src)


_OWN = inspect.signature(rope_ext).parameters
_FLOATS = "freq_base freq_scale ext_factor attn_factor beta_fast beta_slow"
_EXT = f"ctx a b c n_dims mode n_ctx_orig {_FLOATS} sections offset"
_MULTI = f"ctx a b c n_dims sections mode n_ctx_orig {_FLOATS} offset"
_CUSTOM = f"n_dims mode n_ctx_orig {_FLOATS}"


def _like(build: Build, names: str, about: str, required: str = "") -> Build:
    """A constructor with these of rope_ext's parameters, in this order, some of which are required."""
    given = (_OWN[name] for name in names.split())
    return taking(build, [p.replace(default=p.empty) if p.name in required.split() else p for p in given], about)


_OF_SECTIONS = Constructor(Op.ROPE, unpack=_read_params, choices=_CHOICES, prototype="tttipiiffffff")

replace(_OF_SECTIONS, name="rope_multi", inplace=True)(
    _like(rope_ext, f"{_MULTI} inplace", "ggml_rope_multi: rope_ext for tokens with four positions.", "sections")
)
constructor(Op.ROPE, "rope_custom", inplace=True, choices=_CHOICES)(
    _like(rope_ext, f"ctx a b {_CUSTOM} inplace", "ggml_rope_custom: rope_ext without frequency factors.", _CUSTOM)
)
constructor(
    Op.ROPE_BACK,
    "rope_back",
    "rope_ext_back",
    unpack=_read_params,
    choices=_CHOICES,
    example="grad: f32[64, 8, 4]; pos: i32[4]; rope_back(grad, pos, n_dims=64, mode=neox)",
    shape=_SHAPE,
    means=_MEANS,
    parts=_PARTS,
    prototype={"rope_ext_back": "tttiiiffffff"},
)(_like(_rope_back, _EXT, "ggml_rope_ext_back: the turn of rope_ext, backwards."))
replace(_OF_SECTIONS, op=Op.ROPE_BACK, name="rope_multi_back")(
    _like(_rope_back, _MULTI, "ggml_rope_multi_back: the turn of rope_multi, backwards.", "sections")
)


def yarn_corr_dims(
    n_dims: int, n_ctx_orig: int, freq_base: float, beta_fast: float, beta_slow: float
) -> tuple[float, float]:
    """ggml_rope_yarn_corr_dims: the pairs between which YaRN mixes interpolation and extrapolation.

    In float32 throughout, so that rounding to whole pairs goes the same way.
    """
    import numpy as np

    f32 = np.float32
    two_pi = f32(2) * f32(np.pi)

    def corr_dim(n_rot: float) -> np.float32:
        logarithm = np.log(f32(n_ctx_orig) / (f32(n_rot) * two_pi))
        return f32(f32(n_dims) * logarithm / (f32(2) * np.log(f32(freq_base))))

    start, end = float(np.floor(corr_dim(beta_fast))), float(np.ceil(corr_dim(beta_slow)))
    return (0.0 if start < 0 else start, min(end, n_dims - 1))


def _angles(xp: Any, positions: Any, theta_scale: Any, sections: Sequence[int], mode: int, n: int) -> Any:
    """The angle of each token (axis 0) and pair (axis 1), before scaling.

    ggml multiplies the angle by theta_scale from pair to pair in float32; a running product does the same steps.
    `positions` is [tokens], or [4, tokens] where the mode has several.
    """

    def running(start: Any, count: int) -> Any:
        steps = xp.full((start.shape[0], count), theta_scale, dtype="float32")
        if count:
            steps[:, 0] = start
        return xp.cumprod(steps, axis=1, dtype="float32")

    if not mode & MROPE:
        return running(positions.astype("float32"), n)
    total = sum(sections)
    which = [_position_of(pair % total, sections, mode) for pair in range(n)]
    if mode != VISION:
        by_position = [running(p.astype("float32"), n) for p in positions]
        return xp.stack([by_position[w][:, i] for i, w in enumerate(which)], axis=1)
    # With independent sections each angle starts anew where its section does.
    starts = [0, sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]]
    since = [0, 0, 0, 0]
    columns = []
    by_position = [running(p.astype("float32"), n) for p in positions]
    for pair in range(n):
        for p in range(N_SECTIONS):
            if pair % total == starts[p] and pair % total not in starts[:p]:
                since[p] = 0
        columns.append(by_position[which[pair]][:, since[which[pair]]])
        since = [s + 1 for s in since]
    return xp.stack(columns, axis=1)


def _position_of(sector: int, sections: Sequence[int], mode: int) -> int:
    """Which of a token's four positions turns the pair in this place of the sections."""
    if mode == IMROPE:
        for p in (1, 2, 0):
            if sector % 3 == p and sector < 3 * sections[p]:
                return p
        return 3
    if sector < sections[0]:
        return 0
    if sector < sections[0] + sections[1]:
        return 1
    return 2 if sector < sections[0] + sections[1] + sections[2] else 3


def _cos_sin(x: Arrays, dst: Tensor, positions: Any, factors: Any, n: int) -> tuple[Any, Any]:
    """The cosine and sine of each token and pair, scaled (ggml_rope_cache_init, ggml_mrope_cache_init, rope_yarn)."""
    xp = x.xp
    one = xp.float32(1)
    n_dims, mode, n_ctx_orig = (param_i32(dst, i) for i in (1, 2, 4))
    base, scale, ext_factor, attn_factor, beta_fast, beta_slow = (xp.float32(param_f32(dst, i)) for i in range(5, 11))
    sections = [param_i32(dst, 11 + i) for i in range(N_SECTIONS)]
    theta_scale = base ** xp.float32(-2.0 / n_dims) if n_dims else one
    extrapolated = _angles(xp, positions, theta_scale, sections, mode, n)
    if factors is not None:
        if len(factors) < n:
            raise not_computable(dst, f"it has {len(factors)} frequency factors for {n} pairs")
        extrapolated = extrapolated / factors[:n]
    theta = scale * extrapolated
    magnitude = attn_factor
    if ext_factor != 0:
        low, high = yarn_corr_dims(n_dims, n_ctx_orig, float(base), float(beta_fast), float(beta_slow))
        ramp = (xp.arange(n, dtype="float32") - xp.float32(low)) / xp.float32(max(high - low, 0.001))
        mix = (one - xp.clip(ramp, 0, 1)) * ext_factor
        # ggml is compiled with fused multiply-add: the first product is not rounded, which shows in large angles.
        theta = (theta.astype("float64") * (one - mix) + extrapolated * mix).astype("float32")
        magnitude = magnitude * (one + xp.float32(0.1) * xp.log(one / scale))
    sign = one if dst.op == Op.ROPE else -one
    return xp.cos(theta) * magnitude, xp.sin(theta) * magnitude * sign


def _require_sections(dst: Tensor) -> None:
    sections = [param_i32(dst, 11 + i) for i in range(N_SECTIONS)]
    if param_i32(dst, 2) & MROPE and sum(sections) <= 0:
        raise NotComputable(
            "ggml_mrope_cache_init",
            f"the sections {sections} add up to {sum(sections)}",
            explanation="ggml divides by the sum of the sections",
        )


@kernel(Op.ROPE, Op.ROPE_BACK)
def rope_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_rope: the pairs turned, the rest of each row copied."""
    a, b = dst.src[0], dst.src[1]
    c = dst.src[2] if len(dst.src) > 2 else None
    if a is None or b is None or 0 in dst.ne:
        return
    n_dims, mode = param_i32(dst, 1), param_i32(dst, 2)
    _require_sections(dst)
    values = x.f32(a)
    n = a.ne[0] // 2 if mode == VISION else n_dims // 2
    at = param_i32(dst, OFFSET)
    if not 0 <= 2 * n <= a.ne[0] or not 0 <= at <= a.ne[0] - 2 * n:
        turned = f"n_dims is {n_dims}" + (f" from {at} on" if at else "")
        raise not_computable(dst, f"{turned}, and {show(a)} has rows of {a.ne[0]}")
    if n == 0 and at == 0 and x.on_host and x.rules.rope_has_offset:
        raise not_computable(dst, "n_dims is 0, and ggml, which passes over what it has turned, never comes to an end")
    positions = x.raw(b).reshape(-1)
    if mode & MROPE:
        positions = positions.reshape(N_SECTIONS, a.ne[2])
    cos, sin = _cos_sin(x, dst, positions, None if c is None else x.f32(c).reshape(-1), n)
    cos, sin = cos[None, :, None], sin[None, :, None]
    if mode == NORMAL:
        first, second = slice(at, at + 2 * n, 2), slice(at + 1, at + 2 * n, 2)
    else:
        first, second = slice(at, at + n), slice(at + n, at + 2 * n)
    x0, x1 = values[..., first], values[..., second]
    out = values.copy()
    out[..., first] = x0 * cos - x1 * sin
    out[..., second] = x0 * sin + x1 * cos
    x.put(dst, out)
