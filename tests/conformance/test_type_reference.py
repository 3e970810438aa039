"""The reference of types against the real library: sizes, traits, and every entry of the tables of values."""

from __future__ import annotations

import base64
import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ask.ops.record import op_example, op_facts
from ggmltool.ggml.dtypes import NO_FROM_FLOAT_REF, NO_TO_FLOAT, NO_VEC_DOT, TYPES, TYPES_BY_ID
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.ops.cpu.tables import TABLES, table_bits
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle import run, run_many
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import TypeTraits
from tests.conformance.releases import release_of
from tests.conformance.run import engine_run, judge, planning_only

GGML_TYPE_COUNT = 43
KEPT = [table.name for table in TABLES.values() if table.symbol]


class TraitsCPU(ctypes.Structure):
    _fields_ = (
        ("from_float", ctypes.c_void_p),
        ("vec_dot", ctypes.c_void_p),
        ("vec_dot_type", ctypes.c_int),
        ("nrows", ctypes.c_int64),
    )


def foreign(of: Any, function: str, result: Any) -> Any:
    """A function of an int; its own object, for the oracle has another signature of some of them."""
    return ctypes.CFUNCTYPE(result, ctypes.c_int)((function, of))


def traits(of: Any, function: str, struct: type[ctypes.Structure], number: int) -> Any:
    return foreign(of, function, ctypes.POINTER(struct))(number).contents


def asked(lib: Lib, function: str, result: Any, number: int) -> Any:
    return foreign(lib.base, function, result)(number)


@pytest.mark.parametrize("type", TYPES.values(), ids=str)
def test_a_type_is_as_the_library_says(type: Any, lib: Lib) -> None:
    assert asked(lib, "ggml_type_name", ctypes.c_char_p, type.id).decode() == type.name
    assert asked(lib, "ggml_blck_size", ctypes.c_int64, type.id) == type.block_size
    assert asked(lib, "ggml_type_size", ctypes.c_size_t, type.id) == type.type_size
    assert asked(lib, "ggml_is_quantized", ctypes.c_bool, type.id) == type.quantized
    for n in (0, 1, 33, 256, 4096):
        assert lib.ggml_row_size(type.id, n * type.block_size) == type.row_size(n * type.block_size)
    t = traits(lib.base, "ggml_get_type_traits", TypeTraits, type.id)
    assert (t.type_name.decode(), t.blck_size, t.type_size, t.is_quantized) == (
        type.name, type.block_size, type.type_size, type.quantized,
    )  # fmt: skip
    assert (t.to_float is None, t.from_float_ref is None) == (type in NO_TO_FLOAT, type in NO_FROM_FLOAT_REF)
    cpu = traits(lib.cpu, "ggml_get_type_traits_cpu", TraitsCPU, type.id)
    assert (cpu.from_float is not None, cpu.vec_dot is None) == (type.from_float, type in NO_VEC_DOT)
    assert TYPES_BY_ID[cpu.vec_dot_type].name == (type.vec_dot_type or "f32")


def test_the_other_numbers_are_of_types_that_are_gone(lib: Lib) -> None:
    gone = [n for n in range(GGML_TYPE_COUNT) if n not in TYPES_BY_ID]
    assert all(asked(lib, "ggml_blck_size", ctypes.c_int64, n) == 0 for n in gone)
    assert max(TYPES_BY_ID) == GGML_TYPE_COUNT - 1


@pytest.mark.parametrize("name", KEPT)
def test_a_table_is_the_librarys_bit_for_bit(name: str, lib: Lib) -> None:
    lib.cpu.ggml_cpu_init()
    table = TABLES[name]
    element = ctypes.c_uint16 if table.type == "f16" else ctypes.c_uint32
    real = np.array((element * len(table)).in_dll(lib.cpu, table.symbol))
    assert np.array_equal(table_bits(name), real)


@pytest.mark.parametrize("name", ["gelu", "gelu_quick", "silu", "exp"])
def test_of_an_f16_tensor_the_librarys_cpu_computes_the_entries_of_the_table(name: str, release: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    halves = np.where(np.isnan(halves.view(np.float16)), np.uint16(0), halves)
    data = {"base64": base64.b64encode(halves.tobytes()).decode()}
    scenario = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"tensors": {"x": {"type": "f16", "ne": [65536], "data": data}}}},
        "graphs": {"main": {"nodes": {"y": {"op": name, "src": ["x"], "flags": ["output"]}}}},
        "steps": ["alloc main", "compute main", {"get": ["y"]}],
    }
    computed = run(ggmltool.load(scenario, ggml=release).model).values[0]["y"].reshape(-1)
    with np.errstate(all="ignore"):
        bits = computed.astype(np.float16).view(np.uint16)
    expected = table_bits(name)[halves]
    nan = np.isnan(expected.view(np.float16))
    assert np.array_equal(np.isnan(computed), nan)
    assert np.array_equal(bits[~nan], expected[~nan])


def text_of(lib: Lib, function: str, number: int) -> str:
    called = getattr(lib.base, function)
    called.restype, called.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return str(called(number).decode("utf-8"))


def test_names_and_symbols_are_those_of_the_library(lib: Lib) -> None:
    facts = op_facts(release_of(lib))
    functions = {None: "ggml_op_name", Op.UNARY: "ggml_unary_op_name", Op.GLU: "ggml_glu_op_name"}
    assert [f.name for f in facts] == [text_of(lib, functions[f.function_of], f.number) for f in facts]
    assert [f.symbol for f in facts if f.function_of is None] == [text_of(lib, "ggml_op_symbol", op) for op in Op]
    assert [len(Op), len(UnaryOp)] == [101, 22]


def test_the_examples_are_planned_by_the_library_as_by_the_engine(tmp_path: Path, release: str) -> None:
    loaded = {}
    for facts in op_facts(RELEASES[release]):
        example = op_example(facts.name.lower())
        if example is not None:
            file = tmp_path / f"{facts.name}.yaml"
            file.write_text(example)
            loaded[facts.name] = ggmltool.load(file, ggml=release)
    models = {name: planning_only(scenario) for name, scenario in loaded.items()}
    models = {
        name: replace(model, steps=[step for step in model.steps if step.kind != "compute"])
        for name, model in models.items()
    }
    failed = {}
    for (name, model), real in zip(models.items(), run_many(models.values(), 2), strict=True):
        plans, texts = engine_run(loaded[name], model)
        assert plans[-1]["ok"], name
        failed[name] = judge(plans, texts, real)
    assert len(failed) > 100
    assert {name: differences for name, differences in failed.items() if differences} == {}
