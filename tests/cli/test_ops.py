"""`ops` lists every op of ggml, tells everything about one, and has an example that works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ask.ops.record import RESULT_OF, op_example, op_facts, result_of
from ggmltool.ggml.op import KEY_NAMES, VIEW_OPS, GluOp, Op, UnaryOp
from ggmltool.ggml.ops.registry import COMMON_MEANINGS, CONSTRUCTORS, since_of
from ggmltool.ggml.releases.table import DEFAULT, NEWEST
from tests.cli.conftest import Call

KNOWN = [facts.name.lower() for facts in op_facts()]
EXAMPLES = [name for name in KNOWN if op_example(name) is not None]
NO_EXAMPLE = {"flash_attn_back"}


def test_the_data_has_every_op_and_function_with_ggmls_number(call: Call) -> None:
    listed = json.loads(call("ops", "--json").out)["ops"]
    named = [(o["function_of"], o["number"], o["name"]) for o in listed]
    families: list[tuple[str, type[Op] | type[UnaryOp] | type[GluOp]]] = [("", Op), ("UNARY", UnaryOp), ("GLU", GluOp)]
    every = [(family, member.value, member.name) for family, enum in families for member in enum]
    assert named == [one for one in every if one[2].lower() in KNOWN]
    assert [facts.name for facts in op_facts(NEWEST)] == [name for *_, name in every]
    plain = listed[: len(Op)]
    assert [o["symbol"] for o in plain] == [op.symbol for op in Op]
    assert [o["can_inplace"] for o in plain] == [op in DEFAULT.rules.inplace_ops for op in Op]
    assert {o["name"] for o in plain if o["is_view_op"]} == {op.name for op in VIEW_OPS}


def test_every_way_to_write_an_op_is_shown_once(call: Call) -> None:
    listed = json.loads(call("ops", "--json").out)["ops"]
    names = [name for o in listed for form in o["forms"] for name in (form["name"], *form["also"])]
    later = {name for name in CONSTRUCTORS if since_of(name) > DEFAULT.date}
    assert sorted(names) == sorted(name for name in CONSTRUCTORS if name in names or name not in later)
    of_newest = [name for o in op_facts(NEWEST) for c in zip(o.constructors, o.other_names, strict=True)
                 for name in (c[0].name, *c[1])]  # fmt: skip
    assert sorted(of_newest) == sorted(CONSTRUCTORS)


def test_every_meaning_is_that_of_a_parameter() -> None:
    op_facts()
    said = {(key, text) for c in CONSTRUCTORS.values() for key, text in (*c.means.items(), *COMMON_MEANINGS.items())}
    heard = {
        (key, text.replace(p.name[-1], "#") if key.endswith("#") else text)
        for c in CONSTRUCTORS.values()
        for p in c.params
        for text in [c.meaning(p.name)]
        for key in (p.name, re.sub(r"\d$", "#", p.name))
    }
    assert said <= heard


def test_every_parameter_is_explained(call: Call) -> None:
    op_facts()
    missing = [(c.name, p.name) for c in CONSTRUCTORS.values() for p in c.params if not c.meaning(p.name)]
    assert missing == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_planned_and_shows_what_it_is_an_example_of(call: Call, name: str) -> None:
    text = call("ops", "--example", name).out
    Path("graph.yaml").write_text(text)
    plan = ggmltool.load("graph.yaml").plan()
    assert plan.ok
    facts = next(f for f in op_facts() if f.name.lower() == name)
    expected = facts.name if facts.function_of is None else facts.function_of.name
    assert name == "none" or [node.op for node in plan.nodes if node.op != "NONE"] == [expected]
    assert call("plan", "graph.yaml").status == 0


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("rope", "f32[64, 8, 4]"),
        ("get_rows", "f32[64, 4]"),
        ("argsort", "i32[8, 4]"),
        ("swiglu", "f32[4, 4]"),
        ("none", ""),
    ],
)
def test_one_op_says_what_its_example_gives(call: Call, name: str, result: str) -> None:
    assert json.loads(call("ops", "--json", name).out).get("result", "") == result
    assert (f"the result is {result}" in call("ops", name).out) == bool(result)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_lies_in_a_sources_memory_is_said_to(tmp_path: Path, name: str) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(op_example(name) or "")
    loaded = ggmltool.load(file)
    run = loaded.start()
    run.step(loaded.model.steps[0])
    node = run.newest["main"][0].nodes[-1]
    facts = next(f for f in op_facts() if f.name.lower() == name)
    assert (node.view_src is not None) == (facts.is_view_op or bool(facts.result_of))


def test_only_what_ggml_refuses_to_build_has_no_example(call: Call) -> None:
    assert {name for name in KEY_NAMES if op_example(name) is None} == NO_EXAMPLE
    result = call("ops", "--example", "flash_attn_back")
    assert (result.status, result.out) == (2, "")
    assert "cannot build it" in result.err


def test_results_in_a_source_name_one_of_the_sources(call: Call) -> None:
    for op in RESULT_OF:
        source = result_of(op, DEFAULT)
        shown = json.loads(call("ops", "--json", op.name).out)
        assert not source or source in shown["forms"][0]["sources"]


@pytest.mark.parametrize("name", ["rope", "ROPE", "GGML_OP_ROPE", "rope_ext", "ggml_rope_inplace", "rope_multi"])
def test_an_op_is_found_by_all_of_its_names(call: Call, name: str) -> None:
    assert call("ops", name).out == call("ops", "rope").out


@pytest.mark.parametrize(("wrong", "right"), [("ropee", "rope"), ("softmax", "soft_max"), ("SWIGLUU", "swiglu")])
def test_a_mistyped_op_gets_the_nearest_one(call: Call, wrong: str, right: str) -> None:
    result = call("ops", wrong)
    assert (result.status, result.out) == (2, "")
    assert f'did you mean "{right}"?' in result.err


def test_a_function_that_builds_several_nodes_is_known_as_one(call: Call) -> None:
    result = call("ops", "conv_1d")
    assert (result.status, result.out) == (2, "")
    assert (
        "conv_1d is not an op: conv_1d(a, b, s0=, p0=, d0=) builds several nodes, the last of them RESHAPE"
        in result.err
    )


def test_wrong_use_is_refused(call: Call) -> None:
    assert call("ops", "--example").status == 2
    assert call("ops", "--example", "--json", "rope").status == 2
    assert "\x1b" not in call("ops", "x\x1b[2J").err


def test_an_op_says_what_it_asks_of_shapes_and_what_comes_out(call: Call) -> None:
    """U40."""
    shown = " ".join(call("ops", "mul_mat").out.split())
    assert "needs a.ne[0] = b.ne[0] b.ne[2] % a.ne[2] = 0 b.ne[3] % a.ne[3] = 0 a is not transposed gives" in shown
    assert "gives f32[a.ne[1], b.ne[1], b.ne[2], b.ne[3]]" in shown
    (form,) = json.loads(call("ops", "--json", "mul_mat").out)["forms"]
    assert form["asks"][0] == "a.ne[0] = b.ne[0]"
    assert form["gives"] == "f32[a.ne[1], b.ne[1], b.ne[2], b.ne[3]]"
