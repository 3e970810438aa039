"""State space models: ssm_conv, the convolution over the last tokens, and ssm_scan, the selective scan (Mamba)."""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.cpu.mathfn import exp, softplus
from ggmltool.ggml.ops.operands import param_i32, requirer, show, sources_of
from ggmltool.ggml.ops.registry import Arrays, Part, constructor, int64_t, kernel, words
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_3d, is_contiguous, is_matrix, is_vector, nelements

INT32_MAX = 2**31 - 1

_require_conv = requirer("ggml_ssm_conv")
_require_scan = requirer("ggml_ssm_scan")


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
    require = _require_conv
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
    parts=(Part("ids of states", "2025-07-02", source=6),),
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
    require = _require_scan
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
    require = _require_scan
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
