"""What constructors say of nodes: how captured ones are read back, what a refusal explains, what is wrong use.

The tensors that they make, and ggml's words where it refuses, are asked of the real library (`tests/conformance/ops`).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, TYPES, DType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.conv import pool_output_size
from ggmltool.ggml.ops.im2col import conv_output_size
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, float_bits, for_node
from ggmltool.ggml.ops.rope import MROPE, NEOX
from ggmltool.ggml.ops.unary import NO_INPLACE
from ggmltool.ggml.tensor import Tensor, contiguous_nb, op_desc

load()

NE = (8, 6, 1, 1)


def make(name: str, *sources: tuple[str, str, tuple[int, ...]] | None, **params: Any) -> Tensor:
    """The result of a constructor for sources given as name, type and extents; `t:` before the type transposes one."""
    ctx, tensors = Context(), []
    for source in sources:
        if source is not None:
            id, type, ne = source
            t = ctx.new_tensor(TYPES[type.removeprefix("t:")], ne, name=id)
            if type.startswith("t:"):
                t.set_layout((t.ne[1], t.ne[0], *t.ne[2:]), (t.nb[1], t.nb[0], *t.nb[2:]))
        tensors.append(None if source is None else t)
    return CONSTRUCTORS[name].build(ctx, *tensors, **params)


def raw(*words: int, type: DType = F32, ne: tuple[int, int, int, int] = NE, offset: int = 0) -> Raw:
    return Raw(words, type, ne, contiguous_nb(type, ne), offset)


HALF = float_bits(0.5)
SPD = {"s0": 2, "s1": 1, "p0": 1, "p1": 0, "d0": 1, "d1": 1}
SIDES = {"lp0": 0, "rp0": 1, "lp1": 0, "rp1": 2, "lp2": 0, "rp2": 0, "lp3": 0, "rp3": 0, "circular": 1}
EXTENTS = {"ne0": 8, "ne1": 6, "ne2": 1, "ne3": 1}


@pytest.mark.parametrize(
    ("op", "told", "params"),
    [
        (Op.SOFT_MAX, raw(HALF, float_bits(8.0)), {"scale": 0.5, "max_bias": 8.0}),
        (Op.ADD, raw(), {"type": F32}),
        (Op.SCALE, raw(HALF, float_bits(2.0)), {"s": 0.5, "b": 2.0}),
        (Op.MUL_MAT, raw(10), {"prec": 10, "hint": 0, "prec_b": 0}),
        (Op.IM2COL, raw(2, 1, 1, 0, 1, 1, 1, type=F16), {**SPD, "is_2D": True, "dst_type": F16}),
        (
            Op.FLASH_ATTN_EXT,
            raw(HALF, 0, 0, 10),
            {"scale": 0.5, "max_bias": 0.0, "logit_softcap": 0.0, "prec": 10, "n_kv_max": 0},
        ),
        (Op.CONT, raw(), {"ne": NE}),
        (Op.REPEAT, raw(), {"ne": NE}),
        (Op.RESHAPE, raw(), {"ne": NE}),
        (Op.GET_ROWS_BACK, raw(), {"ne": NE}),
        (Op.PAD, raw(0, 1, 0, 2, 0, 0, 0, 0, 1), SIDES),
        (Op.UPSCALE, raw(257), {**EXTENTS, "mode": 257}),
        (Op.TOP_K, raw(), {"k": 8}),
        (Op.PERMUTE, raw(0, 2, 1, 3), {"axis0": 0, "axis1": 2, "axis2": 1, "axis3": 3}),
        (Op.VIEW, raw(8, 1), {"ne": NE, "nb": (32, 192, 192), "offset": (1 << 32) + 8}),
        (Op.UNARY, raw(10), {"op": 10}),
        (Op.UNARY, raw(17, 1, 2, 3, 4), None),
        (Op.GLU, raw(3, 0, HALF, HALF), {"op": 3, "swapped": False, "alpha": 0.5, "limit": 0.5}),
    ],
)
def test_the_parameters_of_a_captured_node_are_read_from_its_words_and_extents(
    op: Op, told: Raw, params: dict[str, Any] | None
) -> None:
    assert BY_OP[op].read_params(told) == params


def test_a_captured_rope_gives_its_parameters_back() -> None:
    q, pos = ("q", "f32", (64, 8, 5)), ("pos", "i32", (20,))
    r = make("rope_multi", q, pos, n_dims=64, sections=[8, 12, 12, 0], mode=MROPE)
    params = BY_OP[Op.ROPE].read_params(raw(*r.op_params, ne=r.ne))
    assert params is not None
    assert (params["n_dims"], params["mode"], params["sections"]) == (64, MROPE, [8, 12, 12, 0])
    assert make("rope_ext", q, pos, **params).op_params == r.op_params


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_a_captured_view_gives_the_same_view_again(ne: list[int], data: st.DataObject) -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (10000,))
    nb = data.draw(st.lists(st.integers(0, 5000), max_size=3))
    v = BY_OP[Op.VIEW].build(ctx, a, ne, nb, data.draw(st.integers(0, 8000)))
    params = BY_OP[Op.VIEW].read_params(Raw(v.op_params, v.type, v.ne, v.nb, v.view_offs))
    assert params is not None
    again = BY_OP[Op.VIEW].build(ctx, a, **params)
    assert (again.ne, again.nb, again.op_params, again.view_offs) == (v.ne, v.nb, v.op_params, v.view_offs)


@pytest.mark.parametrize(
    ("op", "slots", "name", "call"),
    [
        (Op.SET_ROWS, ["k", "idx", "cache"], "set_rows", ["cache", "k", "idx"]),
        (Op.GET_ROWS_BACK, ["g", "idx"], "get_rows_back", ["g", "idx"]),
        (Op.CPY, ["a", "n"], "cast", ["a"]),
        (Op.CPY, ["a", "b"], "cpy", ["a", "b"]),
        (Op.REPEAT, ["a"], "repeat", ["a"]),
    ],
)
def test_the_slots_of_a_captured_node_are_put_in_the_order_of_the_call(
    op: Op, slots: list[str], name: str, call: list[str]
) -> None:
    c = for_node(op, slots, "n")
    assert c is CONSTRUCTORS[name]
    assert c.call_order(slots) == call


@pytest.mark.parametrize(
    ("name", "param", "word", "number"),
    [
        ("argsort", "order", "desc", 1),
        ("tri", "type", "lower", 3),
        ("interpolate", "mode", "bilinear|align_corners", 257),
        ("upscale", "mode", "bicubic", 2),
        ("glu", "op", "geglu_quick", 5),
        ("unary", "op", "silu", 10),
        ("pool_2d", "op", "avg", 1),
        *(
            ("rope", "mode", w, n)
            for w, n in (("normal", 0), ("neox", 2), ("mrope", 8), ("vision", 24), ("imrope", 40))
        ),
    ],
)
def test_enumerations_have_words(name: str, param: str, word: str, number: int) -> None:
    choices = next(p.choices for p in CONSTRUCTORS[name].params if p.name == param)
    assert choices is not None
    assert choices[word] == number


@pytest.mark.parametrize(
    ("name", "sources", "required", "params", "inplace"),
    [
        ("scale_bias", ("a",), 1, ["s", "b"], True),
        ("leaky_relu", ("a",), 1, ["negative_slope"], True),
        ("flash_attn_ext", ("q", "k", "v", "mask", "sinks"), 3,
         ["scale", "max_bias", "logit_softcap", "prec", "n_kv_max"], False),
        ("get_rows", ("a", "b"), 2, [], False),
    ],
)  # fmt: skip
def test_a_source_is_told_from_a_parameter_by_its_annotation(
    name: str, sources: tuple[str, ...], required: int, params: list[str], inplace: bool
) -> None:
    c = CONSTRUCTORS[name]
    assert (c.sources, c.n_required_sources, [p.name for p in c.params], c.inplace) == (
        sources, required, params, inplace,
    )  # fmt: skip


def test_two_names_may_be_one_constructor() -> None:
    assert CONSTRUCTORS["soft_max"].build is CONSTRUCTORS["soft_max_ext"].build
    assert CONSTRUCTORS["conv_2d_direct"].op == CONSTRUCTORS["conv_2d"].op == Op.CONV_2D
    assert (CONSTRUCTORS["rope"].sources, CONSTRUCTORS["rope"].n_required_sources) == (("a", "b", "c"), 2)


@pytest.mark.parametrize("op", [*UnaryOp, *GluOp])
def test_each_function_has_a_constructor_of_its_name(op: UnaryOp | GluOp) -> None:
    c = CONSTRUCTORS[op.name.lower()]
    more = {"alpha_n": 0.8, "alpha_p": 0.8, "beta": 0.5, "eps": -1e-6} if op is UnaryOp.XIELU else {}
    assert op_desc(make(c.name, ("a", "f32", (4, 3)), **more)) == op.name
    assert c.inplace == (isinstance(op, UnaryOp) and op not in NO_INPLACE)


KQ, BIG = ("kq", "f32", (33, 6, 8)), ("x", "f32", (64, 2))


@pytest.mark.parametrize(
    ("name", "sources", "params", "words"),
    [
        ("add", [("h", "f32", (4, 8)), ("bias", "f32", (3,))], {}, ["bias f32[3]", "h f32[4, 8]"]),
        ("mul_mat", [("w", "f32", (4, 3)), ("x", "f32", (5, 8))], {}, ["w f32[4, 3]", "x f32[5, 8]"]),
        ("soft_max_ext", [KQ, ("kq_mask", "bf16", (33, 6))], {}, ["kq_mask"]),
        ("soft_max_ext", [KQ, ("kq_mask", "f16", (32, 6))], {}, ["kq_mask"]),
        ("cpy", [("k", "f32", (8,)), ("place", "f32", (9,))], {}, ["k f32[8] has 8 elements"]),
        ("concat", [("a", "f32", (4, 6)), ("b", "f32", (4, 2))], {"dim": 0}, ["dimension 1"]),
        ("set_rows", [("c", "f32", (9, 9)), ("k", "f32", (8, 4)), ("i", "i64", (4,))], {}, ["f32["]),
        ("glu", [("a", "f32", (8, 2)), ("b", "f32", (8, 3))], {}, ["a f32[8, 2] and b f32[8, 3] differ in shape"]),
        ("reshape", [BIG], {"ne": [127]}, ["128", "x f32[64, 2]"]),
        ("reshape", [("x", "t:f32", (4, 3))], {"ne": [12]}, ["cont"]),
        ("unary", [("x", "t:f32", (4, 3))], {"op": 6}, ["make it contiguous first (cont)", "nb [16, 4, 48, 48]"]),
        ("im2col", [("k", "f32", (3, 3, 1)), ("x", "f32", (2, 9, 1))],
         {"s0": 1, "s1": 1, "p0": 0, "p1": 0, "d0": 1, "d1": 1, "is_2D": True, "dst_type": F16}, ["x f32[2, 9]"]),
    ],
)  # fmt: skip
def test_a_refusal_names_the_tensors_and_what_is_wrong(
    name: str, sources: list[Any], params: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(GgmlAssert) as caught:
        make(name, *sources, **params)
    assert [word for word in words if word not in caught.value.explanation] == []


@pytest.mark.parametrize(
    ("name", "sources", "params", "words"),
    [
        ("repeat", [BIG], {}, "needs the tensor whose shape"),
        ("reshape", [BIG], {}, "new extents"),
        ("get_rows_back", [BIG, ("idx", "i32", (2,))], {}, "third source"),
        ("view", [BIG], {"ne": [8], "nb": [8, 32, 1, 1]}, "nb"),
        ("view", [BIG], {"ne": [8], "nb": [1, 2, 3, 4, 5]}, "strides"),
        ("rope_ext", [("q", "f32", (64, 8, 5)), ("pos", "i32", (5,))],
         {"n_dims": 64, "mode": NEOX, "sections": [1, 2, 3, 4, 5]}, "4 sections"),
    ],
)  # fmt: skip
def test_what_no_call_could_have_is_wrong_use(
    name: str, sources: list[Any], params: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make(name, *sources, **params)


def test_shapes_and_strides_may_be_given_in_several_ways() -> None:
    kv = ("kv", "f32", (64, 128, 4))
    assert make("view", kv, ne=[32, 8, 2], nb=[512], offset=1024).nb == (4, 512, 4096, 8192)
    assert make("view", kv, ne=[32, 8]).nb == (4, 128, 1024, 1024)
    assert make("view", kv, ne=[32, 8], nb=[4, 512, 1024, 2048]).nb == (4, 512, 1024, 2048)
    assert make("reshape", BIG, ("b", "f32", (2, 64))).ne == make("reshape", BIG, ne=[2, 64]).ne
    assert make("repeat", BIG, ("b", "f32", (64, 4))).ne == make("repeat", BIG, ne=[64, 4]).ne
    assert make("get_rows_back", BIG, ("i", "i32", (2,)), ne=(64, 5)).ne == (64, 5, 1, 1)
    assert make("add", ("a", "q8_0", (32, 2)), ("b", "f32", (32, 2)), type=F32).type is F32


def test_extents_of_convolutions_are_divided_as_in_c_and_those_of_pools_in_float32() -> None:
    assert [conv_output_size(*n) for n in ((20, 3, 2, 1, 1), (2, 4, 4, 0, 1), (2, 4, 2, 0, 1))] == [10, 1, 0]
    with pytest.raises(GgmlAbort, match="division by zero"):
        conv_output_size(2, 4, 0, 0, 1)
    assert pool_output_size(20, 3, 2, 0.5) == 10
    assert pool_output_size(2**24 + 1, 1, 1, 0) == 2**24
