"""What kernels compute, for values whose result can be said in advance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, NotComputable
from ggmltool.ggml.op import VIEW_OPS, Op, OpRules
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.cpu import limits as cpu_limits
from ggmltool.ggml.ops.cpu import mathfn
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS
from ggmltool.ggml.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION
from ggmltool.ggml.ops.softmax import alibi_slopes
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays, convert

load()

NAN, INF = math.nan, math.inf


def compute(name: str, *args: Any, types: str = "f32", **kwargs: Any) -> Any:
    """The result of a constructor called with arrays as sources, at least 1-d."""
    ctx, arrays, addresses = Context(), HostArrays(), AddressSpace()

    def tensor(values: Any, type: str) -> Tensor:
        shape = (1, 1, 1, *np.shape(values))[-4:]
        t = ctx.new_tensor(TYPES[type], shape[::-1])
        place(t)
        arrays.put(t, convert(np.reshape(values, shape), TYPES[type]))
        return t

    def place(t: Tensor) -> None:
        if t.view_src is not None:
            t.buffer, t.data = t.view_src.buffer, t.view_src.data + t.view_offs
        else:
            t.buffer = Buffer(BufferType("CPU", "CPU"), max(t.nbytes, 1), addresses)
            t.data = t.buffer.base

    kinds = iter(types.split())
    kind = next(kinds)
    sources: list[Any] = []
    for a in args:
        if isinstance(a, np.ndarray | list):
            sources.append(tensor(a, kind))
            kind = next(kinds, kind)
        else:
            sources.append(a)
    result = CONSTRUCTORS[name].build(ctx, *sources, **kwargs)
    if result.buffer is None:
        place(result)
    cpu_limits.check(result, OpRules())
    KERNELS[result.op](arrays, result)
    return np.squeeze(arrays.raw(result))


INFS = [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, -0.2, INF]
KERNEL, IMAGE = [[[[1.0, 1], [1, 1]]]], [[[[1.0, 2, 3], [4, 5, 6]]]]
SIMPLE = [[2.0, 8], [5, 1], [4, 2], [8, 6]], [[10.0, 5], [9, 9], [5, 4]]
AT = {"s0": 1, "s1": 0, "p0": 1, "p1": 0, "d0": 1, "d1": 0, "is_2D": False, "dst_type": TYPES["f32"]}


@pytest.mark.parametrize(
    ("name", "args", "params", "types", "expected"),
    [
        ("add", ([[1, 2], [3, 4]], [10, 20]), {}, "f32", [[11, 22], [13, 24]]),
        ("mul", ([2049.0], [3.0]), {}, "f16 f32", 6144.0),
        ("round", (INFS,), {}, "f32", [1, 2, 3, -1, -3, 0, -0.0, INF]),
        ("argmax", ([[1, 3, 3], [-INF, -INF, -INF], [9, NAN, 1]],), {}, "f32", [1 + 1, 2, 2]),
        ("argsort", ([2, 1, 2, 3],), {"order": 0}, "f32", [1, 0, 2, 3]),
        ("argsort", ([2, 1, 2, 3],), {"order": 1}, "f32", [3, 0, 2, 1]),
        ("top_k", ([5, 9, 7, 8],), {"k": 3}, "f32", [3, 1, 2]),
        ("diag_mask_inf", (np.zeros((2, 3)),), {"n_past": 1}, "f32", [[0, 0, -INF], [0, 0, 0]]),
        ("set", (np.zeros((2, 3)), [[1], [2]]), {"nb1": 12, "nb2": 24, "nb3": 24, "offset": 8}, "f32",
         [[0, 0, 1], [0, 0, 2]]),
        ("pad_reflect_1d", ([1, 2, 3], 2, 1), {}, "f32", [3, 2, 1, 2, 3, 2]),
        ("pad_ext_circular", ([1, 2, 3], 1, 2, 0, 0, 0, 0, 0, 0), {}, "f32", [3, 1, 2, 3, 1, 2]),
        ("sum", ([1e8, 1.0, -1e8],), {}, "f32", 1.0),
        ("sum", ([2048.0, 1.0, 1.0],), {}, "f16", 2050.0),
        ("scale", ([1, 2, 3], 2.0), {"inplace": True}, "f32", [2, 4, 6]),
        ("mul_mat", SIMPLE, {}, "f32", [[60, 55, 50, 110], [90, 54, 54, 126], [42, 29, 28, 64]]),
        ("mul_mat_id", ([[[1], [2]], [[10], [20]], [[100], [200]]], [[[3]], [[5]]], [[2, 0], [1, 1]]), {},
         "f32 f32 i32", [[[300, 600], [3, 6]], [[50, 100], [50, 100]]]),
        ("out_prod", ([[1, 2], [3, 4]], [[1, 0, 1], [0, 1, 1]]), {}, "f32", [[1, 2], [3, 4], [4, 6]]),
        ("im2col", ([[1.0, 1, 1]], [[1, 2, 3]]), AT, "f32", [[0, 1, 2], [1, 2, 3], [2, 3, 0]]),
        ("conv_2d", (KERNEL, IMAGE, 1, 1, 0, 0), {}, "f32", [12, 16]),
        ("conv_transpose_1d", ([[[1, 10, 100]]], [[1, 2]], 2), {}, "f32", [1, 10, 102, 20, 200]),
        ("pool_1d", ([1, 5, 2, 4], 0, 2, 2, 0), {}, "f32", [5, 4]),
        ("pool_1d", ([1, 5, 2, 4], 1, 2, 2, 1), {}, "f32", [1, 3.5, 4]),
        ("pool_2d", ([[1, 5], [2, 4]], 1, 2, 2, 2, 2, 1.0, 1.0), {}, "f32", [[0.25, 1.25], [0.5, 1.0]]),
        ("flash_attn_ext", ([[[1, 1]]], [[[0, 0], [0, 0]]], [[[1, 2], [3, 6]]]), {"scale": 1.0}, "f32", [2, 4]),
        ("flash_attn_ext", ([[[1], [1]]], [[[0], [0]]], [[[1], [3]]], [[0, -INF], [-INF, -INF]]), {"scale": 1.0},
         "f32 f32 f32 f16", [1, 0]),
        ("flash_attn_ext", ([[[1]]], [[[0]]], [[[8]]], None, [0]), {"scale": 1.0}, "f32", 4.0),
    ],
)  # fmt: skip
def test_a_small_case_is_computed_as_by_hand(
    name: str, args: tuple[Any, ...], params: dict[str, Any], types: str, expected: Any
) -> None:
    assert compute(name, *args, types=types, **params).tolist() == expected


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("relu", (), 0.0),
        ("step", (), 0.0),
        ("sgn", (), 0.0),
        ("hardsigmoid", (), 0.0),
        ("leaky_relu", (0.1,), 0.0),
        ("clamp", (-1.0, 2.0), 2.0),
    ],
)
def test_comparisons_swallow_nan_as_in_c(name: str, args: tuple[float, ...], expected: float) -> None:
    assert compute(name, [NAN, 1.0], *args).tolist()[0] == expected


def test_gelu_goes_through_a_table_of_halves_within_ten() -> None:
    got = compute("gelu", [-10.0, -INF, 10.0, 1.0, 1.00001])
    assert got.tolist()[:3] == [0.0, 0.0, 10.0]
    assert got[3] == got[4] == np.float16(0.8413)


def test_erf_is_rounded_correctly() -> None:
    x = np.linspace(-5, 5, 1001, dtype=np.float32)
    assert mathfn.erf(np, x).tolist() == [float(np.float32(math.erf(v))) for v in x.tolist()]


def test_a_sink_takes_its_share_of_the_probability() -> None:
    assert compute("soft_max_ext", [[[0.0, 0.0]]], None, [0.0]) == pytest.approx([1 / 3, 1 / 3])


def test_a_row_that_is_masked_wholly_is_nan() -> None:
    got = compute("soft_max_ext", [[1.0, 2.0], [1.0, 2.0]], [[0, -INF], [-INF, -INF]])
    assert got[0].tolist() == [1, 0]
    assert np.isnan(got[1]).all()


def test_the_slopes_of_alibi_halve_from_head_to_head() -> None:
    assert alibi_slopes(np, 8.0, 4).tolist() == [0.25, 0.0625, 0.015625, 0.00390625]
    assert alibi_slopes(np, 8.0, 6)[4:] == pytest.approx([0.5, 0.125])
    assert alibi_slopes(np, 0.0, 3).tolist() == [1, 1, 1]


def test_the_cpu_refuses_types_it_has_no_kernel_for() -> None:
    with pytest.raises(GgmlAbort, match="unsupported types: dst: f32, src0: f32, src1: f16"):
        compute("add", [1.0], [1.0], types="f32 f16")
    with pytest.raises(GgmlAbort, match="fatal error"):
        compute("norm", [1.0], 1e-5, types="f16")


def test_every_op_here_with_a_constructor_has_a_kernel() -> None:
    assert {c.op for c in CONSTRUCTORS.values()} - VIEW_OPS - {Op.FLASH_ATTN_BACK} <= KERNELS.keys()


@pytest.mark.parametrize(
    ("name", "args", "params", "types", "error", "words"),
    [
        ("mul_mat_id", (np.ones((3, 2, 1)), [[[1.0]]], [[3]]), {}, "f32 f32 i32", GgmlAssert, "expert 3"),
        ("flash_attn_ext", ([[[1], [1]]], [[[0], [0]]], [[[1], [3]]], [[0, 0]]), {"scale": 1.0}, "f32 f32 f32 f16",
         NotComputable, "mask is too small"),
        ("rope_ext", (np.ones((1, 1, 8)), [0, 1, 2, 3]), {"n_dims": 8, "mode": MROPE}, "f32 i32", GgmlAssert,
         "its sections"),
    ],
)  # fmt: skip
def test_what_values_and_parameters_cannot_be_computed_with_is_said(
    name: str, args: tuple[Any, ...], params: dict[str, Any], types: str, error: type[GgmlError], words: str
) -> None:
    with pytest.raises(error) as caught:
        compute(name, *args, types=types, **params)
    assert words in f"{caught.value.message} {caught.value.explanation}"


def test_pieces_of_weights_and_of_queries_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((50, 64)), rng.standard_normal((3, 64))
    q, k, v = (rng.standard_normal(s) for s in ((4, 9, 8), (2, 7, 8), (2, 7, 8)))
    product, attention = compute("mul_mat", w, x), compute("flash_attn_ext", q, k, v, scale=0.5)
    monkeypatch.setattr("ggmltool.ggml.ops.matmul.CHUNK", 64 * 7)
    monkeypatch.setattr("ggmltool.ggml.ops.attention.CHUNK", 30)
    assert np.allclose(compute("mul_mat", w, x), product, rtol=1e-5, atol=1e-5)
    assert np.allclose(product, x @ w.T, rtol=1e-4, atol=1e-5)
    assert np.allclose(compute("flash_attn_ext", q, k, v, scale=0.5), attention, atol=1e-6)


@pytest.mark.parametrize("mode", [NORMAL, NEOX, MROPE, IMROPE, VISION])
def test_a_turn_keeps_lengths_and_backwards_undoes_it(mode: int) -> None:
    values = np.random.default_rng(0).standard_normal((3, 2, 16)).astype(np.float32)
    several = 4 if mode & MROPE else 1
    pos = np.arange(3 * several) * 7
    params = {"n_dims": 8 if mode == VISION else 16, "mode": mode, "sections": [2, 2, 2, 2] if several == 4 else []}
    turned = compute("rope_ext", values, pos, types="f32 i32", **params)
    assert not np.allclose(turned, values)
    assert np.allclose(np.square(turned).sum(-1), np.square(values).sum(-1), rtol=1e-5)
    assert np.allclose(compute("rope_ext_back", turned, pos, types="f32 i32", **params), values, atol=1e-5)


def test_the_angle_of_the_first_pair_is_the_position() -> None:
    got = compute("rope_ext", [[[1, 0, 0, 0]]], [1], types="f32 i32", n_dims=4, mode=NORMAL)
    assert np.allclose(got, [np.cos(1), np.sin(1), 0, 0])
