"""Another CPU: what it leaves as it is, what it moves, and how far (R9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from tests.another_cpu import MovedArray, another_cpu
from tests.cli.conftest import SAMPLES

RNG = np.random.default_rng(1)
A, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((40, 300), (300, 20)))


def on_it(values: Any) -> Any:
    return values.view(MovedArray)


def test_what_is_exact_stays_exact() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(on_it(whole) @ on_it(whole.T), whole @ whole.T)
    assert np.array_equal(on_it(whole) * np.float32(0.25), whole / 4)
    assert np.array_equal(on_it(whole).sum(axis=-1), [6, 22, 38])
    assert np.exp(on_it(np.zeros(3, np.float32))).tolist() == [1, 1, 1]


def test_products_are_moved_by_one_unit_in_the_last_place_and_not_all_of_them() -> None:
    for plain, moved in ((A * A, on_it(A) * A), (np.exp(A), np.exp(on_it(A)))):
        steps = np.abs(plain.view(np.int32) - np.asarray(moved).view(np.int32))
        assert steps.max() == 1
        assert 0.2 < steps.mean() < 0.7


@pytest.mark.parametrize("compute", [lambda a: a @ B, lambda a: a.sum(axis=-1), lambda a: np.exp(a).mean(axis=0)])
def test_sums_are_others_and_as_good(compute: Any) -> None:
    plain, moved = compute(A), np.asarray(compute(on_it(A)))
    assert moved.dtype == plain.dtype
    assert (plain != moved).any()
    assert np.allclose(plain, moved, rtol=1e-4, atol=1e-4)
    assert np.array_equal(moved, np.asarray(compute(on_it(A))))


def test_a_product_in_place_is_one_of_the_operands_that_it_had() -> None:
    a = on_it(A.copy())
    a *= B[:, :1].T
    assert np.allclose(a, A * B[:, :1].T, rtol=1e-6)


@pytest.mark.skipif("config.getoption('--another-cpu')", reason="there is no other one to compare with")
def test_a_graph_computes_other_values_and_nearly_the_same() -> None:
    scenario = ggmltool.load(SAMPLES / "transformer.yaml")
    plain = scenario.compute()["out"]
    with another_cpu():
        other = np.asarray(scenario.compute()["out"])
    assert (plain != other).any()
    assert np.allclose(plain, other, rtol=1e-3, atol=1e-4)
    assert np.array_equal(plain, scenario.compute()["out"])
