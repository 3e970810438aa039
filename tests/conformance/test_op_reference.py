"""The reference of ops against the real library: names, symbols, and what the examples become there."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.op_reference import op_facts
from ggmltool.oracle import run
from ggmltool.oracle.lib import Lib
from ggmltool.scenario.op_examples import op_example
from tests.conformance.releases import JUDGED, release_of
from tests.conformance.run import engine_run, judge, planning_only

EXAMPLES = [
    (release, f.name.lower())
    for release in JUDGED
    for f in op_facts(RELEASES[release])
    if op_example(f.name.lower()) is not None
]


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


@pytest.mark.parametrize(("release", "name"), EXAMPLES, indirect=["release"])
def test_an_example_is_planned_by_the_library_as_by_the_engine(tmp_path: Path, name: str, release: str) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(op_example(name) or "")
    loaded = ggmltool.load(file, ggml=release)
    model = planning_only(loaded)
    model = replace(model, steps=[step for step in model.steps if step.kind != "compute"])
    plans, texts = engine_run(loaded, model)
    assert plans[-1]["ok"]
    assert judge(plans, texts, run(model, 2)) == []
