"""What kernels compute, for values whose result can be said in advance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.op import VIEW_OPS, Op, OpRules
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.cpu import limits as cpu_limits
from ggmltool.ggml.ops.cpu import mathfn
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS
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


def test_a_row_is_added_to_every_row() -> None:
    assert compute("add", [[1, 2], [3, 4]], [10, 20]).tolist() == [[11, 22], [13, 24]]


def test_a_half_is_rounded_after_computing_in_float32() -> None:
    assert compute("mul", [2049.0], [3.0], types="f16 f32").tolist() == 6144.0


def test_halves_are_rounded_away_from_zero() -> None:
    values = [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, -0.2, INF]
    assert compute("round", values).tolist() == [1, 2, 3, -1, -3, 0, -0.0, INF]


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


def test_of_equal_elements_the_last_is_the_largest() -> None:
    assert compute("argmax", [[1, 3, 3], [-INF, -INF, -INF], [9, NAN, 1]]).tolist() == [1 + 1, 2, 2]


def test_sorting_keeps_the_order_of_equal_elements() -> None:
    assert compute("argsort", [2, 1, 2, 3], order=0).tolist() == [1, 0, 2, 3]
    assert compute("argsort", [2, 1, 2, 3], order=1).tolist() == [3, 0, 2, 1]


def test_the_first_two_of_top_k_are_swapped() -> None:
    assert compute("top_k", [5, 9, 7, 8], k=3).tolist() == [3, 1, 2]


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


def test_a_causal_mask_leaves_the_past() -> None:
    got = compute("diag_mask_inf", np.zeros((2, 3)), n_past=1)
    assert got.tolist() == [[0, 0, -INF], [0, 0, 0]]


def test_part_of_a_tensor_is_replaced() -> None:
    got = compute("set", np.zeros((2, 3)), [[1], [2]], nb1=12, nb2=24, nb3=24, offset=8)
    assert got.tolist() == [[0, 0, 1], [0, 0, 2]]


def test_rows_are_mirrored_without_their_ends() -> None:
    assert compute("pad_reflect_1d", [1, 2, 3], 2, 1).tolist() == [3, 2, 1, 2, 3, 2]


def test_circular_padding_goes_on_from_the_other_end() -> None:
    assert compute("pad_ext_circular", [1, 2, 3], 1, 2, 0, 0, 0, 0, 0, 0).tolist() == [3, 1, 2, 3, 1, 2]


def test_sums_in_double_keep_what_float32_would_lose() -> None:
    assert compute("sum", [1e8, 1.0, -1e8]).tolist() == 1.0
    assert compute("sum", [2048.0, 1.0, 1.0], types="f16").tolist() == 2050.0


def test_an_in_place_op_overwrites_its_source() -> None:
    assert compute("scale", [1, 2, 3], 2.0, inplace=True).tolist() == [2, 4, 6]


def test_the_cpu_refuses_types_it_has_no_kernel_for() -> None:
    with pytest.raises(GgmlAbort, match="unsupported types: dst: f32, src0: f32, src1: f16"):
        compute("add", [1.0], [1.0], types="f32 f16")
    with pytest.raises(GgmlAbort, match="fatal error"):
        compute("norm", [1.0], 1e-5, types="f16")


def test_every_op_here_with_a_constructor_has_a_kernel() -> None:
    assert {c.op for c in CONSTRUCTORS.values()} - VIEW_OPS - {Op.FLASH_ATTN_BACK} <= KERNELS.keys()
