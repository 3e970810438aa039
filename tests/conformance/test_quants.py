"""Conversions of every quantized type against the library's own, row by row."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

from ggmltool.ggml.dtypes import NO_TO_FLOAT, TYPES, DType
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.values.quants import dequantize, quantize
from ggmltool.oracle.lib import Lib
from ggmltool.scenario.encoded import can_decode, can_encode
from tests.conformance.ops_case import SPECIAL
from tests.conformance.test_type_reference import TypeTraits, traits

QUANTIZED = [t for t in TYPES.values() if t.quantized]
READ = [t for t in QUANTIZED if t not in NO_TO_FLOAT]
WRITTEN = [t for t in QUANTIZED if can_encode(t)]
TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
ROWS = 37


def function(lib: Lib, type: DType, name: str) -> ctypes.CFUNCTYPE:  # type: ignore[valid-type]
    return TO_FLOAT(getattr(traits(lib.base, "ggml_get_type_traits", TypeTraits, type.id), name))


def values(kind: str, n: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(5)
    match kind:
        case "normal":
            return rng.standard_normal(n).astype(np.float32)
        case "tiny":
            return (rng.standard_normal(n) * 1e-7).astype(np.float32)
        case "zeros":
            return np.zeros(n, dtype=np.float32)
        case "halves":
            return rng.integers(-8, 8, n).astype(np.float32) / 2
    return np.resize(np.float32([v for v in SPECIAL if np.isfinite(v) and abs(v) < 1e4]), n)


@pytest.mark.parametrize("type", READ, ids=str)
def test_whatever_bits_a_row_has_it_is_read_as_the_library_reads_it(type: DType, lib: Lib) -> None:
    n = 4 * type.block_size
    raw = np.random.default_rng(1).integers(0, 256, type.row_size(n * ROWS), np.uint8)
    expected = np.empty(n * ROWS, np.float32)
    function(lib, type, "to_float")(raw.ctypes.data, expected.ctypes.data, expected.size)
    got = dequantize(raw.reshape(1, ROWS, -1), type)
    assert got.shape == (1, ROWS, n)
    assert np.allclose(got.reshape(-1), expected, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["normal", "tiny", "zeros", "halves", "edges"])
@pytest.mark.parametrize("type", WRITTEN, ids=str)
def test_rows_are_written_as_the_library_writes_them(type: DType, kind: str, lib: Lib) -> None:
    n = 4 * type.block_size
    floats = values(kind, n * ROWS)
    expected = np.zeros(type.row_size(n * ROWS), np.uint8)
    function(lib, type, "from_float_ref")(floats.ctypes.data, expected.ctypes.data, floats.size)
    got = quantize(floats.reshape(ROWS, n), type)
    assert got.shape == (ROWS, type.row_size(n))
    assert np.array_equal(got.reshape(-1), expected)


@pytest.mark.parametrize("type", QUANTIZED, ids=str)
def test_what_cannot_be_converted_is_said(type: DType) -> None:
    raw, floats = np.zeros((1, type.type_size), np.uint8), np.zeros((1, type.block_size), np.float32)
    for can, convert in (
        (can_decode(type), lambda: dequantize(raw, type)),
        (can_encode(type), lambda: quantize(floats, type)),
    ):
        if can:
            convert()
        else:
            with pytest.raises(NotComputable, match=f"values of type {type.name} cannot be"):
                convert()


def test_rows_of_no_elements_have_none() -> None:
    assert dequantize(np.empty((3, 0), np.uint8), TYPES["q4_0"]).shape == (3, 0)
    assert dequantize(np.empty((0, 18), np.uint8), TYPES["q4_0"]).shape == (0, 32)
