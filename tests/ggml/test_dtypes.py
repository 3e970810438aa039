"""ggml's types: sizes and traits."""

from __future__ import annotations

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.dtypes import BF16, F16, F32, F64, I8, I16, I32, I64, TYPES, TYPES_BY_ID

KNOWN = {int(t): size for t, size in gguf.GGML_QUANT_SIZES.items() if t.name != "Q8_1"}
"""What gguf says; its q8_1 is that of an old release."""


@pytest.mark.parametrize("name", [t.name for t in TYPES.values() if t.id in KNOWN])
def test_block_and_type_sizes_are_those_of_gguf(name: str) -> None:
    type = TYPES[name]
    assert (type.block_size, type.type_size) == KNOWN[type.id]


def test_there_are_35_types_with_numbers_of_their_own() -> None:
    assert len(TYPES) == len(TYPES_BY_ID) == 35
    assert all(TYPES_BY_ID[t.id] is t for t in TYPES.values())


def test_types_with_blocks_are_the_quantized_ones() -> None:
    assert {t.name for t in TYPES.values() if not t.quantized} == {
        "f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64",
    }  # fmt: skip
    assert all(t.quantized == (t.block_size > 1) for t in TYPES.values())


def test_plain_types_have_names_of_their_own() -> None:
    sizes = [t.type_size for t in (F32, F16, BF16, F64, I8, I16, I32, I64)]
    assert sizes == [4, 2, 2, 8, 1, 2, 4, 8]


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 1 << 20))
def test_a_row_of_whole_blocks_takes_their_bytes(name: str, n: int) -> None:
    type = TYPES[name]
    assert type.row_size(n * type.block_size) == n * type.type_size


def test_a_row_that_ends_inside_a_block_is_rounded_down_by_bytes() -> None:
    assert TYPES["q4_0"].row_size(33) == 18 * 33 // 32
    assert TYPES["q8_0"].row_size(31) == 32


def test_the_cpu_multiplies_quantized_types_by_q8() -> None:
    assert {TYPES[n].vec_dot_type for n in ("q4_0", "q5_0", "q8_0", "iq4_nl", "mxfp4")} == {"q8_0"}
    assert {TYPES[n].vec_dot_type for n in ("q4_1", "q5_1", "q8_1")} == {"q8_1"}
    assert {TYPES[n].vec_dot_type for n in ("q2_K", "q6_K", "iq2_s", "tq1_0")} == {"q8_K"}


def test_the_cpu_quantizes_to_all_but_the_searched_types_and_integers() -> None:
    assert {t.name for t in TYPES.values() if not t.from_float} == {
        "iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq3_s", "iq2_s", "iq1_m", "i8", "i16", "i64", "f64",
    }  # fmt: skip
