"""What a re-implementation of ggml's constructors and graphs would get wrong: FACTS section 8, entries 41 to 50.

The results of a constructor are compared with the library's field by field; the tests name the figures.
"""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_of
from ggmltool.oracle.lib import Lib
from tests.conformance.judged import GPU, Judging
from tests.conformance.ops_case import Call, Engine, Src, call, check_tensor, cut, permuted, refuse
from tests.conformance.releases import release_of

A = Src(ne=(8, 6, 4, 2))


def made(lib: Lib, case: Call) -> dict[str, Any]:
    """The fields of the engine's result, which are the library's too."""
    check_tensor(lib, case)
    return Engine(case, release_of(lib)).fields()


def view(a: Src, ne: tuple[int, ...], nb: tuple[int, ...], offset: int) -> Call:
    return call("view", a, ne, nb, offset, real=(f"view_{len(ne)}d", 0, *((v,) for v in (*ne, *nb, offset))))


def test_41_a_view_notes_its_offset_from_its_source_and_lies_at_that_from_the_root(lib: Lib) -> None:
    fields = made(lib, view(cut("f32", (8, 3, 2), (16, 6, 4), 64), (8, 2), (64,), 8))
    assert fields["op_params"][:2] == (8, 0)
    assert fields["view_offs"] == 72


def test_41_an_offset_beyond_4_gib_takes_two_words(lib: Lib) -> None:
    fields = made(lib, view(Src("f32", (1 << 16, 1 << 16)), (8,), (), (5 << 32) // 2))
    assert fields["op_params"][:2] == (-(1 << 31), 2)
    assert fields["view_offs"] == (5 << 32) // 2


def test_41_strides_from_2_gib_on_wrap_in_a_permutation_that_takes_ints(lib: Lib) -> None:
    fields = made(lib, call("permute", Src("f32", (1 << 10, 1 << 20, 2)), 0, 2, 1, 3))
    assert fields["ne"] == (1 << 10, 2, 1 << 20, 1)
    assert (fields["nb"][1] != 1 << 32) == release_of(lib).ops.permute_is_int


def test_42_a_view_is_measured_without_its_strides(lib: Lib) -> None:
    fields = made(lib, view(A, (4, 5), (100_000,), 16))
    assert fields["nb"][1] == 100_000


def test_42_and_refused_where_it_would_not_fit_contiguous(lib: Lib) -> None:
    refuse(lib, [view(A, (8, 6, 4, 2), (0, 0, 0), 4)])


def test_43_set_rows_has_its_values_first_and_its_destination_last(lib: Lib) -> None:
    fields = made(lib, call("set_rows", Src("f16", (8, 6)), Src(ne=(8, 2)), Src("i64", (2,), data="ints")))
    assert fields["src"] == (1, 2, 0)
    assert fields["view_src"] == 0


def test_43_repeat_and_the_gradient_of_rows_forget_what_only_gives_a_shape(lib: Lib) -> None:
    assert made(lib, call("repeat", Src(ne=(4, 3)), Src(ne=(8, 6))))["src"] == (0,)
    rows = call("get_rows_back", Src(ne=(8, 2)), Src("i32", (2,), data="ints"), Src(ne=(8, 6)))
    assert made(lib, rows)["src"] == (0, 1)


def test_43_a_transposed_convolution_has_neither_padding_nor_dilation(lib: Lib) -> None:
    refuse(
        lib, [call("conv_transpose_1d", Src(ne=(3, 2, 2)), Src(ne=(8, 2)), 1, p0, d0) for p0, d0 in ((1, 1), (0, 2))]
    )


def test_44_clamp_is_in_place_until_it_makes_a_tensor_of_its_own(lib: Lib) -> None:
    fields = made(lib, call("clamp", Src(ne=(8, 6), name="h"), -1.0, 1.0))
    view = (None, "") if release_of(lib).ops.clamp_is_new else (0, "h (view)")
    assert (fields["view_src"], fields["name"]) == view
    assert [float_of(w) for w in fields["op_params"][:2]] == [-1.0, 1.0]


def test_44_argsort_top_k_is_a_strided_view_and_top_k_is_not(lib: Lib) -> None:
    with lib.context() as ctx:
        real = lib.fields(lib.call("argsort_top_k", ctx, lib.tensor(ctx, "f32", (64, 6)), 4))
    written = Engine(view(Src("i32", (64, 6)), (4, 6), (256,), 0), release_of(lib)).fields()
    for key in ("op", "type", "ne", "nb", "op_params"):
        assert real[key] == written[key]
    assert real["nb"][1] == 256
    fields = made(lib, call("top_k", Src(ne=(64, 6)), 4))
    assert (fields["op"], fields["ne"][:2], fields["nb"][:2]) == (Op.TOP_K, (4, 6), (4, 16))


def loose(tensors: dict[str, Any], nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "backends": [GPU, "CPU"],
        "contexts": {"inputs": {"tensors": tensors}},
        "graphs": {"g": {"nodes": nodes}},
        "steps": ["alloc g"],
    } | more


def test_45_an_op_without_sources_is_a_node(judged: Judging) -> None:
    j = judged(loose({"x": "f32[8]"}, {"r": "arange(0, 8, 1)", "y": "add(x, r)"}))
    assert [n.id for n in j.last.nodes] == ["r", "y"]
    assert [leaf.id for leaf in j.last.leafs] == ["x"]


def test_45_a_parameter_is_a_node_without_an_op(judged: Judging) -> None:
    j = judged(loose({"p": {"type": "f32", "ne": [8], "flags": ["param"]}}, {"y": "sqr(p)"}))
    assert [(n.id, n.op) for n in j.last.nodes] == [("p", "NONE"), ("y", "SQR")]
    assert j.last.leafs == ()


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (call("scale", Src(ne=(8,), name="h"), 2.0, inplace=True), "h (view)"),
        (call("set_rows", Src("f16", (8, 6), name="k"), Src(ne=(8, 2)), Src("i64", (2,), data="ints")), "k (view)"),
        (call("cpy", Src(ne=(8,), name="h"), Src("f16", (8,), name="k")), "k (copy of h)"),
        (call("cpy", Src(ne=(8,), name="h" * 40), Src("f16", (8,), name="k" * 40)), "k" * 40 + " (copy of " + "h" * 13),
        (call("scale", Src(ne=(8,), name="h" * 63), 2.0, inplace=True), "h" * 63),
        (call("sqr", Src(ne=(8,), name="h")), ""),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_46_results_that_share_memory_are_named_after_it(case: Call, name: str, lib: Lib) -> None:
    assert made(lib, case)["name"] == name


def test_47_an_input_that_is_a_view_makes_its_root_an_output_where_there_are_pipeline_copies(judged: Judging) -> None:
    tensors = {
        "r": {"type": "f32", "ne": [64]},
        "v": {"type": "f32", "ne": [64], "view_src": "r", "flags": ["input"]},
    }
    nodes = {"s": "sqr(r)", "y": "add(s, v)"}
    plain = judged(loose(tensors, nodes, backends=["CPU"]), hazards=True)
    assert plain.offset("s") == plain.offset("r")
    copied = judged(loose(tensors, nodes, backends=["CPU"], scheduler={"parallel": True}), hazards=True)
    assert copied.offset("s") != copied.offset("r")


def test_47_an_output_that_is_a_view_makes_its_root_an_output(judged: Judging) -> None:
    x = {"type": "f32", "ne": [64], "flags": ["input"]}
    view = {"op": "reshape", "src": ["a"], "ne": [8, 8]}
    nodes = {"a": "sin(x)", "v": view, "b": "cos(v)", "c": "sin(b)", "d": "cos(c)"}
    plain = judged(loose({"x": x}, nodes, backends=["CPU"]))
    assert plain.offset("c") == plain.offset("a") == 256
    kept = judged(loose({"x": x}, {**nodes, "v": {**view, "flags": ["output"]}}, backends=["CPU"]))
    assert [kept.offset(t) for t in "abcd"] == [256, 0, 512, 0]


@pytest.mark.parametrize("op", ["reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick"])
def test_48_a_glu_of_odd_rows_rounds_down(op: str, lib: Lib) -> None:
    assert made(lib, call(op, Src(ne=(7, 3))))["ne"] == (3, 3, 1, 1)


def test_49_a_view_without_an_op_does_not_bring_its_root_into_the_graph(judged: Judging) -> None:
    source = loose({"x": {"type": "f32", "ne": [8], "flags": ["input"]}}, {"y": "sqr(v)", "z": "add(y, x)"})
    source["contexts"]["w"] = {
        "buft": "CUDA0",
        "tensors": {"r": "f32[16]", "v": {"type": "f32", "ne": [8], "view_src": "r", "view_offs": 32}},
    }
    j = judged(source)
    assert [leaf.id for leaf in j.last.leafs] == ["v", "x"]
    assert j.place("v") == ("CUDA0", 0, 32)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ({"z": "f32[4]"}, "GGML_ASSERT(tensor->view_src->buffer != NULL) failed"),
        ({}, "GGML_ASSERT(src_backend_id != -1) failed"),
    ],
)
def test_a_view_in_a_context_of_what_each_graph_makes_anew_has_no_memory(
    judged: Judging, before: dict[str, Any], message: str
) -> None:
    source = loose({"r": {"type": "f32", "ne": [64], "flags": ["input"]}}, {"y": "sqr(v)"})
    view = {"v": {"type": "f32", "ne": [64], "view_src": "r"}}
    source["contexts"]["w"] = {"buft": "CPU", "tensors": {**before, **view}}
    assert judged(source).error()["message"] == message


def test_50_a_permuted_quantized_tensor_counts_its_bytes_by_the_first_stride(lib: Lib) -> None:
    case = call("sqr", permuted("q4_0", (64, 3, 2), (1, 0, 2, 3)))
    source = Engine(case, release_of(lib)).sources[0]
    assert source is not None
    with lib.context() as ctx:
        base = lib.tensor(ctx, "q4_0", (64, 3, 2))
        real = lib.call("permute", ctx, base, 1, 0, 2, 3)
        assert source.nbytes == lib.ggml_nbytes(real)
        assert (source.nbytes, lib.ggml_nbytes(base)) == (3 * 36 // 32 + 63 * 18 + 108, 216)
