"""The reference of ops against the real library: names, symbols, and what the examples become there."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import ggmltool
from ggmltool.ask.ops.record import op_example, op_facts
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle import run_many
from ggmltool.oracle.lib import Lib
from tests.conformance.releases import release_of
from tests.conformance.run import engine_run, judge, planning_only


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
