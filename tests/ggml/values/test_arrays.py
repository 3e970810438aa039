"""Tensors in memory as numpy arrays."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert, GgmlOverrun, NotComputable
from ggmltool.ggml.tensor import Dims, Tensor, nbytes_of
from ggmltool.ggml.values.arrays import HostArrays, convert

A = HostArrays()


def place(t: Tensor, extra: int = 0) -> Tensor:
    t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes + extra, AddressSpace())
    t.data = t.buffer.base
    return t


def new(type: str, *ne: int, nb: Dims | None = None) -> Tensor:
    t = Context().new_tensor(TYPES[type], ne, name="t")
    if nb is not None:
        t.set_layout(t.ne, nb)
    return place(t)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"])
def test_values_written_are_read_back_in_every_plain_type(type: str) -> None:
    t = new(type, 3, 2)
    values = np.arange(6).reshape(1, 1, 2, 3) - 2
    A.put(t, values)
    assert A.raw(t).shape == (1, 1, 2, 3)
    assert A.raw(t).dtype.itemsize == TYPES[type].type_size
    assert np.array_equal(A.f32(t), values)


def test_f32_values_are_a_view_of_the_memory() -> None:
    t = new("f32", 4)
    A.f32(t)[...] = 7
    assert np.array_equal(A.get_bytes(t).view(np.float32), [7, 7, 7, 7])


def test_strides_are_followed_and_gaps_left_alone() -> None:
    t = new("f32", 2, 2, nb=(4, 12, 24, 24))
    assert t.nbytes == nbytes_of(t.type, t.ne, t.nb) == 20
    A.set_bytes(t, np.full(5, 9, dtype=np.float32))
    A.put(t, np.array([[1, 2], [3, 4]]))
    assert A.get_bytes(t).view(np.float32).tolist() == [1, 2, 9, 3, 4]


def test_a_transposed_view_reads_its_root() -> None:
    root = new("i32", 3, 2)
    A.put(root, np.arange(6).reshape(1, 1, 2, 3))
    view = Context().view_tensor(root)
    view.set_layout((2, 3, 1, 1), (12, 4, 24, 24))
    view.buffer, view.data = root.buffer, root.data
    assert A.raw(view)[0, 0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_wrapped_stride_of_an_extent_one_is_ignored() -> None:
    t = new("f32", 2, 1)
    t.set_layout(t.ne, (4, 2**64 - 2**31, 8, 8))
    A.put(t, [1, 2])
    assert A.f32(t).reshape(-1).tolist() == [1, 2]


@pytest.mark.parametrize("type", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "tq2_0", "q2_0"])
def test_quantized_rows_are_written_and_read(type: str) -> None:
    n = 256
    t = new(type, n, 3)
    values = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(1, 1, 3, n)
    A.put(t, values)
    assert A.raw(t).shape == (1, 1, 3, TYPES[type].row_size(n))
    back = A.f32(t)
    assert back.shape == (1, 1, 3, n)
    assert np.abs(back - values).max() < 0.6


def test_quantized_rows_may_lie_apart_and_be_permuted() -> None:
    plain = new("q8_0", 32, 2, 3)
    values = np.arange(192, dtype=np.float32).reshape(1, 3, 2, 32)
    A.put(plain, values)
    spread = Context().new_tensor(TYPES["q8_0"], (32, 3, 2))
    spread.set_layout((32, 3, 2, 1), (34, 100, 300, 600))
    place(spread)
    A.put(spread, A.f32(plain).transpose(0, 2, 1, 3))
    assert np.array_equal(A.f32(spread).transpose(0, 2, 1, 3), A.f32(plain))
    permuted = Context().view_tensor(plain)
    permuted.set_layout((32, 3, 2, 1), (34, 68, 34, 204))
    permuted.buffer, permuted.data = plain.buffer, plain.data
    assert np.array_equal(A.f32(permuted), A.f32(spread))


@pytest.mark.parametrize("type", ["q8_K", "q8_1"])
def test_a_type_without_conversion_is_named(type: str) -> None:
    t = new(type, 256)
    with pytest.raises(NotComputable, match=f"type {type} cannot be read"):
        A.f32(t)
    with pytest.raises(NotComputable, match=f"type {type} cannot be written"):
        A.put(t, 0)


def test_k_quants_can_be_read_but_not_written() -> None:
    t = new("q4_K", 256)
    assert np.array_equal(A.f32(t), np.zeros((1, 1, 1, 256)))
    with pytest.raises(NotComputable, match="type q4_K cannot be written"):
        A.put(t, 0)


def test_every_half_is_read_as_numpy_casts_it() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for values in (halves, halves[np.isfinite(halves)], halves[::3], halves[:5]):
        read = A.decode(values, TYPES["f16"])
        assert np.array_equal(read.view(np.uint32), values.astype(np.float32).view(np.uint32))


def test_halves_round_to_the_nearest_even() -> None:
    assert convert(np.float32(1 + 2**-11), TYPES["f16"]) == np.float16(1)
    assert convert(np.float32(1 + 3 * 2**-11), TYPES["f16"]) == np.float16(1 + 2**-9)
    assert float(convert(np.float32(1 + 2**-8), TYPES["bf16"])) == 1.0
    assert float(convert(np.float32(1 + 3 * 2**-8), TYPES["bf16"])) == 1 + 2**-6
    assert np.isinf(convert(np.float32(1e6), TYPES["f16"]))
    assert np.isnan(convert(np.float32("nan"), TYPES["bf16"]).astype(np.float32))


def test_floats_become_integers_by_truncation() -> None:
    assert convert(np.float32([1.9, -1.9]), TYPES["i32"]).tolist() == [1, -1]


def test_bytes_outside_a_tensor_are_refused_in_ggmls_words() -> None:
    t = new("f32", 2)
    with pytest.raises(GgmlAssert) as error:
        A.set_bytes(t, bytes(12))
    assert error.value.condition == 'offset + size <= ggml_nbytes(tensor) && "tensor write out of bounds"'
    assert A.get_bytes(t, 4).size == 4


def test_a_tensor_without_memory_is_refused_in_ggmls_words() -> None:
    t = Context().new_tensor(TYPES["f32"], (2,), name="x")
    with pytest.raises(GgmlAssert) as error:
        A.f32(t)
    assert error.value.condition == 'buf != NULL && "tensor buffer not set"'
    assert A.f32(Context().new_tensor(TYPES["f32"], (0,))).size == 0


def test_a_view_that_leaves_its_buffer_is_an_error_not_a_crash() -> None:
    t = new("f32", 4)
    t.set_layout((4, 2, 1, 1), (4, 64, 128, 128))
    with pytest.raises(GgmlOverrun, match="reads 64 bytes beyond the buffer of t"):
        A.f32(t)
