"""What the constructor of each op asks of the shapes and types of its sources, and what comes out.

A rule is written as `names: what it asks; … -> type[extents]`. `out(n, k, s, p, d)` is the extent of a convolution,
(n + 2p - d (k - 1) - 1) / s + 1, and `pool(n, k, s, p)` that of a pooling, (n + 2p - k) / s + 1. What begins with a
source that may be left out is asked where it is there; strides are another matter, but for `is contiguous`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class ShapeRule(NamedTuple):
    """What a constructor asks, each in a line, and the type and extents of its result."""

    asks: tuple[str, ...]
    gives: str


_RULES = """
dup, cont, sqr, sqrt, log, sin, cos, silu_back, norm, rms_norm, rms_norm_back, group_norm, l2_norm, scale, \
diag_mask_inf, diag_mask_zero, soft_max_back, clamp, leaky_relu, xielu, map_custom1, map_custom2, map_custom3: \
-> a.type[a.ne]
unary, abs, sgn, neg, step, tanh, elu, relu, sigmoid, gelu, gelu_quick, silu, hardswish, hardsigmoid, exp, expm1, \
softplus, gelu_erf, floor, ceil, round, trunc: a is contiguous in its rows -> a.type[a.ne]
add, sub, mul, div: b repeats into a -> a.type[a.ne]
add_id: a.ne[0] = b.ne[0]; a.ne[1] = ids.ne[0]; a.ne[2] = ids.ne[1]; ids.type = i32 -> a.type[a.ne]
add1: b has one element -> a.type[a.ne]
acc: b has no more elements than a; a is contiguous; a.type = f32; b.type = f32 -> a.type[a.ne]
set: b has no more elements than a -> a.type[a.ne]
sum: -> a.type[1]
sum_rows: -> a.type[1, a.ne[1], a.ne[2], a.ne[3]]
mean: -> f32[1, a.ne[1], a.ne[2], a.ne[3]]
cumsum: a.type = f32 -> a.type[a.ne]
argmax: a is a matrix -> i32[a.ne[1]]
count_equal: a and b have one shape -> i64[1]
repeat: a repeats into ne -> a.type[ne]
repeat_back: ne repeats into a -> a.type[ne]
mul_mat: a.ne[0] = b.ne[0]; b.ne[2] % a.ne[2] = 0; b.ne[3] % a.ne[3] = 0; a is not transposed \
-> f32[a.ne[1], b.ne[1], b.ne[2], b.ne[3]]
mul_mat_id: as.ne[0] = b.ne[0]; as.ne[3] = 1; b.ne[3] = 1; ids.type = i32; ids is a matrix; ids.ne[1] = b.ne[2]; \
ids.ne[0] % b.ne[1] = 0; as is not transposed -> f32[as.ne[1], ids.ne[0], b.ne[2], 1]
out_prod: a.ne[1] = b.ne[1]; b.ne[2] % a.ne[2] = 0; b.ne[3] % a.ne[3] = 0; a is not transposed \
-> f32[a.ne[0], b.ne[0], b.ne[2], b.ne[3]]
cpy: a has as many elements as b -> b.type[b.ne]
cast: -> type[a.ne]
transpose: -> a.type[a.ne[1], a.ne[0], a.ne[2], a.ne[3]]
reshape: a is contiguous; a has as many elements as ne -> a.type[ne]
get_rows: a.ne[2] = b.ne[1]; a.ne[3] = b.ne[2]; b.ne[3] = 1; b.type = i32 \
-> f32, i32 of i32[a.ne[0], b.ne[0], b.ne[1], b.ne[2]]
set_rows: a.ne[0] = b.ne[0]; a.ne[2] = b.ne[2]; a.ne[3] = b.ne[3]; b.ne[1] = c.ne[0]; b.ne[2] % c.ne[1] = 0; \
b.ne[3] % c.ne[2] = 0; c.ne[3] = 1; b.type in (f32, f16); c.type in (i64, i32) -> a.type[a.ne]
diag: a.ne[1] = 1 -> a.type[a.ne[0], a.ne[0], a.ne[2], a.ne[3]]
soft_max: a is contiguous; mask.type in (f16, f32); mask is contiguous; mask.ne[0] = a.ne[0]; mask.ne[1] >= a.ne[1]; \
a.ne[2] % mask.ne[2] = 0; a.ne[3] % mask.ne[3] = 0; sinks.ne[0] = a.ne[2]; sinks.type = f32 -> a.type[a.ne]
rope, rope_back: b is a vector; b.type = i32; b.ne[0] = a.ne[2]; c.type = f32; c.ne[0] >= n_dims / 2 -> a.type[a.ne]
conv_transpose_1d: a.ne[2] = b.ne[1]; a.ne[3] = 1; b is a matrix -> f32[(b.ne[0] - 1) * s0 + a.ne[0], a.ne[1], 1, 1]
conv_2d: a.ne[2] = b.ne[2] -> b.type[out(b.ne[0], a.ne[0], s0, p0, d0), out(b.ne[1], a.ne[1], s1, p1, d1), a.ne[3], \
b.ne[3]]
conv_2d_dw: a.ne[2] = 1; a.ne[3] = b.ne[2] -> b.type[out(b.ne[0], a.ne[0], stride0, pad0, dilation0), \
out(b.ne[1], a.ne[1], stride1, pad1, dilation1), b.ne[2], b.ne[3]]
conv_3d: a.ne[3] = c * oc; b.ne[3] = c * n -> f32[out(b.ne[0], a.ne[0], s0, p0, d0), \
out(b.ne[1], a.ne[1], s1, p1, d1), out(b.ne[2], a.ne[2], s2, p2, d2), oc * n]
conv_transpose_2d: a.ne[3] = b.ne[2] -> f32[(b.ne[0] - 1) * stride + a.ne[0], (b.ne[1] - 1) * stride + a.ne[1], \
a.ne[2], b.ne[3]]
pool_1d: -> f32[pool(a.ne[0], k0, s0, p0), a.ne[1], a.ne[2], a.ne[3]]
pool_2d: -> f32[pool(a.ne[0], k0, s0, p0), pool(a.ne[1], k1, s1, p1), a.ne[2], a.ne[3]]
pool_2d_back: -> f32[af.ne]
upscale: a.type = f32 -> f32[a.ne[0] * scale_factor, a.ne[1] * scale_factor, a.ne[2], a.ne[3]]
pad: -> a.type[a.ne[0] + p0, a.ne[1] + p1, a.ne[2] + p2, a.ne[3] + p3]
pad_reflect_1d: a.type = f32; a is contiguous; p0 < a.ne[0]; p1 < a.ne[0] \
-> f32[a.ne[0] + p0 + p1, a.ne[1], a.ne[2], a.ne[3]]
roll: abs(shift0) < a.ne[0]; abs(shift1) < a.ne[1]; abs(shift2) < a.ne[2]; abs(shift3) < a.ne[3] -> a.type[a.ne]
timestep_embedding: -> f32[dim, timesteps.ne[0], 1, 1]
argsort: -> i32[a.ne]
top_k: k <= a.ne[0] -> i32[k, a.ne[1], a.ne[2], a.ne[3]]
tri: a.type = f32; a is contiguous; a.ne[0] = a.ne[1] -> f32[a.ne]
fill: a.type in (f32, f16); a is contiguous -> a.type[a.ne]
flash_attn_ext: k.ne[0] = q.ne[0]; q.ne[2] % k.ne[2] = 0; q.ne[3] = k.ne[3]; q.ne[3] = v.ne[3]; mask.type = f16; \
mask is contiguous; q.ne[2] % mask.ne[2] = 0; q.ne[3] % mask.ne[3] = 0; sinks.ne[0] = q.ne[2]; sinks.type = f32 \
-> f32[v.ne[0], q.ne[2], q.ne[1], q.ne[3]]
ssm_conv: sx.ne[3] = 1; c is a matrix; sx.ne[1] = c.ne[1] \
-> f32[c.ne[1], sx.ne[0] - c.ne[0] + 1, sx.ne[2], 1]
get_rel_pos: qh = kh; a.ne[1] = 2 * max(qh, kh) - 1 -> f16[a.ne[0], kh, qh, 1]
solve_tri: a.type = f32; b.type = f32; a is contiguous; b is contiguous; a.ne[0] = a.ne[1]; a.ne[1] = b.ne[1]; \
a.ne[2] = b.ne[2]; a.ne[3] = b.ne[3] -> f32[b.ne]
dsv4_hc_pre: x.type = f32; weights.type = f32; x.ne[3] = 1; weights.ne[0] = x.ne[1]; weights.ne[1] = x.ne[2]; \
weights.ne[2] = 1; weights.ne[3] = 1 -> f32[x.ne[0], x.ne[2], 1, 1]
lightning_indexer: q.type = f32; weights.type = f32; mask.type = f16; q.ne[0] = k.ne[0]; k.ne[1] = 1; \
weights.ne[0] = q.ne[1]; weights.ne[1] = q.ne[2]; weights.ne[2] = 1; mask.ne[0] = k.ne[2]; mask.ne[1] = q.ne[2]; \
mask.ne[2] = 1; q.ne[3] = k.ne[3]; weights.ne[3] = k.ne[3]; weights.ne[3] % mask.ne[3] = 0 \
-> f32[k.ne[2], q.ne[2], 1, q.ne[3]]
concat: a.type = b.type; a and b have one shape but for ne[dim] -> a.type[a.ne], with a.ne[dim] + b.ne[dim]
permute: -> a.type[a.ne], with dimension i of a as dimension axis_i
view: -> a.type[ne]
arange: stop > start -> f32[ceil((stop - start) / step)]
get_rows_back: a is a matrix; b is a vector; b.type = i32; a.ne[0] = ne[0] -> f32[ne]
im2col: a.ne[2] = b.ne[2] where is_2D; a.ne[1] = b.ne[1] where not is_2D; b.ne[3] = 1 where not is_2D -> \
dst_type[a.ne[0] * a.ne[1] * a.ne[2], out(b.ne[0], a.ne[0], s0, p0, d0), out(b.ne[1], a.ne[1], s1, p1, d1), b.ne[3]], \
in 1D dst_type[a.ne[0] * a.ne[1], out(b.ne[0], a.ne[0], s0, p0, d0), b.ne[2], 1]
im2col_back: -> f32[ne]
win_part: a.ne[3] = 1; a.type = f32 -> f32[a.ne[0], w, w, ceil(a.ne[1] / w) * ceil(a.ne[2] / w)]
win_unpart: a.type = f32 -> f32[a.ne[0], w0, h0, 1]
add_rel_pos: pw and ph have one shape; pw.ne[3] = a.ne[2]; pw.ne[0] * pw.ne[0] = a.ne[0]; \
pw.ne[1] * pw.ne[2] = a.ne[1]; a is contiguous; pw is contiguous; ph is contiguous; pw.type = f32; ph.type = f32 \
-> a.type[a.ne]
rwkv_wkv6: v and k have one shape but for ne[3]; r and k have one shape but for ne[3]; \
td and k have one shape but for ne[3]; state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; \
k is contiguous; v is contiguous; r is contiguous; tf is contiguous; td is contiguous; state is contiguous -> \
f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]
gated_linear_attn: v and k have one shape but for ne[3]; q and k have one shape but for ne[3]; \
g and k have one shape but for ne[3]; state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; \
k is contiguous; v is contiguous; q is contiguous; g is contiguous; state is contiguous -> \
f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]
rwkv_wkv7: w and k have one shape but for ne[3]; \
v and k have one shape but for ne[3]; a and k have one shape but for ne[3]; b and k have one shape but for ne[3]; \
state.ne[0] * state.ne[2] * state.ne[3] = k.ne[0] * k.ne[0] * k.ne[1]; k is contiguous; v is contiguous; \
r is contiguous; w is contiguous; a is contiguous; b is contiguous; state is contiguous -> \
f32[k.ne[0] * k.ne[1], k.ne[2] + k.ne[0] * state.ne[1], 1, 1]
ssm_scan: dt.ne[0] = x.ne[1]; dt.ne[1] = x.ne[2]; dt.ne[2] = x.ne[3]; dt.ne[3] = 1; s.ne[1] = x.ne[0]; \
s.ne[2] = x.ne[1]; B.ne[0] = s.ne[0]; B.ne[2] = x.ne[2]; B.ne[3] = x.ne[3]; B and C have one shape; ids is a vector; \
ids.ne[0] = x.ne[3]; ids.type = i32; A is a matrix; A.ne[1] = x.ne[1]; A.ne[0] in (1, s.ne[0]); s is contiguous; \
dt is contiguous; A is contiguous -> f32[elements(x) + K * s.ne[0] * s.ne[1] * s.ne[2] * ids.ne[0]]
dsv4_hc_comb: mixes.type = f32; scale.type = f32; base.type = f32; mixes is a matrix; mixes.ne[0] = 24; \
scale is a vector; scale.ne[0] >= 3; base is a vector; base.ne[0] = mixes.ne[0] -> f32[4, 4, mixes.ne[1], 1]
dsv4_hc_post: x.type = f32; residual.type = f32; post.type = f32; comb.type = f32; x is a matrix; \
residual.ne[0] = x.ne[0]; residual.ne[2] = x.ne[1]; residual.ne[3] = 1; post is a matrix; post.ne[0] = residual.ne[1]; \
post.ne[1] = x.ne[1]; comb.ne[0] = residual.ne[1]; comb.ne[1] = residual.ne[1]; comb.ne[2] = x.ne[1]; comb.ne[3] = 1 \
-> f32[x.ne[0], residual.ne[1], x.ne[1], 1]
cross_entropy_loss: a and b have one shape -> a.type[1]
cross_entropy_loss_back: a has one element; b and c have one shape -> b.type[b.ne]
reglu_swapped, geglu_swapped, swiglu_swapped, geglu_erf_swapped, geglu_quick_swapped: a is contiguous from \
dimension 1 on -> a.type[a.ne[0] / 2, a.ne[1], a.ne[2], a.ne[3]]
glu_split, reglu_split, geglu_split, swiglu_split, geglu_erf_split, geglu_quick_split: a is contiguous from \
dimension 1 on; a and b have one shape; a.type = b.type -> a.type[a.ne]
glu, reglu, geglu, swiglu, swiglu_oai, geglu_erf, geglu_quick: a is contiguous from dimension 1 on; \
b is contiguous from dimension 1 on; b and a have one shape; b.type = a.type \
-> a.type[a.ne] with b, else a.type[a.ne[0] / 2, a.ne[1], a.ne[2], a.ne[3]]
"""


@cache
def shape_rules() -> dict[str, ShapeRule]:
    """The rules by the constructor's name; constructors whose results follow from parameters alone have none."""
    out: dict[str, ShapeRule] = {}
    for line in _RULES.strip().splitlines():
        names, _, rule = line.partition(":")
        asks, _, gives = rule.partition("->")
        made = ShapeRule(tuple(part.strip() for part in asks.split(";") if part.strip()), gives.strip())
        out |= {name.strip(): made for name in names.split(",")}
    return out
