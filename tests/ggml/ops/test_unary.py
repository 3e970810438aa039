"""What the unary functions and the gated linear units make."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops.glu import glu, swiglu_oai
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, float_bits
from ggmltool.ggml.ops.unary import NO_INPLACE, unary, xielu
from ggmltool.ggml.tensor import op_desc

NE = (4, 1, 1, 1)
NB = (4, 16, 16, 16)


@pytest.mark.parametrize("op", [u for u in UnaryOp if u != UnaryOp.XIELU])
def test_each_function_has_a_constructor_of_its_name(op: UnaryOp) -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (4, 3))
    c = CONSTRUCTORS[op.name.lower()]
    r = c.build(ctx, a)
    assert (r.op, op_desc(r), r.ne, r.src) == (Op.UNARY, op.name, a.ne, [a])
    assert c.inplace == (op not in NO_INPLACE)


def test_the_function_of_a_captured_node_is_read_from_its_first_word() -> None:
    c = BY_OP[Op.UNARY]
    assert c.read_params(Raw((10,), F32, NE, NB, 0)) == {"op": 10}
    assert c.read_params(Raw((17, 1, 2, 3, 4), F32, NE, NB, 0)) is None
    assert c.params[0].choices is not None
    assert c.params[0].choices["silu"] == UnaryOp.SILU


def test_rows_whose_elements_lie_apart_are_refused() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (4, 3))
    a.set_layout((3, 4, 1, 1), (16, 4, 48, 48))
    with pytest.raises(GgmlAssert, match="ggml_is_contiguous_rows"):
        unary(ctx, a, UnaryOp.RELU)
    assert xielu(ctx, a, 0.8, 0.8, 0.5, -1e-6).ne == a.ne


def test_xielu_stores_softplus_of_its_alphas() -> None:
    ctx = Context()
    r = xielu(ctx, ctx.new_tensor(F32, (4,)), 30.0, 25.0, 0.5, -0.25)
    assert r.op_params == (17, float_bits(30.5), float_bits(25.0), float_bits(0.5), float_bits(-0.25))


@pytest.mark.parametrize("op", list(GluOp))
def test_a_gated_unit_halves_the_rows_of_one_tensor_and_keeps_those_of_two(op: GluOp) -> None:
    ctx = Context()
    a = ctx.new_tensor(F16, (7, 3, 2))
    b = ctx.new_tensor(F16, (7, 3, 2))
    c = CONSTRUCTORS[op.name.lower()]
    whole, split = c.build(ctx, a), c.build(ctx, a, b)
    assert (whole.ne, op_desc(whole), whole.src) == ((3, 3, 2, 1), op.name, [a])
    assert (split.ne, split.type, split.src) == (a.ne, F16, [a, b])


def test_swapped_is_the_second_word() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (8,))
    assert CONSTRUCTORS["geglu_swapped"].build(ctx, a).op_params == (GluOp.GEGLU, 1)
    assert glu(ctx, a, op=GluOp.REGLU, swapped=True).op_params == (0, 1)
    assert glu(ctx, a, op=GluOp.REGLU).op_params == ()


def test_swiglu_oai_keeps_alpha_and_limit() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (8,))
    words = (GluOp.SWIGLU_OAI, 0, float_bits(1.5), float_bits(7.0))
    assert swiglu_oai(ctx, a, None, 1.5, 7.0).op_params == words
    assert BY_OP[Op.GLU].read_params(Raw(words, F32, NE, NB, 0)) == {
        "op": 3,
        "swapped": False,
        "alpha": 1.5,
        "limit": 7.0,
    }


def test_two_operands_of_a_gated_unit_must_be_alike() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (8, 2), name="a")
    with pytest.raises(GgmlAssert, match="ggml_are_same_shape") as caught:
        glu(ctx, a, ctx.new_tensor(F32, (8, 3), name="b"))
    assert "a f32[8, 2] and b f32[8, 3] differ in shape" in caught.value.explanation
