"""Buffer types, buffers and the placing of tensors in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc, view_init
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import Tensor
from tests.ggml.layouts import contiguous_tensors


def tensor(*ne: int, type: str = "f32") -> Tensor:
    return Context().new_tensor(TYPES[type], ne, name="t")


def buffer(size: int, **options: int) -> Buffer:
    return Buffer(BufferType("B", "D", **options), size, AddressSpace())


@given(contiguous_tensors())
def test_a_tensor_takes_its_bytes_where_rows_are_not_padded(t: Tensor) -> None:
    assert BufferType("B", "D").get_alloc_size(t) == t.nbytes


@given(contiguous_tensors(), st.sampled_from((64, 256, 512)))
def test_the_last_row_of_a_quantized_tensor_is_padded(t: Tensor, padding: int) -> None:
    size = BufferType("B", "D", row_padding=padding).get_alloc_size(t)
    rest = t.ne[0] % padding
    if not t.type.quantized or not rest:
        assert size == t.nbytes
    else:
        assert size == t.nbytes + t.type.type_size * (padding - rest) // t.type.block_size


def test_a_device_may_have_a_rule_of_its_own_for_sizes() -> None:
    buft = BufferType("B", "D", row_padding=512, alloc_size=lambda t: t.nbytes + 7)
    assert buft.get_alloc_size(tensor(64, type="q4_0")) == 36 + 7
    assert not buft.plain


@given(st.lists(st.tuples(st.integers(0, 1 << 33), st.sampled_from((32, 128, 8192)))))
def test_buffers_have_aligned_addresses_that_never_overlap(sizes: list[tuple[int, int]]) -> None:
    space = AddressSpace()
    end = 1
    for size, alignment in sizes:
        base = space.take(size, alignment)
        assert base % alignment == 0
        assert base >= end
        end = base + size


def test_an_empty_buffer_has_no_address() -> None:
    assert buffer(0).base == 0
    assert buffer(1).base != 0


def test_fresh_memory_is_zero_and_as_large_as_the_buffer() -> None:
    b = buffer(100)
    assert b.memory.shape == (100,)
    assert not b.memory.any()
    assert b.memory is b.memory


def test_a_placed_tensor_knows_its_buffer_and_address() -> None:
    b, t = buffer(100), tensor(4)
    tensor_alloc(b, t, 64)
    assert (t.buffer, t.data) == (b, b.base + 64)


def test_a_tensor_may_end_with_the_buffer_and_not_behind_it() -> None:
    b = buffer(80)
    tensor_alloc(b, tensor(4), 64)
    with pytest.raises(GgmlAssert) as error:
        tensor_alloc(b, tensor(4), 65)
    assert "ggml_backend_buffer_get_alloc_size(buffer, tensor)" in (error.value.condition or "")


def test_the_padding_of_a_row_must_fit_too() -> None:
    t = tensor(64, type="q4_0")
    with pytest.raises(GgmlAssert):
        tensor_alloc(buffer(t.nbytes, row_padding=512), t, 0)


def test_a_tensor_is_placed_once() -> None:
    b, t = buffer(100), tensor(4)
    tensor_alloc(b, t, 0)
    with pytest.raises(GgmlAssert) as error:
        tensor_alloc(b, t, 32)
    assert error.value.condition == "tensor->buffer == NULL"


def test_a_tensor_with_data_of_its_own_is_not_placed() -> None:
    t = Context(base=4096, no_alloc=False).new_tensor(F32, (4,))
    with pytest.raises(GgmlAssert) as error:
        tensor_alloc(buffer(100), t, 0)
    assert error.value.condition == "tensor->data == NULL"


def test_a_view_is_not_placed_but_initialised() -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (8,))
    view = ctx.new_tensor(F32, (4,), root, 16)
    b = buffer(64)
    with pytest.raises(GgmlAssert) as error:
        tensor_alloc(b, view, 0)
    assert error.value.condition == "tensor->view_src == NULL"
    tensor_alloc(b, root, 32)
    view_init(view)
    assert (view.buffer, view.data) == (b, b.base + 48)


def test_a_view_needs_a_root_with_memory() -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (8,))
    view = ctx.new_tensor(F32, (4,), root, 16)
    with pytest.raises(GgmlAssert) as error:
        view_init(view)
    assert error.value.condition == "tensor->view_src->buffer != NULL"
    with pytest.raises(GgmlAssert) as error:
        view_init(root)
    assert error.value.condition == "tensor->view_src != NULL"


def test_a_view_is_initialised_once() -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (8,))
    view = ctx.new_tensor(F32, (4,), root, 16)
    tensor_alloc(buffer(64), root, 0)
    view_init(view)
    with pytest.raises(GgmlAssert) as error:
        view_init(view)
    assert error.value.condition == "tensor->buffer == NULL"


def test_a_view_of_an_empty_tensor_in_an_empty_buffer_has_no_address_to_begin_at() -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (0,))
    view = ctx.new_tensor(F32, (0,), root, 0)
    tensor_alloc(buffer(0), root, 0)
    with pytest.raises(GgmlAssert) as error:
        view_init(view)
    assert error.value.condition == "tensor->view_src->data != NULL"
