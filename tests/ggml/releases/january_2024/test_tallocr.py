"""The allocators of January 2024: best fit with the last block as the last resort, in real and in measured buffers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.releases.january_2024.tallocr import (
    Tallocr,
    buft_alloc_buffer,
)
from ggmltool.ggml.tensor import Tensor

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
