"""The allocators of January 2024: best fit with the last block as the last resort, in real and in measured buffers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.releases.january_2024.tallocr import (
    MEASURED_SIZE,
    Tallocr,
    alloc_ctx_tensors_from_buft,
    buft_alloc_buffer,
)
from ggmltool.ggml.tensor import Tensor

CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)
GPU = BufferType("GPU0", "GPU0", 128)


def tensor(nbytes: int, name: str = "t") -> Tensor:
    return Tensor(F32, (nbytes // 4, 1, 1, 1), name=name)


def real(size: int, buft: BufferType = GPU) -> Tallocr:
    return Tallocr(buft_alloc_buffer(buft, size, AddressSpace()))


def blocks(tallocr: Tallocr) -> list[list[int]]:
    return tallocr.chunk.free_blocks


def filled(tallocr: Tallocr, *sizes: int) -> list[Tensor]:
    out = [tensor(n, f"t{i}") for i, n in enumerate(sizes)]
    for t in out:
        tallocr.alloc(t)
    return out


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    tallocr = real(1024)
    (t,) = filled(tallocr, 4)
    assert t.data == tallocr.base
    assert blocks(tallocr) == [[128, 896]]
    assert tallocr.max_size == 128


def test_of_blocks_of_one_size_the_last_is_taken_and_the_rest_of_the_buffer_only_when_none_fits() -> None:
    tallocr = real(2048)
    a, _, c, _ = filled(tallocr, 128, 128, 128, 128)
    tallocr.free_tensor(a)
    tallocr.free_tensor(c)
    (small,) = filled(tallocr, 100)
    assert small.data - tallocr.base == 256
    (large,) = filled(tallocr, 256)
    assert large.data - tallocr.base == 512


def test_neighbors_merge_on_both_sides() -> None:
    tallocr = real(1024)
    a, b, c = filled(tallocr, 128, 128, 128)
    tallocr.free_tensor(a)
    tallocr.free_tensor(c)
    assert blocks(tallocr) == [[0, 128], [256, 768]]
    tallocr.free_tensor(b)
    assert blocks(tallocr) == [[0, 1024]]


def test_a_tensor_of_another_buffer_is_not_given_back() -> None:
    tallocr, other = real(1024), real(1024)
    (t,) = filled(other, 128)
    tallocr.free_tensor(t)
    assert blocks(tallocr) == [[0, 1024]]


def test_too_little_space_says_what_is_there() -> None:
    tallocr = real(1024)
    a, *_ = filled(tallocr, 512, 256)
    tallocr.free_tensor(a)
    with pytest.raises(LineAssert) as caught:
        tallocr.alloc(tensor(640))
    assert caught.value.condition == '!"not enough space in the buffer"'
    assert caught.value.printed == (
        "ggml_tallocr_alloc: not enough space in the buffer (needed 640, largest block available 512)\n"
    )
    assert str(caught.value).splitlines()[0] == 'GGML_ASSERT: ggml-alloc.c:114: !"not enough space in the buffer"'


def test_a_full_buffer_has_no_block_left() -> None:
    tallocr = real(128)
    filled(tallocr, 128)
    assert blocks(tallocr) == []
    with pytest.raises(LineAssert, match="not enough space"):
        tallocr.alloc(tensor(4))
    with pytest.raises(GgmlCrash):
        tallocr.alloc(tensor(0))


@pytest.mark.parametrize("placed", [True, False])
def test_views_and_placed_tensors_are_refused(placed: bool) -> None:
    tallocr = real(1024)
    (t,) = filled(tallocr, 128)
    view = Tensor(F32, t.ne, view_src=t)
    with pytest.raises(LineAssert) as caught:
        tallocr.alloc(t if placed else view)
    assert caught.value.condition == ("tensor->data == NULL" if placed else "!ggml_is_view(tensor)")


def test_256_free_blocks_are_the_most() -> None:
    tallocr = real(128 * 1024)
    tensors = filled(tallocr, *[128] * 514)
    for t in tensors[0:510:2]:
        tallocr.free_tensor(t)
    assert len(blocks(tallocr)) == 256
    with pytest.raises(LineAssert, match="out of free blocks") as caught:
        tallocr.free_tensor(tensors[511])
    assert caught.value.breach is not None
    assert caught.value.breach.limit == "free_blocks"


def test_a_cpu_buffer_is_64_bytes_larger_and_begins_where_malloc_says() -> None:
    buffer = buft_alloc_buffer(CPU, 1000, AddressSpace(), misalign=48)
    assert (buffer.size, buffer.base % 4096) == (1064, 48)
    tallocr = Tallocr(buffer)
    assert (tallocr.align_offset, blocks(tallocr)) == (16, [[16, 1048]])
    filled(tallocr, 64)
    assert tallocr.max_size == 80


def test_a_buffer_of_no_bytes_has_an_address() -> None:
    assert buft_alloc_buffer(GPU, 0, AddressSpace()).base != 0


def test_measuring_has_half_of_all_bytes_and_keeps_its_maximum() -> None:
    tallocr = Tallocr(buft_alloc_buffer(GPU, 1, AddressSpace()), measure=True)
    filled(tallocr, 1 << 40)
    tallocr.reset()
    assert blocks(tallocr) == [[0, MEASURED_SIZE]]
    assert tallocr.max_size == 1 << 40


def test_a_context_gets_one_buffer_and_its_views_belong_to_it() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (10,), name="a")
    v = ctx.view_tensor(a)
    b = ctx.new_tensor(F32, (20,), name="b")
    buffer = alloc_ctx_tensors_from_buft(ctx, CPU, AddressSpace())
    assert buffer is not None
    assert buffer.size == 64 + 128 + 64
    assert (a.data, v.data, b.data) == (buffer.base, buffer.base, buffer.base + 64)
    assert v.buffer is buffer
    assert alloc_ctx_tensors_from_buft(ctx, CPU, AddressSpace()) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 600)), max_size=60))
def test_blocks_are_sorted_apart_and_with_the_tensors_fill_the_buffer(moves: list[tuple[bool, int, int]]) -> None:
    tallocr = real(128 * 64)
    alive: list[Tensor] = []
    for frees, which, nbytes in moves:
        if frees and alive:
            t = alive.pop(which % len(alive))
            tallocr.free_tensor(t)
        else:
            t = tensor(4 * nbytes)
            try:
                tallocr.alloc(t)
            except LineAssert:
                continue
            alive.append(t)
        free = [(offset, offset + size) for offset, size in blocks(tallocr)]
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(free))
        used = [(t.data - tallocr.base, t.data - tallocr.base + -(-t.nbytes // 128) * 128) for t in alive]
        everything = sorted([*free, *used])
        assert everything[0][0] == 0
        assert everything[-1][1] == 128 * 64
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(everything))
