"""What data puts into tensors, as bytes of their types."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of
from ggmltool.scenario.data import BytesData, Data, ListData
from ggmltool.scenario.encoded import can_encode, decode, encode
from ggmltool.scenario.errors import Mistake, ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.read_data import parse_data

M: Dims = (3, 2, 1, 1)


def data(value: object, type: str = "f32", ne: Dims = M, folder: Path | None = None) -> Data:
    return parse_data(value, TYPES[type], ne, folder)


def floats(value: object, type: str = "f32", ne: Dims = M) -> list[float]:
    raw = data(value, type, ne).raw(TYPES[type], ne)
    return [float(v) for v in decode(raw, TYPES[type], ne).ravel()]


def test_a_list_is_flat_or_nested_as_rows_of_columns() -> None:
    assert floats([1, 2, 3, 4, 5, 6]) == floats([[1, 2, 3], [4, 5, 6]]) == floats([[[1, 2, 3], [4, 5, 6]]]) == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip


def test_generated_values_are_those_of_numpy() -> None:
    normal = np.random.default_rng(1).normal(2, 3, 6).astype(np.float32)
    uniform = np.random.default_rng(7).uniform(-1, 1, 6).astype(np.float32)
    assert floats({"normal": {"seed": 1, "mean": 2, "std": 3}}) == [float(v) for v in normal]
    assert floats({"uniform": {"seed": 7}}) == [float(v) for v in uniform]
    assert floats({"arange": {"start": 1, "step": 0.5}}) == [1, 1.5, 2, 2.5, 3, 3.5]
    assert floats({"arange": None}) == [0, 1, 2, 3, 4, 5]
    assert floats({"fill": "-inf"}) == [float("-inf")] * 6


def test_integers_are_rounded_down_so_that_the_upper_bound_never_comes() -> None:
    values = floats({"uniform": {"low": 0, "high": 3}}, "i32", (1000, 1, 1, 1))
    assert set(values) == {0, 1, 2}


def test_large_integers_stay_exact() -> None:
    raw = data([2**62 + 1, -(2**63)], "i64", (2, 1, 1, 1)).raw(TYPES["i64"], (2, 1, 1, 1))
    assert np.frombuffer(raw, "<i8").tolist() == [2**62 + 1, -(2**63)]


@pytest.mark.parametrize("name", [name for name, t in TYPES.items() if can_encode(t)])
def test_every_type_that_values_can_be_converted_to_gets_all_its_bytes(name: str) -> None:
    type_ = TYPES[name]
    ne: Dims = (256, 3, 1, 1)
    raw = data({"uniform": {"low": -4, "high": 4}}, name, ne).raw(type_, ne)
    assert len(raw) == nbytes_of(type_, ne, contiguous_nb(type_, ne))
    assert np.abs(decode(raw, type_, ne).astype(np.float64)).max() <= 4.5


def test_quantized_values_are_those_of_gguf() -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    expected = gguf.quants.quantize(values.reshape(2, 32), gguf.GGMLQuantizationType.Q8_0).tobytes()
    assert data([float(v) for v in values], "q8_0", (32, 2, 1, 1)).raw(TYPES["q8_0"], (32, 2, 1, 1)) == expected


def test_half_precision_rounds_from_float32_and_overflows_to_infinity() -> None:
    assert floats([1e6, -1e6, 65504], "f16", (3, 1, 1, 1)) == [float("inf"), float("-inf"), 65504]
    raw = data([1.00390625], "bf16", (1, 1, 1, 1)).raw(TYPES["bf16"], (1, 1, 1, 1))
    assert np.frombuffer(raw, ml_dtypes.bfloat16)[0] == np.float32(1.0)


def test_base64_are_the_tensors_own_bytes() -> None:
    content = bytes(range(36))
    found = data({"base64": base64.b64encode(content).decode()}, "q4_0", (64, 1, 1, 1))
    assert found == BytesData(content)
    assert found.raw(TYPES["q4_0"], (64, 1, 1, 1)) == content


def test_strides_are_respected_and_gaps_are_zero() -> None:
    raw = ListData((1, 2, 3, 4)).raw(TYPES["i8"], (2, 2, 1, 1), (2, 5, 10, 10))
    assert raw == bytes([1, 0, 2, 0, 0, 3, 0, 4])


def test_npy_files_are_read_with_any_leading_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int64).reshape(1, 2, 3))
    found = data({"npy": "a.npy"}, folder=tmp_path)
    assert np.frombuffer(found.raw(TYPES["f32"], M), "<f4").tolist() == [0, 1, 2, 3, 4, 5]


def test_gguf_tensors_keep_their_bytes_or_are_converted(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    quantized = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("w", values)
    writer.add_tensor("q", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ne: Dims = (32, 2, 1, 1)
    same = data({"gguf": "m.gguf", "tensor": "q"}, "q8_0", ne, tmp_path).raw(TYPES["q8_0"], ne)
    assert same == quantized.tobytes()
    converted = data({"gguf": "m.gguf", "tensor": "w"}, "q8_0", ne, tmp_path).raw(TYPES["q8_0"], ne)
    assert converted == quantized.tobytes()
    with pytest.raises(Mistake, match=r'"m.gguf" has no tensor "ww"'):
        data({"gguf": "m.gguf", "tensor": "ww"}, "f32", ne, tmp_path)
    with pytest.raises(Mistake, match=r'"w" in "m.gguf" has the extents \[32, 2, 1, 1\]'):
        data({"gguf": "m.gguf", "tensor": "w"}, "f32", (64, 1, 1, 1), tmp_path)


def test_an_array_in_a_dict_is_a_list() -> None:
    assert data(np.arange(6).reshape(2, 3)) == data([0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("value", "type", "message", "path"),
    [
        ([1, 2], "f32", "data has 2 values", ()),
        ([], "f32", "data has 0 values", ()),
        ([[1, 2], [3, 4], [5, 6]], "f32", "data is nested as 3 x 2", ()),
        ([[1, 2, 3], [4, 5]], "f32", "the lists differ in length: 2 values beside 3", (1,)),
        ([[1, 2, 3], 4], "f32", "the lists differ in length: the number 4 beside 3", (1,)),
        ([[1, 2, "x"], [4, 5, 6]], "f32", 'an element must be a number, not the text "x"', (0, 2)),
        ([1, 2, 3, None, 5, 6], "f32", "an element must be a number, not null", (3,)),
        ([1, 2, 3, True, 5, 6], "f32", "an element must be a number, not true (a truth value)", (3,)),
        ([1, 2, 3, 10**400, 5, 6], "f32", "an element is too large for a number", (3,)),
        ([1, 2, 3, 1.5, 5, 6], "i32", "an element of i32 must be an integer, not the number 1.5", (3,)),
        ([1, 2, 3, 128, 5, 6], "i8", "an element of i8 must be at most 127, not 128", (3,)),
        ([1, 2, 3, 4, 5, 6], "q4_K", "values cannot be converted to q4_K here", ()),
        (5, "f32", "data must be a list or a map, not the number 5", ()),
        ({}, "f32", "data is empty", ()),
        ({"fil": 0}, "f32", 'data has no kind "fil"', ()),
        ({"fill": 0, "normal": {}}, "f32", "data cannot be both fill and normal", ("normal",)),
        ({"fill": 0, "x": 1}, "f32", 'data has no key "x"', ("x",)),
        ({"fill": "a"}, "f32", 'an element must be a number, not the text "a"', ("fill",)),
        ({"fill": 300}, "i8", "an element of i8 must be at most 127, not 300", ("fill",)),
        ({"normal": {"std": -1}}, "f32", "std must be at least 0, not -1.0", ("normal", "std")),
        ({"normal": {"seed": -1}}, "f32", "seed must be at least 0, not -1", ("normal", "seed")),
        ({"normal": {"sed": 1}}, "f32", 'normal has no key "sed"', ("normal", "sed")),
        ({"uniform": {"low": 2}}, "f32", "low must not be above high: 2.0, 1.0", ("uniform", "low")),
        ({"uniform": {"high": "inf"}}, "f32", "low must not be above high: -1.0, inf", ("uniform", "low")),
        ({"arange": {"step": 100}}, "i8", "the last value, 500, does not fit into i8", ("arange",)),
        ({"base64": "AAAA"}, "f32", "base64 gives 3 bytes", ("base64",)),
        ({"base64": "A"}, "f32", "this is not base64: ", ("base64",)),
        ({"base64": "A*=="}, "f32", "this is not base64: ", ("base64",)),
        ({"base64": 5}, "f32", "base64 must be text, not the number 5", ("base64",)),
    ],
)  # fmt: skip
def test_mistakes_in_data(value: Any, type: str, message: str, path: tuple[object, ...]) -> None:
    """What files beside a scenario can be is in tests/cli/test_bad_input.py."""
    with pytest.raises(Mistake) as e:
        data(value, type)
    assert e.value.message.startswith(message)
    assert e.value.path == path


def test_a_gguf_file_needs_the_tensors_name(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF\3\0\0\0")
    with pytest.raises(Mistake, match="needs the tensor's name"):
        data({"gguf": "a.gguf"}, folder=tmp_path)


def test_data_for_more_elements_than_memory_are_refused() -> None:
    with pytest.raises(Mistake, match="data for 1099511627776 elements"):
        data({"fill": 0}, "f32", (1 << 40, 1, 1, 1))


def test_a_mistake_in_a_list_has_the_place_of_the_element() -> None:
    scenario = {"ggmltool": 1, "contexts": {"c": {"tensors": {"x": {"type": "i8", "ne": [2, 1], "data": [[1, 999]]}}}}}
    with pytest.raises(ScenarioError) as e:
        load_spec(scenario)
    assert str(e.value) == ("<dict>: contexts.c.tensors.x.data[0][1]: an element of i8 must be at most 127, not 999")


numbers = st.floats(width=32) | st.integers(-(2**31), 2**31)


@given(st.lists(numbers, min_size=6, max_size=6))
def test_every_float32_comes_back(values: list[float]) -> None:
    expected = np.array([float(v) for v in values], np.float64).astype(np.float32)
    assert np.array_equal(np.frombuffer(data(values).raw(TYPES["f32"], M), "<f4"), expected, equal_nan=True)


@given(st.sampled_from([n for n, t in TYPES.items() if can_encode(t) and t.quantized]), st.integers(0, 2**32))
def test_quantizing_what_was_quantized_changes_little(name: str, seed: int) -> None:
    type_ = TYPES[name]
    ne: Dims = (256, 1, 1, 1)
    raw = data({"normal": {"seed": seed}}, name, ne).raw(type_, ne)
    once = decode(raw, type_, ne)
    twice = decode(encode(once, type_), type_, ne)
    assert np.allclose(once, twice, atol=0.3)


def test_quantized_bytes_of_no_rows_have_no_values() -> None:
    from ggmltool.ggml.dtypes import TYPES
    from ggmltool.scenario.encoded import decode

    assert decode(b"", TYPES["q4_0"], (32, 0, 1, 1)).shape == (1, 1, 0, 32)
    assert decode(b"", TYPES["q4_0"], (0, 2, 1, 1)).shape == (1, 1, 2, 0)
