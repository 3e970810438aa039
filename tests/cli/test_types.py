"""`types` lists ggml's types, tells everything about one, and shows ggml's tables of values."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from ggmltool.cli.reference import TABLE_NAMES
from ggmltool.ggml.dtypes import TYPES, TYPES_BY_ID
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.ops.cpu.tables import TABLES, table_bits
from ggmltool.ggml.values.arrays import dequantize, quantize
from ggmltool.scenario.encoded import can_decode, can_encode
from tests.cli.conftest import Call


def test_the_data_has_every_type(call: Call) -> None:
    listed = json.loads(call("types", "--json").out)["types"]
    assert [(t["number"], t["name"], t["block_size"], t["type_size"]) for t in listed] == [
        (t.id, t.name, t.block_size, t.type_size) for t in TYPES.values()
    ]
    assert {t["name"]: t["bits_per_element"] for t in listed}["q4_K"] == 4.5
    rows = list(csv.DictReader(io.StringIO(call("types", "-f", "csv").out)))
    assert [row["name"] for row in rows] == list(TYPES)
    assert json.loads(call("types", "--json", "q4_0").out)["name"] == "q4_0"


@pytest.mark.parametrize("name", TYPES)
def test_what_can_be_read_and_written_here_is_said(name: str) -> None:
    type = TYPES[name]
    if not type.quantized:
        assert can_decode(type)
        assert can_encode(type)
        return

    def works(convert: object, argument: object) -> bool:
        try:
            convert(argument, type)  # type: ignore[operator]
        except NotComputable:
            return False
        return True

    assert can_decode(type) == works(dequantize, np.zeros((1, type.type_size), dtype=np.uint8))
    assert can_encode(type) == works(quantize, np.zeros((1, type.block_size), dtype=np.float32))


@pytest.mark.parametrize("name", ["q4_K", "Q4_k", "GGML_TYPE_Q4_K", "12"])
def test_a_type_is_found_by_all_of_its_names(call: Call, name: str) -> None:
    assert call("types", name).out == call("types", "q4_K").out
    assert TYPES_BY_ID[12].name == "q4_K"


@pytest.mark.parametrize(
    ("wrong", "right"), [("q4k", "q4_K"), ("bf61", "bf16"), ("float16", ""), ("31", ""), ("4", "")]
)
def test_a_mistyped_type_gets_the_nearest_one(call: Call, wrong: str, right: str) -> None:
    result = call("types", wrong)
    assert (result.status, result.out) == (2, "")
    assert (f'did you mean "{right}"?' if right else f'no type is called "{wrong}"') in result.err


def test_the_tables_are_those_that_the_help_names() -> None:
    assert tuple(TABLES) == TABLE_NAMES


def entries(call: Call, *args: str) -> list[tuple[int, object, object, int]]:
    result = call("types", "--json", "--table", *args)
    assert (result.status, result.err) == (0, "")
    return [(e["index"], e["x"], e["value"], e["bits"]) for e in json.loads(result.out)["entries"]]


def test_the_first_entries_of_fp16_are_those_of_a_gdb_session(call: Call) -> None:
    """`p table_f32_f16[1]`, `x/t table_f32_f16 + 1`; its fifth entry was not yet filled when the session looked."""
    out = call("types", "--table", "fp16", "--range", "0x0000", "0x0004").out
    printed = [line.split()[5] for line in out.splitlines() if line.startswith("  0x")]
    assert printed[:4] == ["0", "5.96046448e-08", "1.1920929e-07", "1.78813934e-07"]
    bits = [f"{row[3]:032b}" for row in entries(call, "fp16", "--range", "0x0", "0x4")]
    assert bits[1] == "00110011100000000000000000000000"
    assert bits[2] == "00110100000000000000000000000000"


def test_entries_are_chosen_by_value_by_index_and_one_by_one(call: Call) -> None:
    assert [x for _, x, _, _ in entries(call, "gelu", "--range", "-1", "1", "--every", "0.5")] == [-1, -0.5, 0, 0.5, 1]
    assert [i for i, *_ in entries(call, "gelu", "--range", "0x10", "0x20", "--every", "8")] == [0x10, 0x18, 0x20]
    assert [i for i, *_ in entries(call, "gelu", "--at", "-1", "--at", "0x3c01", "--at", "inf")] == [
        0xBC00,
        0x3C01,
        0x7C00,
    ]
    assert [i for i, *_ in entries(call, "exp", "--range", "0", "0.1", "--every", "0.1", "--at", "nan")][-1] == 0x7E00
    assert [x for _, x, _, _ in entries(call, "gelu", "--range", "0", "0.3", "--every", "0.1")] == [
        0, 0.0999755859375, 0.199951171875, 0.300048828125,
    ]  # fmt: skip
    assert [i for i, *_ in entries(call, "ue4m3", "--range", "3", "0x05", "--every", "1")] == [3, 4, 5]
    assert entries(call, "silu", "--range", "1", "-1") == []
    assert len(entries(call, "gelu", "--range", "0x0000", "0xffff")) == 65536


def test_values_without_a_number_are_texts(call: Call) -> None:
    shown = entries(call, "exp", "--at", "inf", "--at", "-inf", "--at", "nan", "--at", "1e6")
    assert [(x, value) for _, x, value, _ in shown] == [
        ("Infinity", "Infinity"), ("-Infinity", 0), ("NaN", "NaN"), ("Infinity", "Infinity"),
    ]  # fmt: skip


def test_a_table_as_csv_is_a_line_per_entry(call: Call) -> None:
    assert call("types", "--table", "gelu", "-f", "csv", "--at", "1", "--at", "-1").out == (
        "index,x,value,bits\r\n15360,1.0,0.84130859375,15035\r\n48128,-1.0,-0.1588134765625,45333\r\n"
    )
    assert call("types", "--table", "e8m0", "-f", "csv", "--at", "0x80").out.splitlines()[1] == "128,,1.0,1065353216"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_an_entry_for_every_index(name: str) -> None:
    bits = table_bits(name)
    assert len(bits) == len(TABLES[name])
    assert bits.dtype == (np.uint16 if TABLES[name].type == "f16" else np.uint32)
