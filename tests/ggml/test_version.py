"""What the release fixes: sizes of structs, hash sizes, the room a graph takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml import version
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.version import HASH_PRIMES, hash_size, pad


@pytest.mark.parametrize(
    ("size", "overhead"),
    [(1, 176), (5, 352), (64, 2752), (100, 4864), (2048, 82608), (4096, 165216), (8192, 330192), (16384, 659632)],
)
def test_a_graph_takes_as_much_of_an_arena_as_in_the_real_library(size: int, overhead: int) -> None:
    assert DEFAULT.graph_overhead(size) == overhead


def test_gradients_take_two_more_arrays() -> None:
    assert DEFAULT.graph_overhead(2048, grads=True) == 148192


def test_a_tensor_takes_368_bytes_of_an_arena() -> None:
    assert DEFAULT.tensor_overhead() == 368
    assert (version.OBJECT_SIZE, version.TENSOR_SIZE, version.CGRAPH_SIZE) == (32, 336, 96)


@pytest.mark.parametrize(
    ("n", "size"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 5), (17, 17), (18, 37), (2048, 2053), (4106, 8209)]
)
def test_a_hash_set_has_the_next_listed_prime(n: int, size: int) -> None:
    assert hash_size(n) == size


def test_beyond_the_primes_a_hash_set_has_an_odd_size() -> None:
    last = HASH_PRIMES[-1]
    assert hash_size(last) == last
    assert hash_size(last + 1) == (last + 1) | 1
    assert hash_size(1 << 40) == (1 << 40) + 1


@given(st.integers(0, 1 << 31))
def test_a_hash_set_is_never_too_small_and_at_most_some_three_times_too_large(n: int) -> None:
    assert n <= hash_size(n) <= max(3 * n, 3)


@given(st.integers(0, 1 << 50), st.integers(0, 12))
def test_padding_rounds_up_to_the_next_multiple(x: int, bits: int) -> None:
    n = 1 << bits
    assert pad(x, n) % n == 0
    assert 0 <= pad(x, n) - x < n


@given(st.integers(1, 1 << 16))
def test_the_room_of_a_graph_grows_with_its_size(size: int) -> None:
    assert DEFAULT.graph_nbytes(size) < DEFAULT.graph_nbytes(size + 1)
    assert DEFAULT.graph_overhead(size) % version.MEM_ALIGN == 0
