"""The reference of ops against the real library: names, symbols, and what the examples become there."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.inspect.op_reference import op_facts
from ggmltool.scenario.op_examples import op_example
from tests.conformance.ops_case import real_library
from tests.conformance.run import engine_run, judge, planning_only

lib = real_library()

from ggmltool.oracle import run  # noqa: E402

EXAMPLES = [f.name.lower() for f in op_facts() if op_example(f.name.lower()) is not None]


def text_of(function: str, number: int) -> str:
    called = getattr(lib.base, function)
    called.restype, called.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return str(called(number).decode("utf-8"))


def test_names_and_symbols_are_those_of_the_library() -> None:
    facts = op_facts()
    functions = {None: "ggml_op_name", Op.UNARY: "ggml_unary_op_name", Op.GLU: "ggml_glu_op_name"}
    assert [f.name for f in facts] == [text_of(functions[f.function_of], f.number) for f in facts]
    assert [f.symbol for f in facts if f.function_of is None] == [text_of("ggml_op_symbol", op) for op in Op]
    assert [len(Op), len(UnaryOp), len(GluOp)] == [101, 22, 7]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned_by_the_library_as_by_the_engine(tmp_path: Path, name: str) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(op_example(name) or "")
    loaded = ggmltool.load(file)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert plans[-1]["ok"]
    assert judge(plans, texts, run(model, 2)) == []
