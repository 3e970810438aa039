"""Attention in one op: flash_attn_ext, softmax(scale * q k + slope * mask) v, with soft cap and sinks."""

from __future__ import annotations

from math import gcd
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.cpu.mathfn import on_host
from ggmltool.ggml.ops.cpu.vec_dot import as_dotted
from ggmltool.ggml.ops.matmul import PREC
from ggmltool.ggml.ops.operands import param_f32, requirer, show
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, float_bits, kernel, words
from ggmltool.ggml.ops.softmax import alibi_slopes
from ggmltool.ggml.tensor import Tensor, can_mul_mat, is_contiguous
from ggmltool.ggml.values.product import times

Q_TILE = 64
"""From so many queries on the CPU multiplies in tiles, in f32 without rounding the queries (ggml_fa_tile_config::Q)."""

CHUNK = 1 << 24
"""Scores computed at once, at most (elements)."""

_MINUS_INFINITY = 0xFC00
"""The bits of the f16 that a mask has where a query does not see a key."""


@constructor(
    Op.FLASH_ATTN_EXT,
    pack="f:scale f:max_bias f:logit_softcap i:prec i:n_kv_max",
    choices={"prec": PREC},
    since="2024-04-30",
    example="q: f32[64, 4, 8]; k: f16[64, 32, 8]; v: f16[64, 32, 8]; mask: f16[32, 4]; "
    "flash_attn_ext(q, k, v, mask, scale=0.125)",
    shape="k.ne[0] = q.ne[0]; q.ne[2] % k.ne[2] = 0; q.ne[3] = k.ne[3]; q.ne[3] = v.ne[3]; mask.type = f16; "
    "mask is contiguous; q.ne[2] % mask.ne[2] = 0; q.ne[3] % mask.ne[3] = 0; sinks.ne[0] = q.ne[2]; "
    "sinks.type = f32 -> f32[v.ne[0], q.ne[2], q.ne[1], q.ne[3]]",
    means={
        "scale": "factor of the scores",
        "max_bias": "largest slope of ALiBi; 0 for no slopes",
        "logit_softcap": "scores become softcap * tanh(score / softcap); 0 for not at all",
        "prec": "precision of the sums; all but default and f32 since September 2026",
        "n_kv_max": "how many keys at most a row of the mask shows, 0 where unknown; since September 2026",
    },
    parts=(
        OpPart("sinks", "2025-08-05", source=4),
        OpPart("n_kv_max", "2026-09-05", words=(4,)),
        OpPart("prec but default and f32", "2026-09-12", words=(3,), before=(0, 10)),
    ),
    prototype="ttttfff",
)
def flash_attn_ext(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float,
    max_bias: float = 0.0,
    logit_softcap: float = 0.0,
    prec: int = 0,
    n_kv_max: int = 0,
) -> Tensor:
    """ggml_flash_attn_ext, with what ggml_flash_attn_ext_add_sinks, ggml_prec_set_acc (before: _set_prec) and
    ggml_flash_attn_ext_set_n_kv_max set; the last is how many keys at most a row of the mask shows, 0 where unknown.

    q [dk, queries, heads, batch], k [dk, kv, kv heads, batch], v [dv, kv, kv heads, batch], mask f16 [kv, queries],
    sinks f32 [heads]; result [dv, heads, queries, batch], permuted as ggml says.
    """

    require = requirer("ggml_flash_attn_ext")

    def refuse(condition: str, why: str, function: str = "ggml_flash_attn_ext") -> GgmlAssert:
        return GgmlAssert(function, condition, why)

    why = "{} and {}: the rows must be equally long, and the heads of q a multiple of k's"
    require(can_mul_mat(k, q), "ggml_can_mul_mat(k, q)", why, k, q)
    require(q.ne[3] == k.ne[3], "q->ne[3] == k->ne[3]", "{} and {} must have the same ne[3]", q, k)
    require(q.ne[3] == v.ne[3], "q->ne[3] == v->ne[3]", "{} and {} must have the same ne[3]", q, v)
    if mask is not None:
        require(mask.type is F16, "mask->type == GGML_TYPE_F16", "the mask must be f16, not {}: cast it first", mask)
        require(is_contiguous(mask), "ggml_is_contiguous(mask)", "{:nb} must be contiguous", mask)
        for i in (2, 3):
            why = "{} cannot be repeated over {}"
            require(mask.ne[i] != 0 and q.ne[i] % mask.ne[i] == 0, f"q->ne[{i}] % mask->ne[{i}] == 0", why, mask, q)
    elif max_bias > 0:
        raise refuse("mask", f"max_bias {max_bias} weighs a mask, but there is none")
    if sinks is not None:
        function = "ggml_flash_attn_ext_add_sinks"
        why = "{} must have one sink per head of {}"
        requirer(function)(q.ne[2] == sinks.ne[0], "a->src[0]->ne[2] == sinks->ne[0]", why, sinks, q)
        requirer(function)(sinks.type is F32, "sinks->type == GGML_TYPE_F32", "the sinks must be f32, not {}", sinks)
    if n_kv_max < 0:
        function = "ggml_flash_attn_ext_set_n_kv_max"
        raise refuse("n_kv_max >= 0", f"n_kv_max is {n_kv_max}; it is a number of keys, or 0", function)
    result = ctx.new_tensor(F32, (v.ne[0], q.ne[2], q.ne[1], q.ne[3]))
    params = words(float_bits(scale), float_bits(max_bias), float_bits(logit_softcap), prec, n_kv_max)
    return result.set_op(Op.FLASH_ATTN_EXT, params, q, k, v, mask, sinks)


@constructor(
    Op.FLASH_ATTN_BACK,
    by_name_only=True,
    means={"masked": "whether keys behind a query are hidden from it"},
    note="ggml refuses to build such a node (ggml_flash_attn_back aborts)",
)
def flash_attn_back(ctx: Context, q: Tensor, k: Tensor, v: Tensor, d: Tensor, masked: bool) -> Tensor:
    """ggml_flash_attn_back: ggml 0.20.2 aborts, whatever it is given."""
    raise GgmlAbort(
        "ggml_flash_attn_back",
        "TODO: adapt to ggml_flash_attn_ext() changes",
        explanation="ggml 0.20.2 has no gradient of flash attention, and refuses to build such a node; build the "
        "attention of mul_mat and soft_max, whose gradients it has",
    )


def _require_computable(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    function = "ggml_compute_forward_flash_attn_ext_f16"
    if v.ne[2] == 0 or q.ne[2] % v.ne[2] or v.ne[1] < k.ne[1]:
        raise NotComputable(
            function, "keys and values do not match", explanation=f"{show(v)} must have a row for each row of {show(k)}"
        )
    if mask is not None and (mask.ne[0] < k.ne[1] or mask.ne[1] < q.ne[1]):
        raise NotComputable(
            function,
            "the mask is too small",
            explanation=f"{show(mask)} must have a column for each of {k.ne[1]} keys and a row for each of {q.ne[1]} "
            "queries; ggml does not check it and reads beyond its end",
        )


def _seen(xp: Any, mask: Any, n_kv: int) -> slice:
    """The keys from the first to the last that the mask [..., queries, kv] lets any query see, of `n_kv`.

    Only the host looks: a device would have to wait for the answer.
    """
    if not on_host(xp):
        return slice(0, n_kv)
    seen = xp.flatnonzero((mask.view(xp.uint16)[..., :n_kv] != _MINUS_INFINITY).any(axis=(0, 1, 2)))
    return slice(int(seen[0]), int(seen[-1]) + 1) if seen.size else slice(0, 0)


def _attend(xp: Any, scores: Any, values: Any, sinks: Any) -> Any:
    """Softmax of scores [heads, queries, kv] times values [kv, dv]; a row without any key gives zeros."""
    largest = scores.max(axis=-1, keepdims=True) if scores.shape[-1] else xp.full((*scores.shape[:2], 1), -xp.inf)
    if sinks is not None:
        largest = xp.maximum(largest, sinks[:, None, None])
    weights = xp.exp(scores - xp.where(largest == -xp.inf, 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + xp.exp(sinks[:, None, None] - largest)
    return _rows_times(weights, values) * xp.where(total == 0, 0, 1 / xp.where(total == 0, 1, total))


def _rows_times(rows: Any, matrix: Any) -> Any:
    """rows [heads, queries, n] times matrix [n, m], as one product."""
    heads, queries, n = rows.shape
    return times(rows.reshape(heads * queries, n), matrix).reshape(heads, queries, matrix.shape[-1])


@kernel(Op.FLASH_ATTN_EXT)
def flash_attn_ext_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_flash_attn_ext: heads that share keys and values are computed together."""
    q, k, v, mask, sinks = (*dst.src, None, None)[:5]
    if q is None or k is None or v is None or 0 in dst.ne:
        return
    _require_computable(q, k, v, mask)
    xp = x.xp
    scale, max_bias, softcap = (xp.float32(param_f32(dst, i)) for i in range(3))
    if softcap != 0:
        scale = scale / softcap
    queries = x.f32(q)
    tiled = k.type in (F32, F16) and v.type is k.type and q.ne[1] >= Q_TILE
    if not tiled and x.on_host:
        queries = as_dotted(x, queries, k.type.vec_dot_type or "f32")
    n_kv, n_q, n_heads = k.ne[1], q.ne[1], q.ne[2]
    raw_k, raw_v = x.raw(k), x.raw(v)
    masks = None if mask is None else x.raw(mask)[..., :n_q, :]
    seen = slice(0, n_kv) if masks is None else _seen(xp, masks, n_kv)
    slopes = alibi_slopes(xp, float(max_bias), n_heads)
    sink = None if sinks is None else x.f32(sinks).reshape(-1)
    together = gcd(n_heads // k.ne[2], n_heads // v.ne[2])
    step = max(1, CHUNK // max(1, together * n_kv))
    out = xp.empty(dst.ne[::-1], dtype="float32")
    for i3 in range(q.ne[3]):
        for h in range(0, n_heads, together):
            heads = slice(h, h + together)
            keys = x.decode(raw_k[i3, h // (n_heads // k.ne[2]), seen], k.type)
            values = x.decode(raw_v[i3, h // (n_heads // v.ne[2]), seen], v.type)
            for i in range(0, n_q, step):
                rows = slice(i, min(i + step, n_q))
                scores = _rows_times(queries[i3, heads, rows], keys.T) * scale
                if softcap != 0:
                    scores = softcap * xp.tanh(scores)
                if masks is not None and mask is not None:
                    which = xp.arange(h, h + together) % mask.ne[2]
                    bias = masks[i3 % mask.ne[3], which, rows, seen].astype("float32")
                    bias = bias * slopes[heads, None, None]
                    scores = xp.where(bias == -xp.inf, -xp.inf, scores + bias).astype("float32")
                part = _attend(xp, scores, values, None if sink is None else sink[heads])
                out[i3, rows, heads] = part.swapaxes(0, 1)
    x.put(dst, out)
