"""The linear allocator, and the allocation of a whole context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I8
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.tallocr import Tallocr, alloc_ctx_tensors_from_buft
from ggmltool.ggml.version import SIZE_MAX, pad


def places(ctx: Context) -> list[tuple[int, int] | None]:
    return [(t.buffer.chunk, t.data - t.buffer.base) if t.buffer else None for t in ctx.tensors]


def context(*sizes: int) -> Context:
    ctx = Context()
    for size in sizes:
        ctx.new_tensor(I8, (size,))
    return ctx


def test_tensors_lie_one_behind_the_other_at_aligned_offsets() -> None:
    tallocr = Tallocr(Buffer(BufferType("B", "D", alignment=64), 1024, AddressSpace()))
    ctx = context(1, 64, 65, 0, 3)
    for t in ctx.tensors:
        tallocr.alloc(t)
    assert [offset for _, offset in filter(None, places(ctx))] == [0, 64, 128, 256, 256]
    assert tallocr.offset == 320


def test_a_full_buffer_aborts_in_ggmls_words() -> None:
    tallocr = Tallocr(Buffer(BufferType("B", "D"), 64, AddressSpace()))
    tallocr.alloc(context(32).tensors[0])
    with pytest.raises(GgmlAbort) as error:
        tallocr.alloc(context(33).tensors[0])
    assert error.value.message == "not enough space in the buffer"


def test_a_context_goes_into_one_buffer_of_the_sum_of_the_padded_sizes() -> None:
    ctx = context(100, 32, 1)
    (buffer,) = alloc_ctx_tensors_from_buft(ctx, BufferType("B", "D"), AddressSpace(), USAGE_WEIGHTS)
    assert (buffer.size, buffer.usage) == (128 + 32 + 32, USAGE_WEIGHTS)
    assert places(ctx) == [(0, 0), (0, 128), (0, 160)]


def test_a_buffer_that_would_exceed_the_limit_is_ended_before_the_tensor() -> None:
    ctx = context(600, 500, 400, 200)
    buffers = alloc_ctx_tensors_from_buft(ctx, BufferType("B", "D", max_size=1024), AddressSpace())
    assert [b.size for b in buffers] == [608, 512 + 416, 224]
    assert places(ctx) == [(0, 0), (1, 0), (1, 512), (2, 0)]


def test_a_tensor_above_the_limit_has_a_buffer_of_its_own() -> None:
    ctx = context(100, 5000, 100)
    buffers = alloc_ctx_tensors_from_buft(ctx, BufferType("B", "D", max_size=1024), AddressSpace())
    assert [b.size for b in buffers] == [128, 5024, 128]


def test_views_take_no_room_and_lie_in_their_roots() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (16,))
    view = ctx.new_tensor(F32, (4,), a, 32)
    c = ctx.new_tensor(F32, (8,))
    (buffer,) = alloc_ctx_tensors_from_buft(ctx, BufferType("B", "D"), AddressSpace())
    assert buffer.size == 96
    assert (view.buffer, view.data) == (a.buffer, a.data + 32)
    assert c.data - buffer.base == 64


def test_a_view_of_a_tensor_that_comes_later_is_refused() -> None:
    other, ctx = Context(), Context()
    root = other.new_tensor(F32, (16,))
    ctx.new_tensor(F32, (4,), root, 0)
    ctx.new_tensor(F32, (4,))
    with pytest.raises(GgmlAssert) as error:
        alloc_ctx_tensors_from_buft(ctx, BufferType("B", "D"), AddressSpace())
    assert error.value.condition == "tensor->view_src->buffer != NULL"


def test_tensors_that_have_memory_are_passed_over() -> None:
    space, ctx = AddressSpace(), context(100, 50)
    buft = BufferType("B", "D")
    (first,) = alloc_ctx_tensors_from_buft(ctx, buft, space)
    ctx.new_tensor(I8, (10,))
    (second,) = alloc_ctx_tensors_from_buft(ctx, buft, space)
    assert [t.buffer for t in ctx.tensors] == [first, first, second]
    assert second.size == 32
    assert alloc_ctx_tensors_from_buft(ctx, buft, space) == []


def test_a_context_without_bytes_gets_no_buffer() -> None:
    assert alloc_ctx_tensors_from_buft(Context(), BufferType("B", "D"), AddressSpace()) == []
    assert alloc_ctx_tensors_from_buft(context(0, 0), BufferType("B", "D"), AddressSpace()) == []


@given(
    st.lists(st.integers(0, 900), max_size=30), st.sampled_from((16, 32, 128)), st.sampled_from((256, 1000, SIZE_MAX))
)
def test_nothing_overlaps_and_buffers_are_filled_in_order(sizes: list[int], alignment: int, max_size: int) -> None:
    ctx = context(*sizes)
    buft = BufferType("B", "D", alignment=alignment, max_size=max_size)
    buffers = alloc_ctx_tensors_from_buft(ctx, buft, AddressSpace())
    assert sum(b.size for b in buffers) == sum(pad(s, alignment) for s in sizes)
    end = (0, 0)
    for size, place in zip(sizes, places(ctx), strict=True):
        if place is None:
            # What is empty and would begin a buffer of nothing gets none.
            assert size == 0
            continue
        chunk, offset = place
        assert place >= end if chunk == end[0] else offset == 0
        end = (chunk, offset + pad(size, alignment))
        assert end[1] <= buffers[chunk].size
    largest = max((pad(s, alignment) for s in sizes), default=0)
    assert all(b.size <= max(max_size, largest) for b in buffers)
