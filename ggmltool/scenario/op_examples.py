"""For every op a scenario as small as it can be."""

from __future__ import annotations

from ggmltool.ggml.op import GluOp, UnaryOp

RESULT = "y"
"""The id of an example's node."""

_X = "x: f32[8, 4]"
_INPUT = "x: {type: f32, ne: [8, 4, 2], flags: [input]}"  # a leaf that only views use has no backend without the flag
_SAME = ("a: f32[8, 4]", "b: f32[8, 4]")

_OF_ONE = frozenset(("sqr", "sqrt", "log", "sin", "cos", "sum", "sum_rows", "cumsum", "mean", "argmax"))

_EXAMPLES: dict[str, tuple[str, ...]] = {
    "none": (_X, "sqr(x)"),
    "dup": (_X, "dup(x)"),
    "add": (_X, "bias: f32[8]", "add(x, bias)"),
    "add_id": ("a: f32[8, 2, 4]", "b: f32[8, 16]", "ids: i32[2, 4]", "add_id(a, b, ids)"),
    "add1": (_X, "one: f32[1]", "add1(x, one)"),
    "acc": (_X, "part: f32[8]", "acc(x, part, nb1=32, nb2=128, nb3=128, offset=64)"),
    "count_equal": ("a: i32[8, 4]", "b: i32[8, 4]", "count_equal(a, b)"),
    "sub": (*_SAME, "sub(a, b)"),
    "mul": (_X, "weight: f32[8]", "mul(x, weight)"),
    "div": (*_SAME, "div(a, b)"),
    "repeat": ("row: f32[8]", "repeat(row, ne=[8, 4])"),
    "repeat_back": (_X, "repeat_back(x, ne=[8, 1])"),
    "concat": (*_SAME, "concat(a, b, dim=1)"),
    "silu_back": ("grad: f32[8, 4]", _X, "silu_back(grad, x)"),
    "norm": (_X, "norm(x, eps=1e-5)"),
    "rms_norm": (_X, "rms_norm(x, eps=1e-6)"),
    "rms_norm_back": ("grad: f32[8, 4]", _X, "rms_norm_back(grad, x, eps=1e-6)"),
    "group_norm": ("x: f32[8, 8, 4]", "group_norm(x, n_groups=2, eps=1e-6)"),
    "l2_norm": (_X, "l2_norm(x, eps=1e-6)"),
    "mul_mat": ("w: f16[64, 32]", "x: f32[64, 4]", "mul_mat(w, x)"),
    "mul_mat_id": ("experts: f16[64, 32, 8]", "x: f32[64, 1, 4]", "ids: i32[2, 4]", "mul_mat_id(experts, x, ids)"),
    "out_prod": ("a: f32[8, 4]", "b: f32[16, 4]", "out_prod(a, b)"),
    "scale": (_X, "scale(x, s=0.125)"),
    "set": (_X, "row: f32[8]", "set(x, row, nb1=32, nb2=128, nb3=128, offset=64)"),
    "cpy": (_X, "cache: f16[8, 4]", "cpy(x, cache)"),
    "cont": (_X, "cont(x)"),
    "reshape": (_INPUT, "reshape(x, ne=[4, 2, 8])"),
    "view": (_INPUT, "view(x, ne=[8, 2], nb=[32], offset=64)"),
    "permute": (_INPUT, "permute(x, 0, 2, 1, 3)"),
    "transpose": (_INPUT, "transpose(x)"),
    "get_rows": ("tokens: f16[64, 1000]", "ids: i32[4]", "get_rows(tokens, ids)"),
    "get_rows_back": ("grad: f32[64, 4]", "ids: i32[4]", "get_rows_back(grad, ids, ne=[64, 1000])"),
    "set_rows": ("cache: f16[64, 32]", "rows: f32[64, 4]", "ids: i64[4]", "set_rows(cache, rows, ids)"),
    "diag": ("x: f32[8, 1, 2]", "diag(x)"),
    "diag_mask_inf": ("kq: f32[8, 8, 2]", "diag_mask_inf(kq, n_past=0)"),
    "diag_mask_zero": ("kq: f32[8, 8, 2]", "diag_mask_zero(kq, n_past=0)"),
    "soft_max": ("kq: f32[32, 4, 2]", "mask: f16[32, 4]", "soft_max(kq, mask, scale=0.125)"),
    "soft_max_back": ("grad: f32[8, 4]", "p: f32[8, 4]", "soft_max_back(grad, p)"),
    "rope": ("q: f32[64, 8, 4]", "pos: i32[4]", "rope(q, pos, n_dims=64, mode=neox)"),
    "rope_back": ("grad: f32[64, 8, 4]", "pos: i32[4]", "rope_back(grad, pos, n_dims=64, mode=neox)"),
    "clamp": (_X, "clamp(x, min=-1, max=1)"),
    "conv_transpose_1d": ("kernel: f32[3, 4, 2]", "x: f32[8, 2]", "conv_transpose_1d(kernel, x, s0=2)"),
    "im2col": (
        "kernel: f16[3, 3, 2, 4]",
        "image: f32[8, 8, 2]",
        "im2col(kernel, image, s0=1, s1=1, p0=1, p1=1, d0=1, d1=1, is_2D=true, dst_type=f16)",
    ),
    "im2col_back": (
        "grad: f32[18, 8, 8]",
        "kernel: f32[3, 3, 2, 4]",
        "im2col_back(grad, kernel, ne=[8, 8, 2, 1], s0=1, s1=1, p0=1, p1=1, d0=1, d1=1, is_2D=true)",
    ),
    "im2col_3d": (
        "kernel: f16[3, 3, 3, 8]",
        "volume: f32[8, 8, 8, 2]",
        "im2col_3d(kernel, volume, IC=2, s0=1, s1=1, s2=1, p0=1, p1=1, p2=1, d0=1, d1=1, d2=1, dst_type=f16)",
    ),
    "col2im_1d": ("columns: f32[12, 8]", "col2im_1d(columns, s0=2, oc=4, p0=0)"),
    "conv_2d": ("kernel: f16[3, 3, 2, 4]", "image: f32[8, 8, 2]", "conv_2d(kernel, image, s0=1, s1=1, p0=1, p1=1)"),
    "conv_3d": (
        "kernel: f16[3, 3, 3, 8]",
        "volume: f32[8, 8, 8, 2]",
        "conv_3d(kernel, volume, s0=1, s1=1, s2=1, p0=1, p1=1, p2=1, d0=1, d1=1, d2=1, c=2, n=1, oc=4)",
    ),
    "conv_2d_dw": (
        "kernel: f16[3, 3, 1, 2]",
        "image: f32[8, 8, 2]",
        "conv_2d_dw(kernel, image, stride0=1, stride1=1, pad0=1, pad1=1)",
    ),
    "conv_transpose_2d": (
        "kernel: f16[3, 3, 4, 2]",
        "image: f32[8, 8, 2]",
        "conv_transpose_2d(kernel, image, stride=2)",
    ),
    "pool_1d": (_X, "pool_1d(x, op=max, k0=2, s0=2, p0=0)"),
    "pool_2d": ("image: f32[8, 8, 2]", "pool_2d(image, op=avg, k0=2, k1=2, s0=2, s1=2, p0=0, p1=0)"),
    "pool_2d_back": (
        "grad: f32[4, 4, 2]",
        "image: f32[8, 8, 2]",
        "pool_2d_back(grad, image, op=avg, k0=2, k1=2, s0=2, s1=2, p0=0, p1=0)",
    ),
    "upscale": ("image: f32[8, 8, 2]", "upscale(image, scale_factor=2, mode=bilinear)"),
    "pad": (_X, "pad(x, 0, 2, 0, 0)"),
    "pad_reflect_1d": (_X, "pad_reflect_1d(x, p0=2, p1=2)"),
    "roll": (_X, "roll(x, 1, 0, 0, 0)"),
    "arange": ("arange(start=0, stop=8, step=1)",),
    "timestep_embedding": ("t: f32[4]", "timestep_embedding(t, dim=16, max_period=10000)"),
    "argsort": (_X, "argsort(x, order=desc)"),
    "top_k": (_X, "top_k(x, k=2)"),
    "leaky_relu": (_X, "leaky_relu(x, negative_slope=0.1)"),
    "tri": ("x: f32[8, 8]", "tri(x, type=lower_diag)"),
    "fill": (_X, "fill(x, c=0)"),
    "flash_attn_ext": (
        "q: f32[64, 4, 8]",
        "k: f16[64, 32, 8]",
        "v: f16[64, 32, 8]",
        "mask: f16[32, 4]",
        "flash_attn_ext(q, k, v, mask, scale=0.125)",
    ),
    "ssm_conv": ("sx: f32[7, 128, 1]", "c: f32[4, 128]", "ssm_conv(sx, c)"),
    "ssm_scan": (
        "s: f32[16, 2, 4, 1]",
        "x: f32[2, 4, 3, 1]",
        "dt: f32[4, 3, 1]",
        "A: f32[1, 4]",
        "B: f32[16, 1, 3, 1]",
        "C: f32[16, 1, 3, 1]",
        "ids: i32[1]",
        "ssm_scan(s, x, dt, A, B, C, ids)",
    ),
    "win_part": ("image: f32[8, 4, 4]", "win_part(image, w=2)"),
    "win_unpart": ("windows: f32[8, 2, 2, 4]", "win_unpart(windows, w0=4, h0=4, w=2)"),
    "get_rel_pos": ("distances: f16[8, 7]", "get_rel_pos(distances, qh=4, kh=4)"),
    "add_rel_pos": (
        "kq: f32[4, 4, 2]",
        "pw: f32[2, 2, 2, 2]",
        "ph: f32[2, 2, 2, 2]",
        "add_rel_pos(kq, pw, ph)",
    ),
    "rwkv_wkv6": (
        *(f"{name}: f32[4, 2, 4]" for name in ("k", "v", "r")),
        "tf: f32[4, 2]",
        "td: f32[4, 2, 4]",
        "state: f32[32]",
        "rwkv_wkv6(k, v, r, tf, td, state)",
    ),
    "gated_linear_attn": (
        *(f"{name}: f32[4, 2, 4]" for name in ("k", "v", "q", "g")),
        "state: f32[32]",
        "gated_linear_attn(k, v, q, g, state, scale=0.5)",
    ),
    "rwkv_wkv7": (
        *(f"{name}: f32[64, 2, 4]" for name in ("r", "w", "k", "v", "a", "b")),
        "state: f32[8192]",
        "rwkv_wkv7(r, w, k, v, a, b, state)",
    ),
    "solve_tri": ("a: f32[4, 4]", "b: f32[8, 4]", "solve_tri(a, b)"),
    "gated_delta_net": (
        *(f"{name}: f32[16, 2, 4, 1]" for name in ("q", "k", "v")),
        "g: f32[1, 2, 4, 1]",
        "beta: f32[1, 2, 4, 1]",
        "state: f32[16, 16, 2, 1]",
        "gated_delta_net(q, k, v, g, beta, state)",
    ),
    "lightning_indexer": (
        "q: f32[128, 32, 4]",
        "k: f16[128, 1, 16]",
        "weights: f32[32, 4]",
        "mask: f16[16, 4]",
        "lightning_indexer(q, k, weights, mask)",
    ),
    "dsv4_hc_comb": (
        "mixes: f32[24, 4]",
        "scale: f32[3]",
        "base: f32[24]",
        "dsv4_hc_comb(mixes, scale, base, eps=1e-6, n_iter=4)",
    ),
    "dsv4_hc_pre": (
        "x: f32[8, 4, 2]",
        "weights: f32[4, 2]",
        "dsv4_hc_pre(x, weights)",
    ),
    "dsv4_hc_post": (
        "x: f32[8, 2]",
        "residual: f32[8, 4, 2]",
        "post: f32[4, 2]",
        "comb: f32[4, 4, 2]",
        "dsv4_hc_post(x, residual, post, comb)",
    ),
    "unary": (_X, "unary(x, op=silu)"),
    "map_custom1": (_X, "map_custom1(x)"),
    "map_custom2": (*_SAME, "map_custom2(a, b)"),
    "map_custom3": (*_SAME, "c: f32[8, 4]", "map_custom3(a, b, c)"),
    "custom": (*_SAME, "custom(a, b, type=f32, ne=[8, 4])"),
    "cross_entropy_loss": ("logits: f32[8, 4]", "labels: f32[8, 4]", "cross_entropy_loss(logits, labels)"),
    "cross_entropy_loss_back": (
        "grad: f32[1]",
        "logits: f32[8, 4]",
        "labels: f32[8, 4]",
        "cross_entropy_loss_back(grad, logits, labels)",
    ),
    "opt_step_adamw": (
        "a: {type: f32, ne: [8], flags: [param]}",
        *(f"{name}: f32[8]" for name in ("grad", "m", "v")),
        "params: f32[7]",
        "opt_step_adamw(a, grad, m, v, params)",
    ),
    "opt_step_sgd": (
        "a: {type: f32, ne: [8], flags: [param]}",
        "grad: f32[8]",
        "params: f32[2]",
        "opt_step_sgd(a, grad, params)",
    ),
    "glu": (_X, "glu(x, op=swiglu)"),
    "xielu": (_X, "xielu(x, alpha_n=0.8, alpha_p=0.8, beta=0.5, eps=-1e-6)"),
    "swiglu_oai": ("gate: f32[8, 4]", "up: f32[8, 4]", "swiglu_oai(gate, up, alpha=1.702, limit=7)"),
}
"""The tensors an op needs, each as it stands in a context, and at the end its node."""

_FUNCTION = "computed by a function that Python gives it: load(file).compute(custom={id: function})"

NOTES: dict[str, str] = {
    "none": "a tensor that nothing computes, as those of a context",
    "flash_attn_back": "ggml refuses to build such a node (ggml_flash_attn_back aborts)",
    **{f"map_custom{n}": _FUNCTION for n in range(1, 4)},
    "custom": _FUNCTION,
    "unary": "the functions are listed below the ops; each is written by its own name too",
    "glu": "the functions are listed below the ops; each is written by its own name too",
}
"""What else is to be said of an op."""


def op_example(name: str) -> str | None:
    """A whole scenario with a node of the op, unary or GLU function `name` (lower case), as YAML.

    Of none, which is no node's op, it shows a tensor.
    None for the one op that ggml itself refuses to build (flash_attn_back).
    """
    lines = _EXAMPLES.get(name)
    if lines is None and (name in _OF_ONE or name.upper() in UnaryOp.__members__ or name.upper() in GluOp.__members__):
        lines = (_X, f"{name}(x)")
    if lines is None:
        return None
    *tensors, node = lines
    text = ["ggmltool: 1", "backends: [CPU]"]
    if tensors:
        text += ["contexts:", "  inputs:", "    tensors:", *(f"      {line}" for line in tensors)]
    return "\n".join([*text, "graphs:", "  main:", "    nodes:", f"      {RESULT}: {node}", ""])
