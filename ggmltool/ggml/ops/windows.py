"""Windows of an image and relative positions within them, as a vision transformer's attention has them (SAM).

win_part cuts an image into square windows, win_unpart puts them together again; get_rel_pos gives each pair of query
and key the row of its distance, add_rel_pos adds what was made of those rows to the scores. The kernels take their
tensors as contiguous, whatever their strides.
"""

from __future__ import annotations

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import flat, memory, new_tensor, param_i32, requirer, same_as, show, source
from ggmltool.ggml.ops.registry import Arrays, constructor, kernel, words
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous


def _windows(n: int, w: int) -> int:
    """How many windows of `w` elements cover `n`."""
    if w < 1:
        raise ValueError(f"w is {w}; a window has at least one column")
    return -(-n // w)


@constructor(
    Op.WIN_PART,
    unpack=lambda raw: {"w": raw.word(2)} if raw.word(2) > 0 else None,
    example="image: f32[8, 4, 4]; win_part(image, w=2)",
    shape="a.ne[3] = 1; a.type = f32 -> f32[a.ne[0], w, w, ceil(a.ne[1] / w) * ceil(a.ne[2] / w)]",
    means={"w": "columns and rows of a window"},
)
def win_part(ctx: Context, a: Tensor, w: int) -> Tensor:
    """ggml_win_part: a [channels, columns, rows] as windows of w columns and rows, [channels, w, w, windows].

    Windows at the edges are filled up with zeros. op_params: windows per row, per column, w.
    """
    require = requirer("ggml_win_part")
    require(a.ne[3] == 1, "a->ne[3] == 1", "{} must be one image: channels, columns, rows", a)
    require(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    npx, npy = _windows(a.ne[1], w), _windows(a.ne[2], w)
    return ctx.new_tensor(F32, (a.ne[0], w, w, npx * npy)).set_op(Op.WIN_PART, words(npx, npy, w), a)


@constructor(
    Op.WIN_UNPART,
    unpack=lambda raw: {"w0": raw.ne[1], "h0": raw.ne[2], "w": raw.word(0)} if raw.word(0) > 0 else None,
    example="windows: f32[8, 2, 2, 4]; win_unpart(windows, w0=4, h0=4, w=2)",
    shape="a.type = f32 -> f32[a.ne[0], w0, h0, 1]",
    means={"w0": "columns of the image", "h0": "rows of the image", "w": "columns and rows of a window"},
)
def win_unpart(ctx: Context, a: Tensor, w0: int, h0: int, w: int) -> Tensor:
    """ggml_win_unpart: the image [channels, w0, h0] that win_part cut into the windows a of w columns and rows."""
    requirer("ggml_win_unpart")(a.type is F32, "a->type == GGML_TYPE_F32", "{} must be f32", a)
    _windows(w0, w)
    return new_tensor(ctx, F32, (a.ne[0], w0, h0)).set_op(Op.WIN_UNPART, words(w), a)


@constructor(
    Op.GET_REL_POS,
    unpack=lambda raw: {"qh": raw.ne[2], "kh": raw.ne[1]},
    example="distances: f16[8, 7]; get_rel_pos(distances, qh=4, kh=4)",
    shape="qh = kh; a.ne[1] = 2 * max(qh, kh) - 1 -> f16[a.ne[0], kh, qh, 1]",
    means={"qh": "queries in a row or column of the image", "kh": "keys in a row or column of the image"},
)
def get_rel_pos(ctx: Context, a: Tensor, qh: int, kh: int) -> Tensor:
    """ggml_get_rel_pos: for query q and key k row q - k + kh - 1 of a, f16[channels, kh, qh].

    a has a row per distance, 2 * kh - 1 of them.
    """
    require = requirer("ggml_get_rel_pos")
    require(qh == kh, "qh == kh", "{} queries and {} keys: ggml wants as many of both", qh, kh)
    why = "{} positions have {} distances, and {} must have a row for each"
    require(2 * qh - 1 == a.ne[1], "2*MAX(qh, kh) - 1 == a->ne[1]", why, qh, 2 * qh - 1, a)
    return new_tensor(ctx, F16, (a.ne[0], kh, qh)).set_op(Op.GET_REL_POS, (), a)


@constructor(
    Op.ADD_REL_POS,
    inplace=True,
    example="kq: f32[4, 4, 2]; pw: f32[2, 2, 2, 2]; ph: f32[2, 2, 2, 2]; add_rel_pos(kq, pw, ph)",
    shape="pw and ph have one shape; pw.ne[3] = a.ne[2]; pw.ne[0] * pw.ne[0] = a.ne[0]; "
    "pw.ne[1] * pw.ne[2] = a.ne[1]; a is contiguous; pw is contiguous; ph is contiguous; pw.type = f32; "
    "ph.type = f32 -> a.type[a.ne]",
)
def add_rel_pos(ctx: Context, a: Tensor, pw: Tensor, ph: Tensor, *, inplace: bool = False) -> Tensor:
    """ggml_add_rel_pos: the scores a [keys, queries, windows] plus those of the distances.

    The keys of a window lie in a square of n columns and rows. pw and ph are [n, columns, rows, windows], for each
    query the scores of the n columns and of the n rows of keys.
    """

    require = requirer("ggml_add_rel_pos_impl")

    require(are_same_shape(pw, ph), "ggml_are_same_shape(pw, ph)", "{} and {} differ in shape", pw, ph)
    for name, t in (("a", a), ("pw", pw), ("ph", ph)):
        require(is_contiguous(t), f"ggml_is_contiguous({name})", "{:nb} must be contiguous", t)
    for name, t in (("ph", ph), ("pw", pw)):
        require(t.type is F32, f"{name}->type == GGML_TYPE_F32", "{} must be f32", t)
    require(pw.ne[3] == a.ne[2], "pw->ne[3] == a->ne[2]", "{} must have as many windows as {}", pw, a)
    why = "the keys of {} must be a square of side {}"
    require(pw.ne[0] * pw.ne[0] == a.ne[0], "pw->ne[0]*pw->ne[0] == a->ne[0]", why, a, pw.ne[0])
    why = "{} must have a row for each query of {}"
    require(pw.ne[1] * pw.ne[2] == a.ne[1], "pw->ne[1]*pw->ne[2] == a->ne[1]", why, pw, a)
    return same_as(ctx, a, inplace).set_op(Op.ADD_REL_POS, words(int(inplace)), a, pw, ph)


@kernel(Op.WIN_PART)
def _win_part(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_win_part."""
    a, w = source(dst), param_i32(dst, 2)
    npx, npy = param_i32(dst, 0), param_i32(dst, 1)
    if dst.ne != (a.ne[0], w, w, npx * npy):
        raise NotComputable(
            "ggml_compute_forward_win_part_f32",
            f"{show(dst)} does not hold {npx} times {npy} windows of {w}",
            explanation="the extents of a window's result follow from its op_params",
        )
    rows, columns = npy * w, npx * w
    image = x.f32(flat(x, a, 0))[0, :rows, :columns]
    padded = x.xp.zeros((rows, columns, a.ne[0]), dtype="float32")
    padded[: image.shape[0], : image.shape[1]] = image
    x.put(dst, padded.reshape(npy, w, npx, w, a.ne[0]).swapaxes(1, 2).reshape(dst.ne[::-1]))


@kernel(Op.WIN_UNPART)
def _win_unpart(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_win_unpart: which windows there are follows from the result's extents and w."""
    a, w = source(dst), param_i32(dst, 0)
    n0, n1, n2, _ = dst.ne
    if w < 1:
        function = "ggml_compute_forward_win_unpart_f32"
        raise NotComputable(function, f"w is {w}", explanation="ggml divides by it; a window has at least one column")
    row, column = x.xp.arange(n2)[:, None], x.xp.arange(n1)[None, :]
    window = row // w * -(-n1 // w) + column // w
    first = ((window * a.ne[2] + row % w) * a.ne[1] + column % w) * a.ne[0]
    values = memory(x, a, F32, int(first.max()) + n0)
    x.put(dst, values[first[..., None] + x.xp.arange(n0)])


@kernel(Op.GET_REL_POS)
def _get_rel_pos(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_get_rel_pos: the bytes are moved, also those of bf16, which the result then has as f16."""
    a = source(dst)
    n0, n1, n2, _ = dst.ne
    first = (x.xp.arange(n1 - 1, -1, -1)[None, :] + x.xp.arange(n2)[:, None]) * a.ne[0]
    values = memory(x, a, F16, int(first.max()) + n0)
    x.raw(dst, "writes")[0] = values[first[..., None] + x.xp.arange(n0)]


@kernel(Op.ADD_REL_POS)
def _add_rel_pos(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_add_rel_pos."""
    a, pw, ph = (source(dst, i) for i in range(3))
    n = pw.ne[0]
    values = x.xp.array(x.f32(a))
    patches = values.reshape(-1, n, n)[: pw.ne[1] * pw.ne[2] * pw.ne[3]]
    columns, rows = (x.f32(t).reshape(-1, n) for t in (pw, ph))
    # An element above the diagonal gets the share of its row first, the others that of their column: ggml's order.
    above = x.xp.arange(n)[:, None] <= x.xp.arange(n)
    first = x.xp.where(above, rows[:, :, None], columns[:, None, :])
    second = x.xp.where(above, columns[:, None, :], rows[:, :, None])
    patches[...] = (patches + first) + second
    x.put(dst, values)
