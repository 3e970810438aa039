"""Batches: each case is checked, and those that fail are named."""

from __future__ import annotations

import pytest

from tests.batches import each, in_batches


def is_even(n: int) -> None:
    assert n % 2 == 0, "odd"


def test_every_case_is_checked_and_those_that_fail_are_named() -> None:
    with pytest.raises(AssertionError) as caught:
        each([1, 2, 3, 4], is_even)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[:2]] == ["2 of 4 fail", "1"]
    assert "\n3: AssertionError: odd" in str(caught.value)


def test_a_batch_of_none_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        each([], is_even)


@in_batches("n, half", [(2, 1), (4, 2), (5, 2)], by=lambda case: "even" if case[0] % 2 == 0 else "odd")
def test_an_item_has_all_cases_of_a_key(n: int, half: int, request: pytest.FixtureRequest) -> None:
    assert n // 2 == half
    assert request.node.callspec.id == ("even" if n % 2 == 0 else "odd")
