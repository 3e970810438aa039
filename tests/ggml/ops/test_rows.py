"""get_rows, set_rows and get_rows_back: what they make and what they refuse."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, I64, TYPES, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import Raw, for_node
from ggmltool.ggml.ops.rows import get_rows, get_rows_back, set_rows
from ggmltool.ggml.tensor import Tensor


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "") -> Tensor:
    return ctx.new_tensor(type, ne, name=name)


def test_rows_come_out_as_f32_but_i32_stays(ctx: Context) -> None:
    ids = new(ctx, 5, 3, type=I32)
    for type in (F32, F16, TYPES["q4_0"]):
        r = get_rows(ctx, new(ctx, 64, 100, 3, type=type), ids)
        assert (r.type, r.ne, r.view_src) == (F32, (64, 5, 3, 1), None)
    assert get_rows(ctx, new(ctx, 64, 100, 3, type=I32), ids).type is I32


def test_set_rows_views_its_destination_and_lists_it_last(ctx: Context) -> None:
    cache = new(ctx, 128, 2048, type=F16, name="cache_k_l0")
    k, idx = new(ctx, 128, 4), new(ctx, 4, type=I64)
    r = set_rows(ctx, cache, k, idx)
    assert (r.src, r.view_src, r.name) == ([k, idx, cache], cache, "cache_k_l0 (view)")
    assert (r.type, r.ne, r.nb) == (cache.type, cache.ne, cache.nb)


def test_the_slots_of_a_captured_set_rows_are_put_in_the_order_of_the_call() -> None:
    c = for_node(Op.SET_ROWS, ["k", "idx", "cache"], "n")
    assert c is not None
    assert c.call_order(["k", "idx", "cache"]) == ["cache", "k", "idx"]


def test_the_slots_of_a_captured_get_rows_back_lack_the_third_source() -> None:
    c = for_node(Op.GET_ROWS_BACK, ["g", "idx"], "n")
    assert c is not None
    assert c.call_order(["g", "idx"]) == ["g", "idx"]
    assert c.read_params(Raw((), F32, (8, 5, 1, 1), (4, 32, 160, 160), 0)) == {"ne": (8, 5, 1, 1)}


def test_get_rows_back_has_the_extents_of_its_third_source(ctx: Context) -> None:
    g, idx = new(ctx, 8, 4), new(ctx, 4, type=I32)
    r = get_rows_back(ctx, g, idx, new(ctx, 8, 5))
    assert (r.ne, r.src) == ((8, 5, 1, 1), [g, idx])
    assert get_rows_back(ctx, g, idx, ne=(8, 5)).ne == r.ne
    with pytest.raises(ValueError, match="third source"):
        get_rows_back(ctx, g, idx)


@pytest.mark.parametrize(
    ("a", "b", "c", "condition"),
    [
        ((9, 9), (8, 4), (4,), "a->ne[0] == b->ne[0]"),
        ((8, 9, 2), (8, 4), (4,), "a->ne[2] == b->ne[2]"),
        ((8, 9), (8, 4), (5,), "b->ne[1] == c->ne[0]"),
        ((8, 9, 3), (8, 4, 3), (4, 2), "b->ne[2] % c->ne[1] == 0"),
        ((8, 9), (8, 4), (4, 1, 1, 2), "c->ne[3] == 1"),
    ],
)
def test_set_rows_names_the_shapes_that_do_not_fit(
    ctx: Context, a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], condition: str
) -> None:
    with pytest.raises(GgmlAssert) as caught:
        set_rows(ctx, new(ctx, *a, name="cache"), new(ctx, *b, name="k"), new(ctx, *c, type=I64, name="idx"))
    assert (caught.value.function, caught.value.condition) == ("ggml_set_rows", condition)
    assert "f32[" in caught.value.explanation or "i64[" in caught.value.explanation


def test_row_numbers_and_values_have_few_types(ctx: Context) -> None:
    with pytest.raises(GgmlAssert, match="I64"):
        set_rows(ctx, new(ctx, 8, 9), new(ctx, 8, 4), new(ctx, 4, type=F32))
    with pytest.raises(GgmlAssert, match="GGML_TYPE_F16"):
        set_rows(ctx, new(ctx, 8, 9), new(ctx, 8, 4, type=BF16), new(ctx, 4, type=I64))
    with pytest.raises(GgmlAssert, match="b->type == GGML_TYPE_I32"):
        get_rows(ctx, new(ctx, 8, 9), new(ctx, 4, type=I64))
