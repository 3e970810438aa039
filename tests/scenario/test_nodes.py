"""Nodes in short and in long form come out as ggml's constructors make them."""

from __future__ import annotations

import pytest

from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, FLAG_PARAM
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import valueless
from tests.scenario.texts import load_node, load_nodes, load_text


def test_a_short_form_gets_type_extents_and_strides_from_the_rule() -> None:
    node = load_node("h: mul_mat(a, x)")
    assert (node.op, node.type.name, node.ne, node.nb) == (Op.MUL_MAT, "f32", (3, 8, 1, 1), (4, 12, 96, 96))
    assert (node.id, node.name, node.src, node.view_src) == ("h", "h", ("a", "x"), None)


def test_parameters_follow_by_position_in_the_order_of_the_constructor() -> None:
    assert load_node("h: permute(q, 0, 2, 1, 3)").op_params == (0, 2, 1, 3)
    assert load_node("h: permute(q, 0, 2, 1, 3)").nb == (4, 2048, 256, 8192)


def test_parameters_may_be_named_and_enumerations_are_words() -> None:
    node = load_node("h: rope(q, pos, n_dims=64, mode=neox)")
    assert node.op_params[1:3] == (64, 2)


def test_the_example_of_a_view_in_the_specification() -> None:
    node = load_node("h: view(kv, ne=[64, 8], nb=[256], offset=1024)")
    assert (node.ne, node.nb) == ((64, 8, 1, 1), (2, 256, 2048, 2048))
    assert (node.view_src, node.view_offs, node.op_params) == ("kv", 1024, (1024,))


def test_a_view_of_a_view_points_to_the_root_with_the_offsets_added() -> None:
    node = load_node("v: view(kv, [64, 8], [256], 1024)", "h: view(v, [64], offset=256)")
    assert (node.src, node.view_src, node.view_offs, node.op_params) == (("v",), "kv", 1280, (256,))


def test_null_stands_for_an_empty_source() -> None:
    assert load_node("h: soft_max_ext(k, null, 0.5)").src == ("k",)
    assert load_node("h: soft_max_ext(k, mask, scale=0.125, max_bias=0)").op_params == (float_bits(0.125),)


def test_a_number_after_the_required_sources_is_a_parameter() -> None:
    assert load_node("h: soft_max_ext(k, 0.5)") == load_node("h: soft_max_ext(k, null, 0.5)")


def test_a_source_may_be_named() -> None:
    assert load_node("h: soft_max_ext(k, mask=mask)").src == ("k", "mask")


@pytest.mark.parametrize("text", ["add_inplace(x, x)", "add(x, x, inplace=true)"])
def test_in_place_is_a_view_of_the_first_source(text: str) -> None:
    node = load_node(f"h: {text}")
    assert (node.view_src, node.nb) == ("x", (4, 16, 128, 128))


def test_a_cast_is_a_copy_into_itself() -> None:
    short = load_node("h: cast(x, f16)")
    assert (short.op, short.src, short.type.name, short.view_src) == (Op.CPY, ("x", "h"), "f16", None)
    assert load_node("h: {op: cpy, src: [x, h], type: f16}") == short
    assert load_node("h: {op: cast, src: [x], type: f16}") == short


def test_the_short_form_of_set_rows_has_ggmls_order_and_the_long_form_that_of_the_slots() -> None:
    short = load_node("h: set_rows(kv, rows, idx)")
    assert (short.src, short.view_src, short.nb) == (("rows", "idx", "kv"), "kv", (2, 128, 4096, 16384))
    assert load_node("h: {op: set_rows, src: [rows, idx, kv]}") == short


def test_cpy_is_a_view_of_its_destination() -> None:
    node = load_node("h: cpy(x, Qcur-0~2)")
    assert (node.src, node.view_src, node.name) == (("x", "Qcur-0~2"), "Qcur-0~2", "h")


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("{op: mul_mat, src: [a, x]}", "mul_mat(a, x)"),
        ("{op: mul_mat, src: [a, x], type: f32, ne: [3, 8], nb: [4, 12]}", "mul_mat(a, x)"),
        ("{op: silu, src: [x]}", "silu(x)"),
        ("{op: silu, src: [x], inplace: true}", "silu_inplace(x)"),
        ("{op: silu_inplace, src: [x]}", "silu_inplace(x)"),
        ("{op: silu, src: [x], op_params: [10]}", "silu(x)"),
        ("{op: unary, src: [x], op_params: [10]}", "silu(x)"),
        ("{op: unary, src: [x], op_params: [10, 0, 0, 0]}", "unary(x, silu)"),
        ("{op: geglu, src: [x]}", "geglu(x)"),
        ("{op: swiglu_split, src: [x, x]}", "swiglu_split(x, x)"),
        ("{op: scale, src: [x], s: 0.5}", "scale(x, 0.5)"),
        (f"{{op: scale, src: [x], op_params: [{float_bits(0.5)}]}}", "scale(x, s=0.5)"),
        ("{op: scale, src: [x], s: 0.5, view_src: x}", "scale_inplace(x, 0.5)"),
        ("{op: rms_norm, src: [x], eps: 1e-6}", "rms_norm(x, eps=1e-6)"),
        (
            "{op: rope, src: [q, pos], n_dims: 64, mode: neox, freq_base: 1e6}",
            "rope_ext(q, pos, null, 64, neox, 0, 1e6)",
        ),
        ("{op: soft_max, src: [k, mask], scale: 0.125}", "soft_max_ext(k, mask, scale=0.125)"),
        ("{op: soft_max, src: [k, null], scale: 0.125}", "soft_max_ext(k, scale=0.125)"),
        ("{op: reshape, src: [x], ne: [32]}", "reshape(x, ne=[32])"),
        ("{op: reshape, src: [x], ne: [32]}", "reshape_1d(x, 32)"),
        ("{op: view, src: [kv], ne: [64, 8], nb: [256], offset: 1024}", "view(kv, [64, 8], [256], 1024)"),
        ("{op: view, src: [kv], ne: [64, 8], nb: [2, 256], view_offs: 1024}", "view_2d(kv, 64, 8, 256, 1024)"),
        ("{op: view, src: [kv], ne: [64, 8], view_offs: 1024}", "view(kv, [64, 8], offset=1024)"),
        ("{op: view, src: [kv], ne: [64], view_src: kv, view_offs: 4}", "view_1d(kv, 64, 4)"),
        ("{op: tri, src: [q4], type: lower}", "tri(q4, lower)"),
        ("{op: concat, src: [x, x], dim: 1}", "concat(x, x, dim=1)"),
        ("{op: get_rows, src: [x, pos]}", "get_rows(x, pos)"),
        ("{op: repeat, src: [pos], ne: [8]}", "repeat_4d(pos, 8)"),
        ("{op: arange, start: 0, stop: 10, step: 1}", "arange(0, 10, 1)"),
    ],
)
def test_the_long_form_says_the_same_as_the_short_one(long: str, short: str) -> None:
    if "q4" in long:
        assert load_node("q4: f32[4, 4]", f"h: {long}") == load_node("q4: f32[4, 4]", f"h: {short}")
    else:
        assert load_node(f"h: {long}") == load_node(f"h: {short}")


def test_ids_of_captured_graphs_can_stand_in_short_forms() -> None:
    assert load_node("h: add(blk.0.attn_q.weight, Qcur-0~2)").src == ("blk.0.attn_q.weight", "Qcur-0~2")
    assert load_node("h: 'add(\"leaf 6 (view)\", x)'").src == ("leaf 6 (view)", "x")


def test_a_name_is_the_id_unless_it_is_given() -> None:
    assert load_node("h: {op: add, src: [x, x], name: ''}").name == ""
    assert load_node("h: reshape(x, ne=[32])").name == "h"
    assert load_node(f"h: {{op: add, src: [x, x], name: {'n' * 70}}}").name == "n" * 63


def test_an_op_without_a_rule_needs_type_and_extents() -> None:
    node = load_node("h: {op: flash_attn_back, src: [x], type: f32, ne: [4, 2]}")
    assert (node.op, node.nb) == (Op.FLASH_ATTN_BACK, (4, 16, 32, 32))
    with pytest.raises(ScenarioError, match="flash_attn_back has no rule for its result here; give type"):
        load_node("h: {op: flash_attn_back, src: [x]}")


def test_parameters_that_words_do_not_tell_are_kept_as_words() -> None:
    node = load_node("h: {op: unary, src: [x], op_params: [17, 1, 2], type: f32, ne: [4, 8]}")
    assert node.op_params == (17, 1, 2)


def test_words_from_2_to_the_31_on_are_the_same_bits_as_negative_ones() -> None:
    assert load_node("h: {op: scale, src: [x], op_params: [0xbf800000]}") == load_node("h: scale(x, -1)")


def test_output_on_a_view_marks_its_root_as_ggml_set_output_does() -> None:
    first, second = load_nodes("s: sqr(x)", "h: {op: reshape, src: [s], ne: [32], flags: [output]}")
    assert (first.flags, second.flags) == (FLAG_OUTPUT, FLAG_OUTPUT)


def test_output_on_a_captured_view_is_only_what_is_written() -> None:
    first, second = load_nodes("s: sqr(x)", "h: {op: reshape, src: [s], ne: [32], view_src: s, flags: [output]}")
    assert (first.flags, second.flags) == (0, FLAG_OUTPUT)


def test_a_node_without_op_is_a_tensor_of_the_graph() -> None:
    leaf, param, view = load_nodes(
        "l: f32[4]", "p: {type: f32, ne: [4], flags: [param]}", "v: {view_src: q, view_offs: 8}"
    )
    assert (leaf.op, leaf.ne, param.op, param.flags) == (0, (4, 1, 1, 1), 0, FLAG_PARAM)
    assert (view.op, view.ne, view.nb, view.view_src, view.view_offs) == (
        0,
        (64, 8, 4, 1),
        (4, 256, 2048, 8192),
        "q",
        8,
    )


@pytest.mark.parametrize(
    ("node", "condition"),
    [
        ("mul_mat(a, q)", "ggml_can_mul_mat(a, b)"),
        ("reshape(x, ne=[33])", "ggml_nelements(a) == ne0"),
        ("{op: mul_mat, src: [a, q], type: f32, ne: [3, 8]}", "ggml_can_mul_mat(a, b)"),
        ("permute(q, 0, 0, 1, 2)", "axis0 != axis1"),
    ],
)
def test_what_ggml_refuses_is_ggmls_assertion_with_its_place(node: str, condition: str) -> None:
    with pytest.raises(GgmlAssert) as e:
        load_node(f"h: {node}")
    assert e.value.condition == condition
    assert e.value.where == 't.yaml:21:7: node "h"'


def test_a_described_graph_is_taken_as_it_lies_in_memory() -> None:
    """Captured graphs may come from another release, whose constructors refuse other things."""
    text = (
        '{"ggmltool": 1, "contexts": {"c": {"tensors": {"x": "f32[4, 8]", "pos": "i32[3]"}}},'
        '"graphs": {"g": {"nodes": {'
        '"r": {"op": "rope", "type": "f32", "ne": [4, 8, 1, 1], "src": ["x", "pos"]},'
        '"c": {"op": "clamp", "type": "f32", "ne": [4, 8, 1, 1], "src": ["r"]},'
        '"y": {"op": "cpy", "type": "f32", "ne": [4, 8, 1, 1], "src": ["c"]}}}}}'
    )
    rope, clamp, cpy = load_text(text, "t.json").graphs["g"].nodes
    assert (rope.op, clamp.view_src, cpy.src) == (Op.ROPE, None, ("c",))


def test_different_graphs_may_use_the_same_ids() -> None:
    text = """
ggmltool: 1
contexts: {c: {tensors: {x: 'f32[4]'}}}
graphs:
  one: {nodes: {h: sqr(x)}}
  two: {nodes: {h: sqrt(x), y: sqr(h)}}
"""
    graphs = load_text(text).graphs
    assert [graphs["one"].nodes[0].op, graphs["two"].nodes[0].op] == [Op.SQR, Op.SQRT]
    assert (graphs["one"].expand, graphs["two"].expand) == (["h"], ["h", "y"])


UNCOMPUTED = """
ggmltool: 1
contexts: {c: {tensors: {a: {type: f32, ne: [4], data: [1, 2, 3, 4]}, b: 'f32[4]'}}}
graphs:
  g:
    nodes: {x: sqr(a), other: sqr(b), y: 'scale(x, s=2)'}
    expand: [x, other, y]
    uncomputed: other
"""


def computes(text: str) -> dict[str, bool]:
    """Which nodes of the graph are to be computed."""
    nodes = LoadedScenario(load_text(text)).start().build("g").nodes
    return {node.id: bool(node.flags & FLAG_COMPUTE) for node in nodes}


def test_nodes_may_be_planned_and_not_computed() -> None:
    assert computes(UNCOMPUTED) == {"x": True, "other": False, "y": True}
    model = load_text(UNCOMPUTED)
    assert dump(model)["graphs"]["g"]["uncomputed"] == ["other"]
    assert load_spec(dump(model)).graphs["g"].uncomputed == {"other"}
    assert [node.id for node in LoadedScenario(model).plan(step="alloc").nodes] == ["x", "other", "y"]


def test_what_only_uncomputed_nodes_read_needs_no_values() -> None:
    assert valueless(load_text(UNCOMPUTED), ["g"]) == ([], [])
    assert valueless(load_text(UNCOMPUTED.replace("    uncomputed: other\n", "")), ["g"]) == ([], ["b"])


def test_what_a_computed_node_needs_is_computed_whatever_is_said() -> None:
    """As in ggml, which marks the sources of what it expands."""
    text = UNCOMPUTED.replace("uncomputed: other", "uncomputed: [x, other]")
    assert computes(text) == {"x": True, "other": False, "y": True}


@pytest.mark.parametrize("wrong", ["[b]", "[nobody]", "{x: 1}", "[3]"])
def test_what_is_not_expanded_cannot_be_left_uncomputed(wrong: str) -> None:
    with pytest.raises(ScenarioError):
        load_text(UNCOMPUTED.replace("uncomputed: other", f"uncomputed: {wrong}"))


def test_a_single_source_may_stand_without_a_list() -> None:
    first, second = load_nodes("h: {op: sqr, src: leaf 6 (view)}", "i: {op: sqr, src: leaf 6 (view)}")
    assert first.src == second.src == ("leaf 6 (view)",)
    assert load_node("xq: sqr(x)", "h: {op: sqr, src: xq}").src == ("xq",)


def test_nodes_that_say_the_same_come_out_the_same() -> None:
    first, second, third = load_nodes(
        "h: {op: scale, src: [x], s: 2}", "i: {op: scale, src: [x], s: 2}", "j: {op: scale, src: [i], s: 2.0, name: k}"
    )
    assert (first.op_params, first.src, first.name) == (second.op_params, second.src, "h")
    assert (third.op_params, third.src, third.name) == (first.op_params, ("i",), "k")
    with pytest.raises(ScenarioError, match="s must be a number, not true"):
        load_nodes("h: {op: scale, src: [x], s: 1}", "i: {op: scale, src: [x], s: true}")
