"""im2col, convolutions and pooling: extents, parameters, refusals and small cases checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, DType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.conv import conv_2d, conv_2d_dw, conv_transpose_1d, pool_1d, pool_2d, pool_output_size
from ggmltool.ggml.ops.im2col import conv_output_size, im2col, im2col_3d
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, KERNELS, Raw
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays

load()
ARRAYS = HostArrays()


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "") -> Tensor:
    return ctx.new_tensor(type, ne, name=name)


def filled(ctx: Context, values: Any) -> Tensor:
    array = np.asarray(values, dtype=np.float32)
    t = place(ctx.new_tensor(F32, array.shape[::-1]))
    ARRAYS.put(t, array.reshape(t.ne[::-1]))
    return t


def place(t: Tensor) -> Tensor:
    t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes, AddressSpace())
    t.data = t.buffer.base
    return t


def computed(t: Tensor) -> Any:
    KERNELS[t.op](ARRAYS, place(t))
    return ARRAYS.f32(t)


def test_extents_are_divided_as_in_c() -> None:
    assert conv_output_size(20, 3, 2, 1, 1) == 10
    assert conv_output_size(2, 4, 4, 0, 1) == 1
    assert conv_output_size(2, 4, 2, 0, 1) == 0
    with pytest.raises(GgmlAbort, match="division by zero"):
        conv_output_size(2, 4, 0, 0, 1)


def test_pooled_extents_are_computed_in_float32() -> None:
    assert pool_output_size(20, 3, 2, 0.5) == 10
    assert pool_output_size(2**24 + 1, 1, 1, 0) == 2**24


def test_im2col_has_a_row_per_place_of_the_kernel(ctx: Context) -> None:
    r = im2col(ctx, new(ctx, 3, 2, 4, 5), new(ctx, 20, 17, 4, 2), 2, 1, 1, 0, 1, 1, True, F16)
    assert (r.type, r.ne, r.op_params) == (F16, (24, 10, 16, 2), (2, 1, 1, 0, 1, 1, 1))
    params = BY_OP[Op.IM2COL].read_params(Raw(r.op_params, r.type, r.ne, r.nb, 0))
    assert params == {"s0": 2, "s1": 1, "p0": 1, "p1": 0, "d0": 1, "d1": 1, "is_2D": True, "dst_type": F16}
    flat = im2col(ctx, new(ctx, 3, 4), new(ctx, 20, 4, 2), 1, 0, 1, 0, 1, 0, False, F32)
    assert (flat.ne, flat.op_params) == ((12, 20, 2, 1), (1, 0, 1, 0, 1))


def test_im2col_of_a_row_is_its_windows(ctx: Context) -> None:
    r = im2col(ctx, new(ctx, 3, 1), filled(ctx, [[1, 2, 3]]), 1, 0, 1, 0, 1, 0, False, F32)
    assert computed(r)[0, 0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 0]]


def test_an_image_smaller_than_the_kernel_is_refused(ctx: Context) -> None:
    with pytest.raises(GgmlAssert) as caught:
        im2col(ctx, new(ctx, 3, 3, 1, name="k"), new(ctx, 2, 9, 1, name="x"), 1, 1, 0, 0, 1, 1, True, F16)
    assert caught.value.condition == '(OW > 0) && "b too small compared to a"'
    assert "x f32[2, 9]" in caught.value.explanation
    with pytest.raises(GgmlAssert, match="OD"):
        im2col_3d(ctx, new(ctx, 1, 1, 3), new(ctx, 4, 4, 2), 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, F16)


def test_a_convolution_adds_up_what_lies_under_the_kernel(ctx: Context) -> None:
    kernel, image = filled(ctx, [[[[1, 1], [1, 1]]]]), filled(ctx, [[[[1, 2, 3], [4, 5, 6]]]])
    r = conv_2d(ctx, kernel, image, 1, 1, 0, 0)
    assert (r.ne, r.op_params) == ((2, 1, 1, 1), (1, 1, 0, 0, 1, 1))
    assert computed(r).reshape(-1).tolist() == [12, 16]
    assert CONSTRUCTORS["conv_2d_direct"].op == CONSTRUCTORS["conv_2d"].op == Op.CONV_2D


def test_a_depthwise_convolution_keeps_the_channels_innermost(ctx: Context) -> None:
    plain = conv_2d_dw(ctx, new(ctx, 3, 3, 1, 6), new(ctx, 12, 10, 6), 1, 1, 1, 1)
    assert plain.nb == (4, 48, 480, 2880)
    image = new(ctx, 6, 12, 10)
    image.set_layout((12, 10, 6, 1), (24, 288, 4, 2880))
    assert conv_2d_dw(ctx, new(ctx, 3, 3, 1, 6), image, 1, 1, 1, 1).nb == (24, 288, 4, 2880)


def test_a_transposed_convolution_has_no_padding(ctx: Context) -> None:
    r = conv_transpose_1d(ctx, filled(ctx, [[[1, 10, 100]]]), filled(ctx, [[1, 2]]), 2)
    assert (r.ne, r.op_params) == ((5, 1, 1, 1), (2, 0, 1))
    assert computed(r).reshape(-1).tolist() == [1, 10, 102, 20, 200]
    with pytest.raises(GgmlAssert) as caught:
        conv_transpose_1d(ctx, new(ctx, 3, 4, 5), new(ctx, 9, 5), 1, 1, 1)
    assert caught.value.condition == "p0 == 0"


def test_a_pool_takes_the_largest_or_the_average(ctx: Context) -> None:
    x = filled(ctx, [1, 5, 2, 4])
    assert computed(pool_1d(ctx, x, 0, 2, 2, 0)).reshape(-1).tolist() == [5, 4]
    assert computed(pool_1d(ctx, x, 1, 2, 2, 1)).reshape(-1).tolist() == [1, 3.5, 4]
    square = filled(ctx, [[1, 5], [2, 4]])
    assert computed(pool_2d(ctx, square, 1, 2, 2, 2, 2, 1.0, 1.0)).reshape(-1).tolist() == [0.25, 1.25, 0.5, 1.0]


def test_the_words_of_a_pool_keep_whole_paddings(ctx: Context) -> None:
    r = pool_2d(ctx, new(ctx, 20, 17, 3), 1, 3, 2, 2, 3, 0.5, 1.9)
    assert (r.ne, r.op_params) == ((10, 7, 3, 1), (1, 3, 2, 2, 3, 0, 1))
    choices = CONSTRUCTORS["pool_2d"].params[0].choices
    assert choices == {"max": 0, "avg": 1}
    with pytest.raises(GgmlAssert, match=r"ne\[1\] > 0"):
        pool_2d(ctx, new(ctx, 8, 2), 0, 4, 4, 1, 1, 0.0, 0.0)
