"""Buffer types, buffers and the placing of tensors in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.alloc.tallocr import Tallocr, alloc_ctx_tensors_from_buft
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc, view_init
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I8, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import SIZE_MAX, pad
from tests.ggml.layouts import contiguous_tensors


def tensor(*ne: int, type: str = "f32") -> Tensor:
    return Context().new_tensor(TYPES[type], ne, name="t")


def buffer(size: int, **options: int) -> Buffer:
    return Buffer(BufferType("B", "D", **options), size, AddressSpace())


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


@pytest.mark.parametrize(
    ("size", "offset", "initialised", "again", "condition"),
    [
        # A root is placed once, and is no view.
        (8, 0, False, "root", "tensor->buffer == NULL"),
        (8, None, False, "init root", "tensor->view_src != NULL"),
        # A view is initialised once, behind a root that has memory, and bytes.
        (8, None, False, "view", "tensor->view_src->buffer != NULL"),
        (8, 0, True, "view", "tensor->buffer == NULL"),
        (0, 0, False, "view", "tensor->view_src->data != NULL"),
        # A tensor with data of its own is not placed.
        (8, None, False, "data", "tensor->data == NULL"),
    ],
)
def test_memory_is_given_once(size: int, offset: int | None, initialised: bool, again: str, condition: str) -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (size,))
    view = ctx.new_tensor(F32, (size // 2,), root, 2 * size)
    b = buffer(8 * size)
    if offset is not None:
        tensor_alloc(b, root, offset)
    if initialised:
        view_init(view)
    own = Context(base=4096, no_alloc=False).new_tensor(F32, (4,))
    acts: dict[str, Callable[[], None]] = {
        "root": lambda: tensor_alloc(b, root, 32),
        "data": lambda: tensor_alloc(b, own, 0),
        "view": lambda: view_init(view),
        "init root": lambda: view_init(root),
    }
    with pytest.raises(GgmlAssert) as error:
        acts[again]()
    assert error.value.condition == condition


@given(st.integers(0, 1 << 50), st.integers(0, 12))
def test_padding_rounds_up_to_the_next_multiple(x: int, bits: int) -> None:
    n = 1 << bits
    assert pad(x, n) % n == 0
    assert 0 <= pad(x, n) - x < n


def places(ctx: Context) -> list[tuple[int, int] | None]:
    return [(t.buffer.chunk, t.data - t.buffer.base) if t.buffer else None for t in ctx.tensors]


def context(*sizes: int) -> Context:
    ctx = Context()
    for size in sizes:
        ctx.new_tensor(I8, (size,))
    return ctx


def test_a_full_buffer_aborts_in_ggmls_words() -> None:
    tallocr = Tallocr(Buffer(BufferType("B", "D"), 64, AddressSpace()))
    tallocr.alloc(context(32).tensors[0])
    with pytest.raises(GgmlAbort) as error:
        tallocr.alloc(context(33).tensors[0])
    assert error.value.message == "not enough space in the buffer"


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
