"""What add, mul, scale, clamp and their like make, and what they refuse."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, I32, TYPES, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.elementwise import acc, add, add_cast, add_id, clamp, fill, leaky_relu, mul, scale, set_, set_1d
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, float_bits
from ggmltool.ggml.tensor import Tensor

load()


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "") -> Tensor:
    return ctx.new_tensor(type, ne, name=name)


def transposed(ctx: Context, *ne: int) -> Tensor:
    t = new(ctx, *ne, name="t")
    t.set_layout((t.ne[1], t.ne[0], *t.ne[2:]), (t.nb[1], t.nb[0], *t.nb[2:]))
    return t


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_binary_op_gives_a_contiguous_tensor_like_its_first_operand(ctx: Context, name: str) -> None:
    a, b = transposed(ctx, 4, 3), new(ctx, 3)
    r = CONSTRUCTORS[name].build(ctx, a, b)
    assert (r.type, r.ne, r.nb) == (F32, (3, 4, 1, 1), (4, 12, 48, 48))
    assert (Op(r.op).name, r.src, r.op_params, r.view_src, r.name) == (name.upper(), [a, b], (), None, "")


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_an_operand_that_cannot_be_repeated_is_refused_with_both_shapes(ctx: Context, name: str) -> None:
    with pytest.raises(GgmlAssert) as caught:
        CONSTRUCTORS[name].build(ctx, new(ctx, 4, 8, name="h"), new(ctx, 3, name="bias"))
    assert caught.value.message == "GGML_ASSERT(ggml_can_repeat(b, a)) failed"
    assert caught.value.function == f"ggml_{name}_impl"
    assert "bias f32[3]" in caught.value.explanation
    assert "h f32[4, 8]" in caught.value.explanation


def test_an_op_in_place_is_a_view_of_the_root_with_the_operands_strides(ctx: Context) -> None:
    root = new(ctx, 4, 8, name="root")
    a = ctx.new_tensor(F32, (4, 2), root, 32, name="part")
    r = mul(ctx, a, new(ctx, 4), inplace=True)
    assert (r.view_src, r.view_offs, r.name, r.src[0]) == (root, 32, "part (view)", a)


def test_add_with_another_type_is_add_cast(ctx: Context) -> None:
    a, b = new(ctx, 32, 2, type=TYPES["q8_0"]), new(ctx, 32, 2)
    assert add(ctx, a, b, F32).type is F32
    assert add(ctx, a, b, a.type).type is a.type
    assert add_cast(ctx, a, b, F16).op == Op.ADD
    with pytest.raises(GgmlAssert, match="ggml_can_repeat_rows"):
        add_cast(ctx, a, new(ctx, 16, 2), F32)
    with pytest.raises(GgmlAssert, match="ggml_is_quantized"):
        add_cast(ctx, b, b, F16)


def test_a_captured_add_tells_its_type() -> None:
    raw = Raw((), F32, (32, 2, 1, 1), (4, 128, 256, 256), 0)
    assert BY_OP[Op.ADD].read_params(raw) == {"type": F32}


def test_add_id_wants_one_id_per_row_and_token(ctx: Context) -> None:
    a, b = new(ctx, 8, 3, 5), new(ctx, 8, 6)
    assert add_id(ctx, a, b, new(ctx, 3, 5, type=I32)).ne == a.ne
    with pytest.raises(GgmlAssert, match=r"a->ne\[2\] == ids->ne\[1\]"):
        add_id(ctx, a, b, new(ctx, 3, 4, type=I32))


def test_scale_keeps_its_factor_and_bias_as_float_bits(ctx: Context) -> None:
    a = new(ctx, 4)
    assert scale(ctx, a, 0.5).op_params == (float_bits(0.5),)
    assert scale(ctx, a, 0.5, 2.0).op_params == (float_bits(0.5), float_bits(2.0))
    assert scale(ctx, a, 0.0).op_params == ()
    with pytest.raises(GgmlAssert, match="ggml_is_padded_1d"):
        scale(ctx, transposed(ctx, 4, 3), 2.0)


def test_the_parameters_of_a_captured_scale_are_read_from_its_words() -> None:
    raw = Raw((float_bits(0.5), float_bits(2.0)), F32, (4, 1, 1, 1), (4, 16, 16, 16), 0)
    assert BY_OP[Op.SCALE].read_params(raw) == {"s": 0.5, "b": 2.0}


def test_clamp_is_always_in_place(ctx: Context) -> None:
    a = transposed(ctx, 4, 3)
    r = clamp(ctx, a, -1.0, 1.0)
    assert (r.view_src, r.nb, r.name) == (a, a.nb, "t (view)")
    assert r.op_params == (float_bits(-1.0), float_bits(1.0))


def test_acc_and_set_keep_strides_offset_and_whether_they_are_in_place(ctx: Context) -> None:
    a, b = new(ctx, 8, 6), new(ctx, 4, 3)
    assert acc(ctx, a, b, 32, 192, 192, 16).op_params == (32, 192, 192, 16)
    assert set_(ctx, a, b, 32, 192, 192, 16, inplace=True).op_params == (32, 192, 192, 16, 1)
    assert set_1d(ctx, a, b, 8).op_params == (*a.nb[1:], 8)
    with pytest.raises(GgmlAssert, match="offset"):
        set_(ctx, a, b, 32, 192, 192, 1 << 30)


def test_fill_takes_only_contiguous_floats(ctx: Context) -> None:
    assert fill(ctx, new(ctx, 4, type=F16), 1.0, inplace=True).op_params == (float_bits(1.0),)
    with pytest.raises(GgmlAssert, match="GGML_TYPE_F16"):
        fill(ctx, new(ctx, 4, type=I32), 1.0)


def test_leaky_relu_has_an_inplace_twin(ctx: Context) -> None:
    a = new(ctx, 4, name="a")
    assert leaky_relu(ctx, a, 0.1, inplace=True).view_src is a
    assert CONSTRUCTORS["leaky_relu"].inplace


def test_a_source_is_told_from_a_parameter_by_its_annotation() -> None:
    c = CONSTRUCTORS["scale_bias"]
    assert (c.sources, [p.name for p in c.params], c.inplace) == (("a",), ["s", "b"], True)
