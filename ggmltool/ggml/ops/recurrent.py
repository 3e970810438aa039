"""Recurrences over tokens: state space models (ssm_conv, ssm_scan), and linear attention with a state per head.

Linear attention is rwkv_wkv6, rwkv_wkv7, gated_linear_attn and gated_delta_net: the state of a head is a matrix that
every token fades and adds to. The result has a row of all heads per token, and after those the states behind the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.cpu.mathfn import exp, softplus
from ggmltool.ggml.ops.operands import param_f32, param_i32, requirer, show, sources_of
from ggmltool.ggml.ops.registry import Arrays, OpPart, constructor, float_bits, int64_t, kernel, words
from ggmltool.ggml.tensor import (
    Tensor,
    are_same_shape,
    is_3d,
    is_contiguous,
    is_contiguous_rows,
    is_matrix,
    is_vector,
    nelements,
)

Named = tuple[tuple[str, Tensor], ...]

Step = Callable[[Any, list[Any]], tuple[Any, Any]]
"""(state [seqs, heads, S, S], per source what a token has of it [seqs, heads, S]) -> (output, state)."""


def _build(function: str, ctx: Context, sources: Named, like: Named, k: Tensor, state: Tensor) -> Tensor:
    """The result of a recurrence over k [S, heads, tokens]: `sources` are contiguous, `like` are shaped as k."""
    require = requirer(function)
    for name, t in (*sources, ("state", state)):
        require(is_contiguous(t), f"ggml_is_contiguous({name})", "{:nb} must be contiguous", t)
    size, heads, tokens = k.ne[:3]
    n_seqs = state.ne[1]
    for name, t in like:
        condition = f"{name}->ne[0] == S && {name}->ne[1] == H && {name}->ne[2] == n_tokens"
        require(t.ne[:3] == k.ne[:3], condition, "{:nb} must be [S, heads, tokens], as {:nb}", t, k)
    condition = "ggml_nelements(state) == S * S * H * n_seqs"
    why = "{:nb} must have S * S elements per head of {:nb} and sequence; the sequences are its ne[1]"
    require(nelements(state) == size * size * heads * n_seqs, condition, why, state, k)
    return ctx.new_tensor(F32, (size * heads, tokens + size * n_seqs, 1, 1))


@constructor(
    Op.RWKV_WKV6,
    since="2024-11-07",
    example="k: f32[4, 2, 4]; v: f32[4, 2, 4]; r: f32[4, 2, 4]; tf: f32[4, 2]; td: f32[4, 2, 4]; state: f32[32]; "
    "rwkv_wkv6(k, v, r, tf, td, state)",
    shape="v and k have one shape but for ne[3]; r and k have one shape but for ne[3]; "
    "td and k have one shape but for ne[3]; "
    "state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; k is contiguous; "
    "v is contiguous; r is contiguous; tf is contiguous; td is contiguous; "
    "state is contiguous -> f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]",
)
def rwkv_wkv6(ctx: Context, k: Tensor, v: Tensor, r: Tensor, tf: Tensor, td: Tensor, state: Tensor) -> Tensor:
    """ggml_rwkv_wkv6: k, v, r and the decay td [S, heads, tokens], tf [S, heads], state [S * S * heads, seqs].

    The result is [S * heads, tokens + S * seqs].
    """
    sources = (("k", k), ("v", v), ("r", r), ("tf", tf), ("td", td))
    result = _build("ggml_rwkv_wkv6", ctx, sources, (("v", v), ("r", r), ("td", td)), k, state)
    return result.set_op(Op.RWKV_WKV6, (), k, v, r, tf, td, state)


@constructor(
    Op.GATED_LINEAR_ATTN,
    pack="f:scale",
    since="2025-01-10",
    example="k: f32[4, 2, 4]; v: f32[4, 2, 4]; q: f32[4, 2, 4]; g: f32[4, 2, 4]; state: f32[32]; "
    "gated_linear_attn(k, v, q, g, state, scale=0.5)",
    shape="v and k have one shape but for ne[3]; q and k have one shape but for ne[3]; "
    "g and k have one shape but for ne[3]; "
    "state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; k is contiguous; "
    "v is contiguous; q is contiguous; g is contiguous; "
    "state is contiguous -> f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]",
    means={"scale": "factor of q"},
)
def gated_linear_attn(ctx: Context, k: Tensor, v: Tensor, q: Tensor, g: Tensor, state: Tensor, scale: float) -> Tensor:
    """ggml_gated_linear_attn: k, v, q and the gate g [S, heads, tokens], state [S * S * heads, seqs].

    The result is [S * heads, tokens + S * seqs].
    """
    sources = (("k", k), ("v", v), ("q", q), ("g", g))
    result = _build("ggml_gated_linear_attn", ctx, sources, sources[1:], k, state)
    return result.set_op(Op.GATED_LINEAR_ATTN, words(float_bits(scale)), k, v, q, g, state)


@constructor(
    Op.RWKV_WKV7,
    since="2025-03-18",
    example="r: f32[64, 2, 4]; w: f32[64, 2, 4]; k: f32[64, 2, 4]; v: f32[64, 2, 4]; a: f32[64, 2, 4]; "
    "b: f32[64, 2, 4]; state: f32[8192]; rwkv_wkv7(r, w, k, v, a, b, state)",
    shape="w and k have one shape but for ne[3]; v and k have one shape but for ne[3]; "
    "a and k have one shape but for ne[3]; b and k have one shape but for ne[3]; "
    "state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; k is contiguous; "
    "v is contiguous; r is contiguous; w is contiguous; a is contiguous; b is contiguous; "
    "state is contiguous -> f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]",
)
def rwkv_wkv7(ctx: Context, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """ggml_rwkv_wkv7: r, the decay w, k, v, a, b [S, heads, tokens], state [S * S * heads, seqs].

    The result is [S * heads, tokens + S * seqs].
    """
    sources = (("r", r), ("w", w), ("k", k), ("v", v), ("a", a), ("b", b))
    result = _build("ggml_rwkv_wkv7", ctx, sources, sources[1:], k, state)
    return result.set_op(Op.RWKV_WKV7, (), r, w, k, v, a, b, state)


@constructor(
    Op.GATED_DELTA_NET,
    pack="i:K",
    since="2026-03-07",
    example="q: f32[16, 2, 4, 1]; k: f32[16, 2, 4, 1]; v: f32[16, 2, 4, 1]; g: f32[1, 2, 4, 1]; "
    "beta: f32[1, 2, 4, 1]; state: f32[16, 16, 2, 1]; gated_delta_net(q, k, v, g, beta, state)",
    means={"K": "how many states are kept: the last, and those of the tokens before it"},
)
def gated_delta_net(
    ctx: Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    K: int64_t = 1,  # noqa: N803 - ggml's name
) -> Tensor:
    """ggml_gated_delta_net: q, k [S, heads, tokens, seqs] repeated over v [S, heads, tokens, seqs].

    The logarithm of the decay, g, has one value per head and token or S of them, beta one, state is [S, S, heads,
    seqs]. The result is [S * heads, tokens * seqs + K * S * seqs]: the states after the last K tokens, newest first.
    """
    require = requirer("ggml_gated_delta_net")
    named = (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta), ("state", state))
    for name, t in named[:3]:
        require(is_contiguous_rows(t), f"ggml_is_contiguous_rows({name})", "the rows of {:nb} have gaps", t)
    for name, t in named[3:]:
        require(is_contiguous(t), f"ggml_is_contiguous({name})", "{:nb} must be contiguous", t)
    for name, t in named:
        require(t.type is F32, f"{name}->type == GGML_TYPE_F32", "{:nb} must be f32", t)
    size, heads, tokens, n_seqs = v.ne
    gates = "{:nb} must have 1 or S columns for {:nb}"
    require(g.ne[0] in (1, size), "g->ne[0] == 1 || g->ne[0] == S_v", gates, g, v)
    require(beta.ne[0] == 1, "beta->ne[0] == 1", "{:nb} must have one column", beta)
    for i, (name, n) in enumerate((("S_v", size), ("S_v", size), ("H", heads), ("n_seqs", n_seqs))):
        require(state.ne[i] == n, f"state->ne[{i}] == {name}", "{:nb} must be [S, S, heads, seqs] of {:nb}", state, v)
    require(K >= 1, "K >= 1", f"at least the last state is kept, but K is {K}")
    result = ctx.new_tensor(F32, (size * heads, tokens * n_seqs + K * size * n_seqs, 1, 1))
    return result.set_op(Op.GATED_DELTA_NET, words(K), q, k, v, g, beta, state)


def _too_small(dst: Tensor, t: Tensor, needed: str) -> NotComputable:
    return NotComputable(
        f"ggml_compute_forward_{Op(dst.op).name.lower()}_f32",
        f"{t.label or t.type.name} is too small for {dst.label}",
        explanation=f"{show(t)} must have {needed}; ggml does not check it and reads beyond its end",
    )


def _recur(x: Arrays, dst: Tensor, per_token: list[Tensor], state: Tensor, step: Step) -> None:
    """All sequences token by token, all heads at once; the tokens of a sequence lie behind one another."""
    size, heads, n_tokens = per_token[1].ne[:3]
    n_seqs = state.ne[1]
    if n_tokens == 0:
        return
    if n_seqs == 0 or n_tokens % n_seqs:
        raise NotComputable(
            f"ggml_compute_forward_{Op(dst.op).name.lower()}_f32",
            f"{n_tokens} tokens are not the same number for each of {n_seqs} sequences",
            explanation=f"the sequences are ne[1] of {show(state)}; ggml does not check it and writes elsewhere",
        )
    n = size * heads * n_tokens
    shape = (n_seqs, n_tokens // n_seqs, heads, size)
    for t in per_token:
        if nelements(t) < n:
            raise _too_small(dst, t, f"{n} elements")
    rows = [x.f32(t).reshape(-1)[:n].reshape(shape) for t in per_token]
    now = x.f32(state).reshape(n_seqs, heads, size, size)
    out = x.xp.empty(shape, dtype="float32")
    for i in range(shape[1]):
        out[:, i], now = step(now, [row[:, i] for row in rows])
    result = x.raw(dst, "writes")[0, 0]
    result[:n_tokens] = out.reshape(n_tokens, heads * size)
    result[n_tokens:] = now.reshape(n_seqs * size, heads * size)


def _columns(row: Any, matrix: Any) -> Any:
    """The product of a row vector and a matrix, per head."""
    return (row[..., None, :] @ matrix)[..., 0, :]


def _rows(matrix: Any, column: Any) -> Any:
    """The product of a matrix and a column vector, per head."""
    return (matrix @ column[..., None])[..., 0]


@kernel(Op.RWKV_WKV6)
def rwkv_wkv6_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_rwkv_wkv6: out = r (tf k v + state), state = td state + k v."""
    k_, v_, r_, tf, td, state = sources_of(dst)
    size, heads = v_.ne[:2]
    if nelements(tf) < size * heads:
        raise _too_small(dst, tf, f"{size * heads} elements")
    first = x.f32(tf).reshape(-1)[: size * heads].reshape(heads, size)

    def step(now: Any, token: list[Any]) -> tuple[Any, Any]:
        k, v, r, decay = token
        out = _columns(r, now) + (r * first * k).sum(axis=-1, keepdims=True) * v
        return out, now * decay[..., None] + k[..., None] * v[..., None, :]

    _recur(x, dst, [k_, v_, r_, td], state, step)


@kernel(Op.GATED_LINEAR_ATTN)
def gated_linear_attn_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_gla: state = g state + k v, out = scale q state."""
    *per_token, state = sources_of(dst)
    scale = x.xp.float32(param_f32(dst, 0))

    def step(now: Any, token: list[Any]) -> tuple[Any, Any]:
        k, v, q, gate = token
        now = now * gate[..., None] + k[..., None] * v[..., None, :]
        return _columns(q * scale, now), now

    _recur(x, dst, per_token, state, step)


@kernel(Op.RWKV_WKV7)
def rwkv_wkv7_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_rwkv_wkv7: state = w state + v k + (state a) b, out = state r.

    ggml's vector code takes S to be a multiple of 32 or 64, as the CPU is; for others it computes something else.
    """
    *per_token, state = sources_of(dst)

    def step(now: Any, token: list[Any]) -> tuple[Any, Any]:
        r, decay, k, v, a, b = token
        old = _rows(now, a)
        now = now * decay[..., None, :] + v[..., None] * k[..., None, :] + old[..., None] * b[..., None, :]
        return _rows(now, r), now

    _recur(x, dst, per_token, state, step)


def _repeated(x: Arrays, dst: Tensor, t: Tensor, v: Tensor) -> Any:
    """q or k per sequence, token and head of v: heads in turn (0 1 0 1), sequences in runs (0 0 1 1)."""
    size, heads, tokens, n_seqs = v.ne
    if t.ne[0] < size or t.ne[1] == 0 or t.ne[2] < tokens or t.ne[3] == 0 or n_seqs % t.ne[3]:
        raise _too_small(
            dst, t, f"rows of {size}, {tokens} tokens, and sequences that divide the {n_seqs} of {show(v)}"
        )
    xp = x.xp
    seqs, which = xp.arange(n_seqs) // (n_seqs // t.ne[3]), xp.arange(heads) % t.ne[1]
    return x.f32(t)[:, :tokens, :, :size][seqs[:, None], :, which[None, :]]


@kernel(Op.GATED_DELTA_NET)
def gated_delta_net_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_gated_delta_net: fade the state, correct what it says of k towards v, read it with q.

    Of the states that are kept, those of tokens before the first are left as they are.
    """
    q_, k_, v_, g_, beta_, state = sources_of(dst)
    size, heads, tokens, n_seqs = v_.ne
    for t in (g_, beta_):
        if t.ne[1] < heads or t.ne[2] < tokens or t.ne[3] < n_seqs:
            raise _too_small(dst, t, f"[…, {heads}, {tokens}, {n_seqs}], as {show(v_)} has")
    xp, kept = x.xp, param_i32(dst, 0)
    q, k = (_repeated(x, dst, t, v_) for t in (q_, k_))
    v, beta = x.f32(v_), x.f32(beta_)
    decay = xp.exp(x.f32(g_)[:n_seqs, :tokens, :heads, None, :])
    now = xp.array(x.f32(state))
    result = x.raw(dst, "writes")[0, 0]
    scale = xp.float32(1) / xp.sqrt(xp.float32(size))
    n_rows, n_out = n_seqs * size, n_seqs * tokens
    out = xp.empty((n_seqs, tokens, heads, size), dtype="float32")
    for i in range(tokens):
        now = now * decay[:, i]
        delta = (v[:, i] - _rows(now, k[:, :, i])) * beta[:n_seqs, i, :heads]
        now = now + delta[..., None] * k[:, :, i, None, :]
        out[:, i] = _rows(now, q[:, :, i]) * scale
        slot = tokens - 1 - i
        if slot < kept:
            result[n_out + slot * n_rows : n_out + (slot + 1) * n_rows] = now.reshape(n_rows, -1)
    if tokens == 0 and kept == 1:
        result[:] = now.reshape(n_rows, -1)
    result[:n_out] = out.reshape(n_out, -1)


INT32_MAX = 2**31 - 1


@constructor(
    Op.SSM_CONV,
    since="2024-03-08",
    example="sx: f32[7, 128, 1]; c: f32[4, 128]; ssm_conv(sx, c)",
    shape="sx.ne[3] = 1; c is a matrix; sx.ne[1] = c.ne[1] -> f32[c.ne[1], sx.ne[0] - c.ne[0] + 1, sx.ne[2], 1]",
)
def ssm_conv(ctx: Context, sx: Tensor, c: Tensor) -> Tensor:
    """ggml_ssm_conv: each channel of sx [d_conv - 1 + tokens, d_inner, seqs] with its row of c [d_conv, d_inner].

    The result is [d_inner, tokens, seqs].
    """
    require = requirer("ggml_ssm_conv")
    require(is_3d(sx), "ggml_is_3d(sx)", "{:nb} must have no fourth dimension", sx)
    require(is_matrix(c), "ggml_is_matrix(c)", "{:nb} must be a matrix", c)
    n_t = sx.ne[0] - c.ne[0] + 1
    require(sx.ne[1] == c.ne[1], "sx->ne[1] == d_inner", "{:nb} and {:nb} must have the same channels, ne[1]", sx, c)
    require(n_t >= 0, "n_t >= 0", "the rows of {:nb} are shorter than those of the kernel {:nb}", sx, c)
    return ctx.new_tensor(F32, (c.ne[1], n_t, sx.ne[2])).set_op(Op.SSM_CONV, (), sx, c)


@constructor(
    Op.SSM_SCAN,
    pack="i:K",
    since="2024-03-08",
    example="s: f32[16, 2, 4, 1]; x: f32[2, 4, 3, 1]; dt: f32[4, 3, 1]; A: f32[1, 4]; B: f32[16, 1, 3, 1]; "
    "C: f32[16, 1, 3, 1]; ids: i32[1]; ssm_scan(s, x, dt, A, B, C, ids)",
    shape="dt.ne[0] = x.ne[1]; dt.ne[1] = x.ne[2]; dt.ne[2] = x.ne[3]; dt.ne[3] = 1; s.ne[1] = x.ne[0]; "
    "s.ne[2] = x.ne[1]; B.ne[0] = s.ne[0]; B.ne[2] = x.ne[2]; B.ne[3] = x.ne[3]; B and C have one shape; "
    "ids is a vector; ids.ne[0] = x.ne[3]; ids.type = i32; A is a matrix; A.ne[1] = x.ne[1]; "
    "A.ne[0] in (1, s.ne[0]); s is contiguous; dt is contiguous; "
    "A is contiguous -> f32[elements(x) + K * s.ne[0] * s.ne[1] * s.ne[2] * ids.ne[0]]",
    means={"K": "how many states are kept: the last, and those of the tokens before it"},
    parts=(OpPart("ids of states", "2025-07-02", source=6),),
)
def ssm_scan(
    ctx: Context,
    s: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803 - ggml's name
    B: Tensor,  # noqa: N803 - ggml's name
    C: Tensor,  # noqa: N803 - ggml's name
    ids: Tensor,
    K: int64_t = 1,  # noqa: N803 - ggml's name
) -> Tensor:
    """ggml_ssm_scan: the selective scan over the tokens of each sequence.

    s [d_state, dim, heads, states], of which each sequence starts with the one that ids [seqs] names; x [dim, heads,
    tokens, seqs], dt [heads, tokens, seqs], A [1, heads] (Mamba-2) or [d_state, heads], B and C [d_state, groups,
    tokens, seqs]. The result is one row: the outputs, as x, then the states after the last token and, for K above 1,
    after the K - 1 tokens before it, newest first.
    """
    _check_scan_layout(s, x, dt, A, B, C, ids, K)
    _check_scan_shape(s, x, dt, A, B, ids, K)
    result = ctx.new_tensor(F32, (nelements(x) + K * s.ne[0] * s.ne[1] * s.ne[2] * ids.ne[0],))
    return result.set_op(Op.SSM_SCAN, words(K), s, x, dt, A, B, C, ids)


def _check_scan_layout(s: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ids: Tensor, k: int) -> None:
    require = requirer("ggml_ssm_scan")
    require(k >= 1, "K >= 1", f"at least the last state is kept, but K is {k}")
    require(k <= INT32_MAX, "K <= INT32_MAX", f"K is {k}")
    for name, t in (("s", s), ("dt", dt), ("A", a)):
        require(is_contiguous(t), f"ggml_is_contiguous({name})", "{:nb} must be contiguous", t)
    for name, t in (("x", x), ("B", b), ("C", c)):
        condition = f"{name}->nb[0] == ggml_type_size({name}->type)"
        require(t.nb[0] == t.type.type_size, condition, "the rows of {:nb} have gaps", t)
    for name, t in (("x", x), ("B", b), ("C", c)):
        condition = f"{name}->nb[1] == {name}->ne[0]*{name}->nb[0]"
        require(t.nb[1] == t.ne[0] * t.nb[0], condition, "there are gaps between the rows of {:nb}", t)
    require(are_same_shape(b, c), "ggml_are_same_shape(B, C)", "{:nb} and {:nb} must have the same shape", b, c)
    require(ids.type is I32, "ids->type == GGML_TYPE_I32", "{:nb} must be i32", ids)


def _check_scan_shape(s: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, ids: Tensor, k: int) -> None:
    require = requirer("ggml_ssm_scan")
    _, n_head, n_tokens, n_seqs = x.ne
    steps = "{:nb} must be [heads, tokens, seqs] of {:nb}"
    require(dt.ne[0] == n_head, "dt->ne[0] == n_head", steps, dt, x)
    require(dt.ne[1] == n_tokens, "dt->ne[1] == n_seq_tokens", steps, dt, x)
    require(dt.ne[2] == n_seqs, "dt->ne[2] == n_seqs", steps, dt, x)
    require(is_3d(dt), "ggml_is_3d(dt)", steps, dt, x)
    states = "{:nb} must be [d_state, dim, heads, …] for {:nb}"
    require(s.ne[1] == x.ne[0], "s->ne[1] == head_dim", states, s, x)
    require(s.ne[2] == n_head, "s->ne[2] == n_head", states, s, x)
    groups = "{:nb} must be [d_state, groups, tokens, seqs] for {:nb} and {:nb}"
    require(b.ne[0] == s.ne[0], "B->ne[0] == d_state", groups, b, s, x)
    require(b.ne[2] == n_tokens, "B->ne[2] == n_seq_tokens", groups, b, s, x)
    require(b.ne[3] == n_seqs, "B->ne[3] == n_seqs", groups, b, s, x)
    require(ids.ne[0] == n_seqs, "ids->ne[0] == n_seqs", "{:nb} must name a state per sequence of {:nb}", ids, x)
    require(is_vector(ids), "ggml_is_vector(ids)", "{:nb} must be a vector", ids)
    require(a.ne[1] == n_head, "A->ne[1] == n_head", "{:nb} must have a row per head of {:nb}", a, x)
    require(is_matrix(a), "ggml_is_matrix(A)", "{:nb} must be a matrix", a)
    if a.ne[0] != 1:
        require(a.ne[0] == s.ne[0], "A->ne[0] == d_state", "{:nb} must have 1 or d_state columns, as {:nb}", a, s)
        require(k == 1, "K == 1", "with a decay per state ({:nb}) only the last states can be kept, K=1", a)


@kernel(Op.SSM_CONV)
def ssm_conv_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_ssm_conv: a sliding window over the tokens."""
    sx, c = sources_of(dst)
    values, weights = x.f32(sx)[0], x.f32(c)[0, 0]
    n_t = dst.ne[1]
    out = x.xp.zeros((dst.ne[2], dst.ne[0], n_t), dtype="float32")
    for i in range(c.ne[0]):
        out += values[:, :, i : i + n_t] * weights[:, i, None]
    x.put(dst, out.swapaxes(1, 2))


def _first_states(x: Arrays, s: Tensor, ids: Tensor) -> Any:
    """A copy of the states that the sequences start with."""
    chosen = x.raw(ids)[0, 0, 0]
    wrong = chosen[(chosen < 0) | (chosen >= s.ne[3])] if x.on_host else chosen[:0]
    if wrong.size:
        raise NotComputable(
            "ggml_compute_forward_ssm_scan_f32",
            f"there is no state {int(wrong[0])}",
            explanation=f"{show(ids)} names it, {show(s)} has {s.ne[3]}; ggml does not check it and reads elsewhere",
        )
    return x.f32(s)[chosen]


@kernel(Op.SSM_SCAN)
def ssm_scan_kernel(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_ssm_scan: token by token, all heads of all sequences at once.

    Snapshots of tokens before the first are left as they are.
    """
    s, x_, dt_, a_, b_, c_, ids = sources_of(dst)
    dim, n_head, n_tokens, n_seqs = x_.ne
    n_group = b_.ne[1]
    if n_group == 0 or n_head % n_group:
        why = f"the {n_head} heads of {show(x_)} cannot be parted into the {n_group} groups of {show(b_)}"
        raise GgmlAssert("ggml_compute_forward_ssm_scan_f32", "nh % ng == 0", why)
    xp, per_group = x.xp, n_head // n_group
    steps = softplus(xp, x.f32(dt_)[0])
    inputs, decays = x.f32(x_), x.f32(a_)[0, 0]
    b, c = x.f32(b_), x.f32(c_)
    grouped = (n_seqs, n_group, per_group, dim, s.ne[0])
    state = _first_states(x, s, ids).reshape(grouped)
    row = x.raw(dst, "writes")[0, 0, 0]
    n_out, n_state, kept = nelements(x_), state.size, param_i32(dst, 0)
    outputs = xp.empty((n_seqs, n_tokens, n_head * dim), dtype="float32")
    for t in range(n_tokens):
        step = steps[:, t, :, None]
        decay = exp(xp, step * decays).reshape(n_seqs, n_group, per_group, 1, -1)
        added = (inputs[:, t] * step).reshape(*grouped[:4], 1)
        state = state * decay + b[:, t, :, None, None, :] * added
        flat = state.reshape(n_seqs, n_group, per_group * dim, s.ne[0])
        outputs[:, t] = (flat @ c[:, t, :, :, None]).reshape(n_seqs, -1)
        slot = n_tokens - 1 - t
        if slot < kept:
            row[n_out + slot * n_state : n_out + (slot + 1) * n_state] = state.reshape(-1)
    row[:n_out] = outputs.reshape(-1)
