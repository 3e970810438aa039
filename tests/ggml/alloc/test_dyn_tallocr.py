"""The best-fit planner: its choices, its laws on random sequences, and a second, naive planner beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml.alloc.dyn_tallocr import Address, DynTallocr
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.version import SIZE_MAX, VBUFFER_MAX_CHUNKS

HUGE = SIZE_MAX // 2


def free_blocks(t: DynTallocr, chunk: int = 0) -> list[tuple[int, int]]:
    return [(offset, size) for offset, size in t.chunks[chunk].free_blocks]


def test_a_part_of_a_tensor_can_be_given_back_and_nothing_too() -> None:
    t = DynTallocr(32, SIZE_MAX)
    chunk, offset = t.alloc(256)
    t.alloc(32)
    t.free_bytes((chunk, offset + 128), 128)
    assert free_blocks(t)[0] == (128, 128)
    t.free_bytes((chunk, offset), 0)
    assert free_blocks(t)[0] == (0, 0)
    assert t.alloc(0) == (0, 0)


def test_where_no_chunk_has_room_the_planner_aborts_in_ggmls_words() -> None:
    t = DynTallocr(32, 32)
    for _ in range(16):
        t.alloc(32)
    with pytest.raises(GgmlAbort) as error:
        t.alloc(HUGE)
    assert error.value.message == "graph allocation: failed to reserve memory"


def test_a_chunk_may_have_256_free_blocks_and_no_more() -> None:
    t = DynTallocr(32, SIZE_MAX)
    places = [t.alloc(32) for _ in range(600)]
    for a in places[0:510:2]:
        t.free_bytes(a, 32)
    assert len(free_blocks(t)) == 256
    with pytest.raises(GgmlAssert) as error:
        t.free_bytes(places[510], 32)
    assert error.value.condition == 'chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"'


def test_a_reset_planner_has_no_chunks() -> None:
    t = DynTallocr(32, SIZE_MAX)
    t.alloc(100)
    t.reset()
    assert sum(c.max_size for c in t.chunks) == 0
    assert t.alloc(100) == (0, 0)


@dataclass
class NaiveChunk:
    limit: int
    used: dict[int, int] = field(default_factory=dict)
    peak: int = 0

    def holes(self) -> list[tuple[int, int]]:
        """What is free: the complement of what is used."""
        out, at = [], 0
        for offset, size in sorted(self.used.items()):
            if offset > at:
                out.append((at, offset - at))
            at = offset + size
        if at < self.limit:
            out.append((at, self.limit - at))
        return out


class NaivePlanner:
    """The same decisions from a different picture: what is in use, not what is free."""

    def __init__(self, alignment: int, limit: int) -> None:
        self.alignment = alignment
        self.limit = min(limit, HUGE)
        self.chunks: list[NaiveChunk] = []

    def alloc(self, size: int) -> Address:
        size = -(-size // self.alignment) * self.alignment
        inner = [min(((n, -at) for at, n in c.holes()[:-1] if n >= size), default=None) for c in self.chunks]
        fits = [i for i, best in enumerate(inner) if best is not None]
        if fits:
            best = inner[fits[-1]]
            assert best is not None
            return self.take(fits[-1], -best[1], size)
        ends = [(i, c.holes()[-1], c.peak) for i, c in enumerate(self.chunks) if c.holes()]
        ends = [(i, hole, peak) for i, hole, peak in ends if hole[1] >= size]
        spare = [(peak - hole[0] - size, i, hole[0]) for i, hole, peak in ends]
        within = [s for s in spare if s[0] >= 0]
        if within:
            _, i, at = min(within)
            return self.take(i, at, size)
        if spare:
            _, i, at = max(spare, key=lambda s: (s[0], -s[1]))
            return self.take(i, at, size)
        last = len(self.chunks) == 15
        self.chunks.append(NaiveChunk(HUGE if last else max(size, self.limit)))
        return self.take(len(self.chunks) - 1, 0, size)

    def take(self, i: int, at: int, size: int) -> Address:
        chunk = self.chunks[i]
        chunk.used[at] = size
        chunk.peak = max(chunk.peak, at + size)
        return i, at

    def free(self, a: Address) -> int:
        return self.chunks[a[0]].used.pop(a[1])


moves = st.lists(st.one_of(st.integers(1, 700), st.integers(-50, -1), st.integers(1, 5000)), min_size=1, max_size=80)


@settings(max_examples=250)
@given(moves, st.sampled_from((16, 32, 128)), st.sampled_from((300, 1024, 4096, SIZE_MAX)))
def test_it_decides_as_the_naive_planner_and_keeps_its_books(sizes: list[int], alignment: int, limit: int) -> None:
    planner, naive = DynTallocr(alignment, limit), NaivePlanner(alignment, limit)
    live: list[tuple[Address, int]] = []
    for n in sizes:
        if n < 0:
            if live:
                address, size = live.pop(n % len(live))
                planner.free_bytes(address, size)
                naive.free(address)
        else:
            address = planner.alloc(n)
            assert address == naive.alloc(n)
            assert address[1] % alignment == 0
            live.append((address, n))
        assert len(planner.chunks) == len(naive.chunks) <= VBUFFER_MAX_CHUNKS
        for i, (chunk, other) in enumerate(zip(planner.chunks, naive.chunks, strict=True)):
            blocks = free_blocks(planner, i)
            # Sorted, disjoint, never touching: this is what the complement of the used ranges is.
            assert blocks == other.holes()
            assert chunk.max_size == other.peak
            assert all(size > 0 for _, size in blocks)
    assert sum(c.max_size for c in planner.chunks) == sum(c.peak for c in naive.chunks)


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_freeing_everything_in_any_order_leaves_one_block_in_each_chunk(sizes: list[int], random: object) -> None:
    planner = DynTallocr(32, 2048)
    places = [(planner.alloc(n), n) for n in sizes]
    random.shuffle(places)  # type: ignore[attr-defined]
    for address, n in places:
        planner.free_bytes(address, n)
    for i in range(len(planner.chunks)):
        ((offset, size),) = free_blocks(planner, i)
        assert offset == 0
        assert size >= planner.max_size(i)
