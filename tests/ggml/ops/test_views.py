"""view, reshape, permute, transpose: what they make, what they refuse, and how captured ones are read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import BY_OP, Raw
from ggmltool.ggml.ops.views import permute, reshape, transpose, view, view_2d
from ggmltool.ggml.tensor import Tensor


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, name: str = "a") -> Tensor:
    return ctx.new_tensor(F32, ne, name=name)


def raw(t: Tensor) -> Raw:
    return Raw(t.op_params, t.type, t.ne, t.nb, t.view_offs)


def test_strides_that_are_not_given_follow_without_gaps(ctx: Context) -> None:
    kv = new(ctx, 64, 128, 4, name="kv")
    v = view(ctx, kv, ne=[32, 8, 2], nb=[512], offset=1024)
    assert (v.ne, v.nb, v.view_src, v.view_offs) == ((32, 8, 2, 1), (4, 512, 4096, 8192), kv, 1024)
    assert (v.name, v.op_params, v.src) == ("kv (view)", (1024,), [kv])
    assert view(ctx, kv, ne=[32, 8]).nb == (4, 128, 1024, 1024)
    assert view(ctx, kv, ne=[32, 8], nb=[4, 512, 1024, 2048]).nb == (4, 512, 1024, 2048)


def test_op_params_keep_the_offset_in_the_parent_view_offs_that_in_the_root(ctx: Context) -> None:
    root = new(ctx, 64, 8, name="root")
    inner = view_2d(ctx, view(ctx, root, [64, 4], [256], 256), 32, 2, 256, 128)
    assert (inner.op_params, inner.view_offs, inner.view_src) == ((128,), 384, root)
    assert inner.name == "root (view) (view)"


def test_an_offset_of_4_gib_takes_two_words(ctx: Context) -> None:
    big = new(ctx, 1 << 20, 1 << 13)
    v = view(ctx, big, [4], [], (1 << 32) + 8)
    assert v.op_params == (8, 1)
    assert BY_OP[Op.VIEW].read_params(raw(v))["offset"] == (1 << 32) + 8


def test_bounds_are_checked_by_the_contiguous_size_not_by_the_strides(ctx: Context) -> None:
    a = new(ctx, 8, 4)
    assert view(ctx, a, [8, 4], [10**6]).nb[1] == 10**6
    with pytest.raises(GgmlAssert) as caught:
        view(ctx, a, [8, 4], [32], 4)
    assert caught.value.function == "ggml_new_tensor_impl"
    assert "view_src == NULL" in caught.value.message


@pytest.mark.parametrize("nb", [[8, 32, 1, 1], [1, 2, 3, 4, 5]])
def test_strides_no_view_could_have_are_wrong_use(ctx: Context, nb: list[int]) -> None:
    with pytest.raises(ValueError, match=r"nb|strides"):
        view(ctx, new(ctx, 8, 4), [8], nb)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_a_captured_view_gives_the_same_view_again(ne: list[int], data: st.DataObject) -> None:
    ctx = Context()
    a = new(ctx, 10000)
    nb = data.draw(st.lists(st.integers(0, 5000), max_size=3))
    v = view(ctx, a, ne, nb, data.draw(st.integers(0, 8000)))
    again = BY_OP[Op.VIEW].build(ctx, a, **BY_OP[Op.VIEW].read_params(raw(v)))
    assert (again.ne, again.nb, again.op_params, again.view_offs) == (v.ne, v.nb, v.op_params, v.view_offs)


def test_reshape_takes_extents_or_a_tensor_that_has_them(ctx: Context) -> None:
    x = new(ctx, 64, 2, name="x")
    r = reshape(ctx, x, ne=[32, 4])
    assert (r.ne, r.nb, r.view_src, r.name, r.src, r.op_params) == (
        (32, 4, 1, 1), (4, 128, 512, 512), x, "x (reshaped)", [x], (),
    )  # fmt: skip
    assert reshape(ctx, x, new(ctx, 2, 64)).ne == (2, 64, 1, 1)
    assert reshape(ctx, x, new(ctx, 2, 64)).src == [x]
    assert BY_OP[Op.RESHAPE].read_params(raw(r)) == {"ne": (32, 4, 1, 1)}
    with pytest.raises(ValueError, match="new extents"):
        reshape(ctx, x)


@pytest.mark.parametrize(
    ("ne", "function", "condition"),
    [
        ([127], "ggml_reshape_1d", "ggml_nelements(a) == ne0"),
        ([32, 5], "ggml_reshape_2d", "ggml_nelements(a) == ne0*ne1"),
        ([2, 2, 2], "ggml_reshape_3d", "ggml_nelements(a) == ne0*ne1*ne2"),
        ([2, 2, 2, 2], "ggml_reshape_4d", "ggml_nelements(a) == ne0*ne1*ne2*ne3"),
    ],
)
def test_reshape_keeps_the_number_of_elements(ctx: Context, ne: list[int], function: str, condition: str) -> None:
    with pytest.raises(GgmlAssert) as caught:
        reshape(ctx, new(ctx, 64, 2, name="x"), ne=ne)
    assert (caught.value.function, caught.value.condition) == (function, condition)
    assert "128" in caught.value.explanation
    assert "x f32[64, 2]" in caught.value.explanation


def test_reshape_of_a_transposed_tensor_says_what_to_do(ctx: Context) -> None:
    with pytest.raises(GgmlAssert) as caught:
        reshape(ctx, transpose(ctx, new(ctx, 4, 3)), ne=[12])
    assert caught.value.message == "GGML_ASSERT(ggml_is_contiguous(a)) failed"
    assert "cont" in caught.value.explanation


def test_permute_moves_dimension_i_to_axis_i(ctx: Context) -> None:
    q = new(ctx, 64, 8, 5, name="q")
    p = permute(ctx, q, 0, 2, 1, 3)
    assert (p.ne, p.nb, p.name) == ((64, 5, 8, 1), (4, 2048, 256, 10240), "q (permuted)")
    assert (p.op_params, p.view_src, p.src) == ((0, 2, 1, 3), q, [q])
    assert permute(ctx, q, 1, 2, 3, 0).ne == (1, 64, 8, 5)
    assert BY_OP[Op.PERMUTE].read_params(raw(p)) == {"axis0": 0, "axis1": 2, "axis2": 1, "axis3": 3}


def test_permute_sends_strides_from_2_gib_on_through_a_c_int(ctx: Context) -> None:
    a = ctx.new_tensor(F16, (1024, 1 << 20, 2))
    assert permute(ctx, a, 0, 1, 2, 3).nb == (2, 2048, 2**64 - 2**31, 0)


@pytest.mark.parametrize(
    ("axes", "condition"),
    [
        ((0, 1, 2, 4), "axis3 >= 0 && axis3 < GGML_MAX_DIMS"),
        ((-1, 1, 2, 3), "axis0 >= 0 && axis0 < GGML_MAX_DIMS"),
        ((0, 1, 1, 3), "axis1 != axis2"),
    ],
)
def test_permute_wants_every_axis_once(ctx: Context, axes: tuple[int, int, int, int], condition: str) -> None:
    with pytest.raises(GgmlAssert) as caught:
        permute(ctx, new(ctx, 4), *axes)
    assert caught.value.condition == condition
    assert caught.value.explanation


def test_transpose_swaps_the_first_two_dimensions(ctx: Context) -> None:
    a = new(ctx, 4, 3, 2)
    t = transpose(ctx, a)
    assert (t.ne, t.nb, t.name, t.view_src) == ((3, 4, 2, 1), (16, 4, 48, 96), "a (transposed)", a)


def test_names_are_cut_to_63_bytes(ctx: Context) -> None:
    t = transpose(ctx, new(ctx, 4, 3, name="x" * 60))
    assert t.name == "x" * 60 + " (t"
