"""The pointer hash set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.hash_set import FULL, HashSet

addresses = st.integers(1, 1 << 40).map(lambda n: n * 16)


def test_the_size_is_the_next_listed_prime() -> None:
    assert HashSet(2048).size == 2053
    assert HashSet(1).size == 2


def test_what_collides_takes_the_next_free_slot_and_wraps_around() -> None:
    keys = HashSet(5)
    assert [keys.find_or_insert(16 * n) for n in (4, 9, 14)] == [4, 0, 1]
    assert [keys.probes(16 * n) for n in (4, 9, 14)] == [1, 2, 3]


def test_a_full_set_aborts_as_ggml_does() -> None:
    keys = HashSet(2)
    keys.find_or_insert(16)
    keys.find_or_insert(32)
    assert keys.find(48) == FULL
    assert keys.probes(48) == 2
    with pytest.raises(GgmlAbort, match="fatal error"):
        keys.find_or_insert(48)


@given(st.lists(addresses, max_size=60))
def test_everything_put_in_is_found_and_nothing_else(values: list[int]) -> None:
    keys = HashSet(67)
    slots = {value: keys.find_or_insert(value) for value in values}
    assert all(keys.find(value) == slot and value in keys for value, slot in slots.items())
    assert len(keys) == len(set(values)) == len(set(slots.values()))
    keys.reset()
    assert not len(keys)
    assert not any(value in keys for value in values)
