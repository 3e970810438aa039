"""Tensors in memory as numpy arrays."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert, GgmlOverrun, NotComputable
from ggmltool.ggml.tensor import Dims, Tensor
from ggmltool.ggml.values.arrays import HostArrays

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


def test_f32_values_are_a_view_of_the_memory() -> None:
    t = new("f32", 4)
    A.f32(t)[...] = 7
    assert np.array_equal(A.get_bytes(t).view(np.float32), [7, 7, 7, 7])


def test_a_wrapped_stride_of_an_extent_one_is_ignored() -> None:
    t = new("f32", 2, 1)
    t.set_layout(t.ne, (4, 2**64 - 2**31, 8, 8))
    A.put(t, [1, 2])
    assert A.f32(t).reshape(-1).tolist() == [1, 2]


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
