"""Quantized blocks by array code: the same values and bytes as from the gguf library."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.blocks import can_decode, can_encode, decode_blocks, encode_blocks
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.quants import dequantize, quantize

DECODED = [t for t in TYPES.values() if can_decode(t)]
ENCODED = [t for t in TYPES.values() if can_encode(t)]


@pytest.mark.parametrize("type", DECODED, ids=lambda t: t.name)
def test_any_bytes_are_decoded_to_the_same_values(type: object) -> None:
    t = next(t for t in DECODED if t is type)
    rng = np.random.default_rng(t.id)
    rows = rng.integers(0, 256, (3, 2, 40 * t.type_size), dtype=np.uint8)
    expected = dequantize(rows, t)
    with np.errstate(all="ignore"):
        got = decode_blocks(np, rows, t)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("type", ENCODED, ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 3e4])
def test_values_are_encoded_to_the_same_bytes(type: object, scale: float) -> None:
    t = next(t for t in ENCODED if t is type)
    rng = np.random.default_rng(t.id)
    values = (rng.standard_normal((4, 3, 8 * t.block_size)) * scale).astype(np.float32)
    values[0, 0, : t.block_size] = 0
    values[1, 1, : t.block_size] = 2.5
    values[2, 2] = np.rint(values[2, 2])
    with np.errstate(all="ignore"):
        got = encode_blocks(np, values, t)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, quantize(values, t))


def test_rows_with_gaps_and_rows_of_no_elements_are_decoded() -> None:
    t = TYPES["q8_0"]
    rows = np.random.default_rng(1).integers(0, 100, (2, 5, 3 * t.type_size), dtype=np.uint8)
    np.testing.assert_array_equal(decode_blocks(np, rows[:, ::2, t.type_size :], t), dequantize(rows, t)[:, ::2, 32:])
    assert decode_blocks(np, rows[:, :0], t).shape == (2, 0, 96)
    assert encode_blocks(np, np.zeros((0, 64), np.float32), t).shape == (0, 2 * t.type_size)
