"""Comparing texts as numbers: what may differ on another CPU, and what may not (R9)."""

from __future__ import annotations

import pytest

from tests.golden import FLOAT32, same_but_for_rounding


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean 1.6731", "mean 1.6732"),
        ("  -0.94869   2.7757", "   -0.9487   2.7757"),
        ("y  0.999999\n──────────", "y  1\n──────"),
        ("1.0e-05 at [0, 3]", "1.00005e-05 at [0, 3]"),
        ('"nmse": 0.0013602147', '"nmse": 0.0013602091'),
        ("-0", "0"),
    ],
)
def test_texts_that_differ_in_a_last_digit_are_the_same(one: str, other: str) -> None:
    assert same_but_for_rounding(one, other, FLOAT32)
    assert same_but_for_rounding(other, one, FLOAT32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean 1.6731", "mean 1.6741"),
        ("31 nodes", "32 nodes"),
        ("f32[32, 4]", "f32[32, 5]"),
        ("q4_0", "q4_1"),
        ("ggml 0.20.2", "ggml 0.20.3"),
        ("0.5 0.25", "0.5"),
        ("0.5 ok", "0.5 bad"),
        ('"nmse": 0.0013602147', '"nmse": 0.0013702147'),
        ("0.001", "-0.003"),
    ],
)
def test_other_values_names_and_counts_are_not(one: str, other: str) -> None:
    assert not same_but_for_rounding(one, other, FLOAT32)
    assert not same_but_for_rounding(other, one, FLOAT32)
