"""The reference of ops against the real library: names, symbols, and what the examples become there."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.op import KEY_NAMES, GluOp, Op, UnaryOp
from ggmltool.ggml.op_reference import op_facts
from ggmltool.scenario.op_examples import long_form, op_example
from tests.conformance.ops_case import real_library
from tests.conformance.run import engine_run, judge, planning_only

lib = real_library()

from ggmltool.oracle import run  # noqa: E402
from ggmltool.oracle.structs import Tensor  # noqa: E402

EXAMPLES = [name for name in KEY_NAMES if op_example(name) is not None]


def text_of(function: str, number: int) -> str:
    called = getattr(lib.base, function)
    called.restype, called.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return str(called(number).decode("utf-8"))


def test_names_and_symbols_are_those_of_the_library() -> None:
    facts = op_facts()
    functions = {None: "ggml_op_name", Op.UNARY: "ggml_unary_op_name", Op.GLU: "ggml_glu_op_name"}
    assert [f.name for f in facts] == [text_of(functions[f.function_of], f.number) for f in facts]
    assert [f.symbol for f in facts if f.function_of is None] == [text_of("ggml_op_symbol", op) for op in Op]
    assert [len(Op), len(UnaryOp), len(GluOp)] == [101, 22, 6]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned_by_the_library_as_by_the_engine(tmp_path: Path, name: str) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(op_example(name) or "")
    loaded = ggmltool.load(file)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert plans[-1]["ok"]
    assert judge(plans, texts, run(model, 2)) == []


MORE_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "ssm_scan": (1,),
    "gated_linear_attn": (0.5,),
    "solve_tri": (True, True, False),
    "gated_delta_net": (1,),
    "dsv4_hc_comb": (1e-6, 4),
}
"""What ggml's constructors of the ops without a rule here take beyond their sources."""

CUSTOM = ("map_custom1", "map_custom2", "map_custom3", "custom")
"""These take functions of C."""

BY_HAND = [name for name in EXAMPLES if long_form(name) is not None and name not in CUSTOM]


@pytest.mark.parametrize("name", BY_HAND)
def test_what_an_example_says_by_hand_is_what_ggmls_constructor_makes(tmp_path: Path, name: str) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(op_example(name) or "")
    model = ggmltool.load(file).model
    node = model.graphs["main"].nodes[-1]
    tensors = {t.id: t for t in model.tensors()}
    with lib.context() as ctx:
        sources = []
        for id in node.src:
            assert id is not None
            sources.append(lib.tensor(ctx, tensors[id].type, tensors[id].ne))
            Tensor.from_address(sources[-1]).flags = tensors[id].flags
        real = lib.fields(lib.call(name, ctx, *sources, *MORE_ARGUMENTS.get(name, ())))
    assert (real["type"], real["ne"], real["nb"]) == (node.type.name, node.ne, node.nb)
    assert real["op_params"] == (*node.op_params, *[0] * 16)[:16]
    assert (real["view_src"] is None) == (node.view_src is None)
