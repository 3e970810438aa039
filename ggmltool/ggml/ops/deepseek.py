"""Ops of DeepSeek's models: lightning_indexer, which scores the keys of sparse attention, and hyper-connections.

With hyper-connections a layer has `hc` residual streams: dsv4_hc_pre sums them into its input, dsv4_hc_comb makes the
matrix that mixes them, dsv4_hc_post mixes them and adds the layer's output.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlCrash
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import param_f32, param_i32, requirer, sources_of
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, float_bits, kernel, words
from ggmltool.ggml.tensor import Tensor

HC = 4
"""The only number of streams that ggml_dsv4_hc_comb takes."""

CHUNK = 1 << 24
"""Scores computed at once, at most (elements)."""


@constructor(
    Op.LIGHTNING_INDEXER,
    since="2026-07-11",
    example="q: f32[128, 32, 4]; k: f16[128, 1, 16]; weights: f32[32, 4]; mask: f16[16, 4]; "
    "lightning_indexer(q, k, weights, mask)",
    shape="q.type = f32; weights.type = f32; mask.type = f16; q.ne[0] = k.ne[0]; k.ne[1] = 1; "
    "weights.ne[0] = q.ne[1]; weights.ne[1] = q.ne[2]; weights.ne[2] = 1; mask.ne[0] = k.ne[2]; "
    "mask.ne[1] = q.ne[2]; mask.ne[2] = 1; q.ne[3] = k.ne[3]; weights.ne[3] = k.ne[3]; "
    "weights.ne[3] % mask.ne[3] = 0 -> f32[k.ne[2], q.ne[2], 1, q.ne[3]]",
)
def lightning_indexer(ctx: Context, q: Tensor, k: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """ggml_lightning_indexer: the sum over heads of weight * relu(q k), plus the mask.

    q [d, heads, tokens, streams], k [d, 1, kv, streams], weights [heads, tokens, 1, streams], mask f16 [kv, tokens, 1,
    streams or a divisor]; the result is [kv, tokens, 1, streams].
    """
    require = requirer("ggml_lightning_indexer")
    require(q.type is F32, "q->type == GGML_TYPE_F32", "{:nb} must be f32", q)
    require(weights.type is F32, "weights->type == GGML_TYPE_F32", "{:nb} must be f32", weights)
    require(mask.type is F16, "mask->type == GGML_TYPE_F16", "{:nb} must be f16: cast it first", mask)
    require(q.ne[0] == k.ne[0], "q->ne[0] == k->ne[0]", "the rows of {:nb} and {:nb} must be equally long", q, k)
    require(mask.ne[0] == k.ne[2], "mask->ne[0] == k->ne[2]", "{:nb} must have a column per key of {:nb}", mask, k)
    why = "{1:nb} must have a column per head of {0:nb}"
    require(q.ne[1] == weights.ne[0], "q->ne[1] == weights->ne[0]", why, q, weights)
    require(k.ne[1] == 1, "k->ne[1] == 1", "{:nb} must have one head", k)
    require(mask.ne[1] == q.ne[2], "mask->ne[1] == q->ne[2]", "{:nb} must have a row per token of {:nb}", mask, q)
    why = "{1:nb} must have a row per token of {0:nb}"
    require(q.ne[2] == weights.ne[1], "q->ne[2] == weights->ne[1]", why, q, weights)
    require(weights.ne[2] == 1, "weights->ne[2] == 1", "ne[2] of {:nb} must be 1", weights)
    require(mask.ne[2] == 1, "mask->ne[2] == 1", "ne[2] of {:nb} must be 1", mask)
    require(q.ne[3] == k.ne[3], "q->ne[3] == k->ne[3]", "{:nb} and {:nb} must have as many streams, ne[3]", q, k)
    streams = "{:nb} and {:nb} must have as many streams, ne[3]"
    require(k.ne[3] == weights.ne[3], "k->ne[3] == weights->ne[3]", streams, k, weights)
    repeats = mask.ne[3] != 0 and weights.ne[3] % mask.ne[3] == 0
    require(repeats, "weights->ne[3] % mask->ne[3] == 0", "{:nb} cannot be repeated over the streams of {:nb}", mask, q)
    return ctx.new_tensor(F32, (k.ne[2], q.ne[2], 1, q.ne[3])).set_op(Op.LIGHTNING_INDEXER, (), q, k, weights, mask)


@constructor(
    Op.DSV4_HC_COMB,
    pack="f:eps i:n_iter",
    since="2026-07-17",
    example="mixes: f32[24, 4]; scale: f32[3]; base: f32[24]; dsv4_hc_comb(mixes, scale, base, eps=1e-6, n_iter=4)",
    shape="mixes.type = f32; scale.type = f32; base.type = f32; mixes is a matrix; mixes.ne[0] = 24; "
    "scale is a vector; scale.ne[0] >= 3; base is a vector; "
    "base.ne[0] = mixes.ne[0] -> f32[4, 4, mixes.ne[1], 1]",
    means={
        "eps": "added to every element and every sum, so that nothing is divided by zero",
        "n_iter": "how often the columns are normalised; between two times the rows are",
    },
)
def dsv4_hc_comb(ctx: Context, mixes: Tensor, scale: Tensor, base: Tensor, eps: float, n_iter: int) -> Tensor:
    """ggml_dsv4_hc_comb: per token a matrix that mixes 4 streams, its rows and columns normalized `n_iter` times.

    mixes [24, tokens], of which the last 16 are the matrix, scale [3 or more], of which it takes the third, base [24];
    the result is [4, 4, tokens].
    """
    require = requirer("ggml_dsv4_hc_comb")
    for name, t in (("mixes", mixes), ("scale", scale), ("base", base)):
        require(t.type is F32, f"{name}->type == GGML_TYPE_F32", "{:nb} must be f32", t)
    require(n_iter > 0, "n_iter > 0", f"n_iter is {n_iter}")
    hc = isqrt(mixes.ne[0] + 1) - 1
    columns = "the rows of {:nb} must have hc * (hc + 2) elements, and hc must be 4: 24"
    require(hc > 0 and hc * (hc + 2) == mixes.ne[0], "hc > 0", columns, mixes)
    require(hc == HC, "hc == 4", columns, mixes)
    require(mixes.ne[2] == 1, "mixes->ne[2] == 1", "{:nb} must be a matrix", mixes)
    require(mixes.ne[3] == 1, "mixes->ne[3] == 1", "{:nb} must be a matrix", mixes)
    require(scale.ne[0] >= 3, "scale->ne[0] >= 3", "{:nb} must have three elements or more", scale)
    for i in (1, 2, 3):
        require(scale.ne[i] == 1, f"scale->ne[{i}] == 1", "{:nb} must be a vector", scale)
    as_long = "{:nb} must be as long as the rows of {:nb}"
    require(base.ne[0] == mixes.ne[0], "base->ne[0] == hc_mix_dim", as_long, base, mixes)
    for i in (1, 2, 3):
        require(base.ne[i] == 1, f"base->ne[{i}] == 1", "{:nb} must be a vector", base)
    result = ctx.new_tensor(F32, (hc, hc, mixes.ne[1]))
    return result.set_op(Op.DSV4_HC_COMB, words(float_bits(eps), n_iter), mixes, scale, base)


@constructor(
    Op.DSV4_HC_PRE,
    pack="f:scale i:gated",
    since="2026-07-17",
    example="x: f32[8, 4, 2]; weights: f32[4, 2]; dsv4_hc_pre(x, weights)",
    shape="x.type = f32; weights.type = f32; x.ne[3] = 1; weights.ne[0] = x.ne[1] where not gated; "
    "weights.ne[1] = x.ne[2] where not gated; weights.ne[2] = 1 where not gated; "
    "weights.ne[3] = 1 -> f32[x.ne[0], x.ne[2], 1, 1]",
    means={
        "scale": "factor of the sum; since September 2026",
        "gated": "whether the weights are gates, one for each element, of which the sigmoid is taken; "
        "since September 2026",
    },
    parts=(
        OpPart("scale", "2026-09-17", words=(0,), before=(0, 1065353216)),
        OpPart("gates", "2026-09-17", words=(1,)),
    ),
    prototype="tt",
)
def dsv4_hc_pre(ctx: Context, x: Tensor, weights: Tensor, scale: float = 1.0, gated: bool = False) -> Tensor:
    """ggml_dsv4_hc_pre: the weighted sum of the streams x [n_embd, hc, tokens], weights [hc, tokens].

    `scale` multiplies the sum; `gated`: the weights [n_embd, hc, tokens] are gates (ggml_dsv4_hc_pre_gated).
    """
    require = requirer("ggml_dsv4_hc_pre")
    require(x.type is F32, "x->type == GGML_TYPE_F32", "{:nb} must be f32", x)
    require(weights.type is F32, "weights->type == GGML_TYPE_F32", "{:nb} must be f32", weights)
    require(x.ne[1] > 0, "hc > 0", "{:nb} must have a stream, ne[1]", x)
    require(x.ne[3] == 1, "x->ne[3] == 1", "{:nb} must have no fourth dimension", x)
    expected = [("hc", x.ne[1]), ("n_tokens", x.ne[2]), ("1", 1), ("1", 1)]
    shape = "[hc, tokens]"
    if gated:
        expected = [("n_embd", x.ne[0]), *expected[:3]]
        shape = "[n_embd, hc, tokens]"
    for i, (name, n) in enumerate(expected):
        require(weights.ne[i] == n, f"weights->ne[{i}] == {name}", f"{{:nb}} must be {shape} of {{:nb}}", weights, x)
    result = ctx.new_tensor(F32, (x.ne[0], x.ne[2]))
    is_told = ctx.rules.streams_are_scaled or gated or scale not in (0, 1)
    params = words(float_bits(scale), int(gated)) if is_told else ()
    return result.set_op(Op.DSV4_HC_PRE, params, x, weights)


@constructor(
    Op.DSV4_HC_PRE,
    since="2026-09-17",
    shape="x.type = f32; gate.type = f32; x.ne[3] = 1; gate and x have one shape -> f32[x.ne[0], x.ne[2], 1, 1]",
)
def dsv4_hc_pre_gated(ctx: Context, x: Tensor, gate: Tensor, scale: float) -> Tensor:
    """ggml_dsv4_hc_pre_gated: `scale` times the sum over the streams of x * sigmoid(gate); gate is shaped as x."""
    return dsv4_hc_pre(ctx, x, gate, scale, gated=True)


@constructor(
    Op.DSV4_HC_POST,
    since="2026-07-17",
    example="x: f32[8, 2]; residual: f32[8, 4, 2]; post: f32[4, 2]; comb: f32[4, 4, 2]; "
    "dsv4_hc_post(x, residual, post, comb)",
    shape="x.type = f32; residual.type = f32; post.type = f32; comb.type = f32; x is a matrix; "
    "residual.ne[0] = x.ne[0]; residual.ne[2] = x.ne[1]; residual.ne[3] = 1; post is a matrix; "
    "post.ne[0] = residual.ne[1]; post.ne[1] = x.ne[1]; comb.ne[0] = residual.ne[1]; "
    "comb.ne[1] = residual.ne[1]; comb.ne[2] = x.ne[1]; "
    "comb.ne[3] = 1 -> f32[x.ne[0], residual.ne[1], x.ne[1], 1]",
)
def dsv4_hc_post(ctx: Context, x: Tensor, residual: Tensor, post: Tensor, comb: Tensor | None = None) -> Tensor:
    """ggml_dsv4_hc_post: stream i becomes post[i] * x + the sum over j of comb[i, j] * stream j.

    x [n_embd, tokens], residual [n_embd, hc, tokens], post [hc, tokens], comb [hc, hc, tokens]; without comb each
    stream keeps its own residual. The result is shaped as residual.
    """
    require = requirer("ggml_dsv4_hc_post")
    if comb is None and not ctx.rules.comb_is_optional:
        why = "this release reads the type of comb, which is not there; later ones go without"
        raise GgmlCrash("ggml_dsv4_hc_post", "a read at the address NULL", why)
    given = [("x", x), ("residual", residual), ("post", post)]
    if comb is not None:
        given.append(("comb", comb))
    for name, t in given:
        require(t.type is F32, f"{name}->type == GGML_TYPE_F32", "{:nb} must be f32", t)
    n_embd, n_tokens = x.ne[:2]
    hc = residual.ne[1]
    require(hc > 0, "hc > 0", "{:nb} must have a stream, ne[1]", residual)
    one, embd, streams, tokens = ("1", 1), ("n_embd", n_embd), ("hc", hc), ("n_tokens", n_tokens)
    shapes = {
        "x": ("[n_embd, tokens]", {2: one, 3: one}),
        "residual": ("[n_embd, hc, tokens]", {0: embd, 2: tokens, 3: one}),
        "post": ("[hc, tokens]", {0: streams, 1: tokens, 2: one, 3: one}),
        "comb": ("[hc, hc, tokens]", {0: streams, 1: streams, 2: tokens, 3: one}),
    }
    for name, t in given:
        shape, expected = shapes[name]
        for i, (text, n) in expected.items():
            require(t.ne[i] == n, f"{name}->ne[{i}] == {text}", "{:nb} must be " + shape, t)
    return ctx.new_tensor(F32, (n_embd, hc, n_tokens)).set_op(Op.DSV4_HC_POST, (), x, residual, post, comb)


@kernel(Op.LIGHTNING_INDEXER)
def lightning_indexer_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_lightning_indexer: a product per stream, some tokens at a time."""
    q, k, weights, mask = sources_of(dst)
    queries, factors, masks, keys = x.f32(q), x.f32(weights), x.f32(mask), x.raw(k)
    n_head, n_tokens = q.ne[1], q.ne[2]
    together = max(1, CHUNK // max(1, n_head * k.ne[2]))
    out = x.xp.empty(dst.ne[::-1], dtype="float32")
    for stream in range(q.ne[3]):
        columns = x.decode(keys[stream, :, 0], k.type).T
        for i in range(0, n_tokens, together):
            tokens = slice(i, i + together)
            scores = queries[stream, tokens] @ columns
            scores = x.xp.where(scores > 0, scores, x.xp.float32(0))
            out[stream, 0, tokens] = (factors[stream, 0, tokens, None, :] @ scores)[:, 0]
            out[stream, 0, tokens] += masks[stream % mask.ne[3], 0, tokens]
    x.put(dst, out)


def _normalised(values: Any, axis: int, eps: Any) -> Any:
    return values * (1 / (values.sum(axis=axis, keepdims=True) + eps))


@kernel(Op.DSV4_HC_COMB)
def dsv4_hc_comb_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_dsv4_hc_comb: softmax of the rows, then columns and rows in turn divided by their sums."""
    mixes, scale, base = sources_of(dst)
    eps, n_iter = x.xp.float32(param_f32(dst, 0)), param_i32(dst, 1)
    values = x.f32(mixes)[0, 0] * x.f32(scale)[0, 0, 0, 2] + x.f32(base)[0, 0, 0]
    comb = values[:, 2 * HC :].reshape(-1, HC, HC)
    comb = x.xp.exp(comb - comb.max(axis=-1, keepdims=True))
    comb = comb * (1 / comb.sum(axis=-1, keepdims=True)) + eps
    comb = _normalised(comb, -2, eps)
    for _ in range(1, n_iter):
        comb = _normalised(_normalised(comb, -1, eps), -2, eps)
    x.put(dst, comb)


@kernel(Op.DSV4_HC_PRE)
def dsv4_hc_pre_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_dsv4_hc_pre."""
    values, weights = (x.f32(t)[0] for t in sources_of(dst))
    scaled = x.rules.streams_are_scaled
    factors = 1 / (1 + x.xp.exp(-weights)) if scaled and param_i32(dst, 1) else weights[0, :, :, None]
    total = (values * factors).sum(axis=-2)
    x.put(dst, total * x.xp.float32(param_f32(dst, 0)) if scaled else total)


@kernel(Op.DSV4_HC_POST)
def dsv4_hc_post_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_dsv4_hc_post."""
    values, residual, post, *comb = (x.f32(t)[0] for t in sources_of(dst))
    mixed = comb[0].swapaxes(-1, -2) @ residual if comb else residual
    x.put(dst, post[0, :, :, None] * values[0, :, None, :] + mixed)
