"""What repeat, concat, pad, arange, argsort and their like make, and how captured ones are read back."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, I32, I64, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, float_bits
from ggmltool.ggml.tensor import Tensor, contiguous_nb

load()


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32) -> Tensor:
    return ctx.new_tensor(type, ne)


def make(ctx: Context, name: str, *args: object, **kwargs: object) -> Tensor:
    return CONSTRUCTORS[name].build(ctx, *args, **kwargs)


@pytest.mark.parametrize(
    ("name", "args", "type", "ne"),
    [
        ("sum", (), "f16", (1, 1, 1, 1)),
        ("sum_rows", (), "f16", (1, 6, 2, 1)),
        ("mean", (), "f32", (1, 6, 2, 1)),
        ("argsort", (1,), "i32", (4, 6, 2, 1)),
        ("top_k", (3,), "i32", (3, 6, 2, 1)),
        ("repeat_4d", (8, 6, 2, 5), "f16", (8, 6, 2, 5)),
        ("pad", (1, 2, 3, 4), "f16", (5, 8, 5, 5)),
        ("pad_ext", (1, 2, 0, 0, 3, 1, 0, 0), "f16", (7, 6, 6, 1)),
        ("pad_ext_circular", (1, 2, 0, 0, 3, 1, 0, 0), "f16", (7, 6, 6, 1)),
        ("roll", (1, -2, 1, 0), "f16", (4, 6, 2, 1)),
    ],
)
def test_the_type_and_extents_of_results(
    ctx: Context, name: str, args: tuple[int, ...], type: str, ne: tuple[int, ...]
) -> None:
    r = make(ctx, name, new(ctx, 4, 6, 2, type=F16), *args)
    assert (r.type.name, r.ne) == (type, ne)


def test_counting_and_places_of_the_largest(ctx: Context) -> None:
    a = new(ctx, 4, 6, type=I32)
    assert make(ctx, "count_equal", a, a).type is I64
    assert make(ctx, "argmax", new(ctx, 4, 6)).ne == (6, 1, 1, 1)


def test_repeat_takes_its_shape_from_a_tensor_or_from_ne_and_has_one_source(ctx: Context) -> None:
    a, b = new(ctx, 4, 1), new(ctx, 8, 6)
    by_tensor, by_ne = make(ctx, "repeat", a, b), make(ctx, "repeat", a, ne=[8, 6])
    assert by_tensor.ne == by_ne.ne == (8, 6, 1, 1)
    assert by_tensor.src == by_ne.src == [a]


def test_a_captured_repeat_has_its_shape_in_ne() -> None:
    c = BY_OP[Op.REPEAT]
    ne = (8, 6, 1, 1)
    assert c.read_params(Raw((), F32, ne, contiguous_nb(F32, ne), 0)) == {"ne": ne}
    assert c.call_order(["a"]) == ["a"]


def test_repeat_without_a_shape_says_what_is_missing(ctx: Context) -> None:
    with pytest.raises(ValueError, match="needs the tensor whose shape"):
        make(ctx, "repeat", new(ctx, 4))


def test_concat_adds_one_dimension_and_names_another_that_differs(ctx: Context) -> None:
    r = make(ctx, "concat", new(ctx, 4, 6), new(ctx, 4, 2), 1)
    assert (r.ne, r.op_params) == ((4, 8, 1, 1), (1,))
    with pytest.raises(GgmlAssert, match=r"a->ne\[d\] == b->ne\[d\]") as caught:
        make(ctx, "concat", new(ctx, 4, 6), new(ctx, 4, 2), 0)
    assert "dimension 1" in caught.value.explanation


def test_the_words_of_padding_are_ggmls(ctx: Context) -> None:
    a = new(ctx, 4, 6)
    assert make(ctx, "pad", a, 1, 2, 0, 0).op_params == (0, 1, 0, 2)
    assert make(ctx, "pad_circular", a, 1, 2, 0, 0).op_params == (0, 1, 0, 2, 0, 0, 0, 0, 1)
    raw = Raw((0, 1, 0, 2, 0, 0, 0, 0, 1), F32, (5, 8, 1, 1), (4, 20, 160, 160), 0)
    assert BY_OP[Op.PAD].read_params(raw) == {
        "lp0": 0, "rp0": 1, "lp1": 0, "rp1": 2, "lp2": 0, "rp2": 0, "lp3": 0, "rp3": 0, "circular": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "stop", "step", "n"), [(0, 10, 1, 10), (0, 10, 3, 4), (0.0, 0.7, 0.1, 7), (0, 1, 0.1, 10), (0, 2, -1, -2)]
)
def test_arange_counts_in_float32_and_has_no_source(
    ctx: Context, start: float, stop: float, step: float, n: int
) -> None:
    r = make(ctx, "arange", start, stop, step)
    assert (r.ne, r.src, r.type) == ((n, 1, 1, 1), [], F32)
    assert r.op_params[1] == float_bits(stop)


def test_arange_refuses_an_empty_range(ctx: Context) -> None:
    with pytest.raises(GgmlAssert, match="stop > start"):
        make(ctx, "arange", 2.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "param", "word", "number"),
    [
        ("argsort", "order", "desc", 1),
        ("tri", "type", "lower", 3),
        ("interpolate", "mode", "bilinear|align_corners", 257),
        ("upscale", "mode", "bicubic", 2),
        ("glu", "op", "geglu_quick", 5),
    ],
)
def test_enumerations_have_words(name: str, param: str, word: str, number: int) -> None:
    choices = next(p.choices for p in CONSTRUCTORS[name].params if p.name == param)
    assert choices is not None
    assert choices[word] == number


def test_upscale_refuses_what_ggml_does(ctx: Context) -> None:
    assert make(ctx, "upscale", new(ctx, 4, 6, 2), 2, 0).ne == (8, 12, 2, 1)
    with pytest.raises(GgmlAssert, match="scale_factor > 1"):
        make(ctx, "upscale", new(ctx, 4, 6), 1, 0)
    with pytest.raises(GgmlAssert, match="ANTIALIAS"):
        make(ctx, "interpolate", new(ctx, 4, 6), 8, 8, 1, 1, 512)


def test_a_captured_upscale_is_read_from_its_extents_and_mode() -> None:
    raw = Raw((257,), F32, (8, 8, 1, 1), (4, 32, 256, 256), 0)
    assert BY_OP[Op.UPSCALE].read_params(raw) == {"ne0": 8, "ne1": 8, "ne2": 1, "ne3": 1, "mode": 257}


def test_a_captured_top_k_is_read_from_its_extents(ctx: Context) -> None:
    raw = Raw((), I32, (3, 6, 1, 1), (4, 12, 72, 72), 0)
    assert BY_OP[Op.TOP_K].read_params(raw) == {"k": 3}
    with pytest.raises(GgmlAssert, match=r"a->ne\[0\] >= k"):
        make(ctx, "top_k", new(ctx, 4), 5)


def test_timestep_embedding_keeps_an_odd_dimension(ctx: Context) -> None:
    r = make(ctx, "timestep_embedding", new(ctx, 3), 7, 10000)
    assert (r.ne, r.op_params) == ((7, 3, 1, 1), (7, 10000))
