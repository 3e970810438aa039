"""cpy, cast, cont and dup: what they make and what they refuse."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, for_node
from ggmltool.ggml.ops.views import cast, cont, cont_2d, cpy, dup, transpose, view
from ggmltool.ggml.tensor import Tensor


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, name: str = "a") -> Tensor:
    return ctx.new_tensor(F32, ne, name=name)


def test_cpy_is_a_view_of_its_destination_in_its_layout(ctx: Context) -> None:
    k, cache = new(ctx, 8, 2, name="k"), new(ctx, 8, 100, name="cache")
    place = view(ctx, cache, [16], [], 64)
    r = cpy(ctx, k, place)
    assert (r.ne, r.nb, r.type) == (place.ne, place.nb, F32)
    assert (r.view_src, r.view_offs, r.src) == (cache, 64, [k, place])
    assert r.name == "cache (view) (copy of k)"
    assert cpy(ctx, k, new(ctx, 16, name="")).name == "k (copy)"


def test_cpy_keeps_the_number_of_elements(ctx: Context) -> None:
    with pytest.raises(GgmlAssert) as caught:
        cpy(ctx, new(ctx, 8, name="k"), new(ctx, 9, name="place"))
    assert caught.value.message == "GGML_ASSERT(ggml_nelements(a) == ggml_nelements(b)) failed"
    assert "k f32[8] has 8 elements" in caught.value.explanation


def test_cast_is_a_copy_that_is_its_own_source(ctx: Context) -> None:
    a = transpose(ctx, new(ctx, 4, 3))
    r = cast(ctx, a, F16)
    assert (r.op, r.type, r.ne, r.nb) == (Op.CPY, F16, (3, 4, 1, 1), (2, 6, 24, 24))
    assert (r.src, r.view_src, r.name) == ([a, r], None, "a (transposed) (copy)")


def test_a_captured_copy_is_a_cast_where_it_is_its_own_source(ctx: Context) -> None:
    c = for_node(Op.CPY, ["a", "n"], "n")
    assert c is CONSTRUCTORS["cast"]
    assert c.call_order(["a", "n"]) == ["a"]
    assert c.read_params(Raw((), F16, (8, 1, 1, 1), (2, 16, 16, 16), 0)) == {"type": F16}
    assert for_node(Op.CPY, ["a", "b"], "n") is CONSTRUCTORS["cpy"]


def test_cont_is_contiguous_and_may_have_other_extents(ctx: Context) -> None:
    t = transpose(ctx, new(ctx, 4, 3))
    assert (cont(ctx, t).nb, cont(ctx, t).name) == ((4, 12, 48, 48), "a (transposed) (cont)")
    assert cont_2d(ctx, t, 6, 2).ne == cont(ctx, t, [6, 2]).ne == (6, 2, 1, 1)
    r = cont(ctx, t, [6, 2])
    assert BY_OP[Op.CONT].read_params(Raw((), F32, r.ne, r.nb, 0)) == {"ne": (6, 2, 1, 1)}
    with pytest.raises(GgmlAssert) as caught:
        cont(ctx, t, [5, 2])
    assert caught.value.condition == "ggml_nelements(a) == (ne0*ne1*ne2*ne3)"


def test_dup_copies_and_in_place_views(ctx: Context) -> None:
    t = transpose(ctx, new(ctx, 4, 3))
    assert (dup(ctx, t).nb, dup(ctx, t).name) == ((4, 12, 48, 48), "")
    assert dup(ctx, t, inplace=True).nb == t.nb
