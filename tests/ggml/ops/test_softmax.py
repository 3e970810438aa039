"""What softmax, causal masks and the norms make, and which masks are refused."""

from __future__ import annotations

import pytest

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, Raw, float_bits
from ggmltool.ggml.ops.softmax import diag_mask_inf, group_norm, rms_norm, soft_max_ext
from ggmltool.ggml.tensor import Tensor


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "") -> Tensor:
    return ctx.new_tensor(type, ne, name=name)


def test_softmax_keeps_scale_and_bias_and_leaves_a_hole_for_a_missing_mask(ctx: Context) -> None:
    kq, sinks = new(ctx, 33, 6, 8), new(ctx, 8)
    r = soft_max_ext(ctx, kq, None, sinks, 0.125)
    assert (r.op_params, r.src) == ((float_bits(0.125),), [kq, None, sinks])
    assert soft_max_ext(ctx, kq).src == [kq]


def test_the_short_and_the_long_name_are_one_constructor(ctx: Context) -> None:
    assert CONSTRUCTORS["soft_max"].build is CONSTRUCTORS["soft_max_ext"].build
    words = (float_bits(0.125), float_bits(8.0))
    assert BY_OP[Op.SOFT_MAX].read_params(Raw(words, F32, (1, 1, 1, 1), (4, 4, 4, 4), 0)) == {
        "scale": 0.125,
        "max_bias": 8.0,
    }


@pytest.mark.parametrize(
    ("mask", "type", "condition"),
    [
        ((33, 6), BF16, "mask->type == GGML_TYPE_F16 || mask->type == GGML_TYPE_F32"),
        ((32, 6), F16, "mask->ne[0] == a->ne[0]"),
        ((33, 5), F16, "mask->ne[1] >= a->ne[1]"),
        ((33, 6, 3), F32, "a->ne[2]%mask->ne[2] == 0"),
        ((33, 6, 1, 2), F32, "a->ne[3]%mask->ne[3] == 0"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(ctx: Context, mask: tuple[int, ...], type: DType, condition: str) -> None:
    with pytest.raises(GgmlAssert) as caught:
        soft_max_ext(ctx, new(ctx, 33, 6, 8, name="kq"), new(ctx, *mask, type=type, name="kq_mask"))
    assert caught.value.condition == condition
    assert "kq_mask" in caught.value.explanation


def test_a_bias_needs_a_mask_and_sinks_need_one_element_per_head(ctx: Context) -> None:
    kq = new(ctx, 33, 6, 8)
    with pytest.raises(GgmlAssert, match=r"GGML_ASSERT\(mask\)"):
        soft_max_ext(ctx, kq, max_bias=8.0)
    with pytest.raises(GgmlAssert, match=r"ne\[2\] == sinks"):
        soft_max_ext(ctx, kq, sinks=new(ctx, 7))


def test_a_causal_mask_keeps_n_past(ctx: Context) -> None:
    a = new(ctx, 4, 4, name="kq")
    r = diag_mask_inf(ctx, a, 3, inplace=True)
    assert (r.op_params, r.view_src, r.name) == ((3,), a, "kq (view)")


def test_norms_keep_eps_and_groups(ctx: Context) -> None:
    a = new(ctx, 4, 4, 6)
    assert rms_norm(ctx, a, 1e-6).op_params == (float_bits(1e-6),)
    assert group_norm(ctx, a, 3, 1e-5).op_params == (3, float_bits(1e-5))
