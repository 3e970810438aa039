"""mul_mat, mul_mat_id and out_prod: shapes, parameters, refusals, and products small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, I32, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.matmul import mul_mat, mul_mat_id, out_prod
from ggmltool.ggml.ops.registry import BY_OP, KERNELS, Raw
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays

load()
ARRAYS = HostArrays()


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "", data: object = None) -> Tensor:
    t = ctx.new_tensor(type, ne, name=name)
    if data is not None:
        place(t)
        ARRAYS.put(t, np.asarray(data).reshape(t.ne[::-1]))
    return t


def place(t: Tensor) -> Tensor:
    t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes, AddressSpace())
    t.data = t.buffer.base
    return t


def computed(t: Tensor) -> list[object]:
    KERNELS[t.op](ARRAYS, place(t))
    out: list[object] = ARRAYS.f32(t)[0, 0].tolist()
    return out


def test_the_product_of_ggmls_simple_example(ctx: Context) -> None:
    a = new(ctx, 2, 4, data=[[2, 8], [5, 1], [4, 2], [8, 6]])
    b = new(ctx, 2, 3, data=[[10, 5], [9, 9], [5, 4]])
    assert computed(mul_mat(ctx, a, b)) == [[60, 55, 50, 110], [90, 54, 54, 126], [42, 29, 28, 64]]


def test_the_result_has_a_column_per_row_of_a_and_is_f32(ctx: Context) -> None:
    a, b = new(ctx, 32, 7, 2, type=F16), new(ctx, 32, 5, 6)
    r = mul_mat(ctx, a, b)
    assert (r.type, r.ne, r.src, r.op_params, r.name) == (F32, (7, 5, 6, 1), [a, b], (), "")


def test_precisions_and_hint_are_words(ctx: Context) -> None:
    r = mul_mat(ctx, new(ctx, 32, 7), new(ctx, 32, 5), prec=10, hint=1)
    assert r.op_params == (10, 1)
    assert BY_OP[Op.MUL_MAT].read_params(Raw((10,), F32, r.ne, r.nb, 0)) == {"prec": 10, "hint": 0, "prec_b": 0}
    assert mul_mat(ctx, new(ctx, 32, 7), new(ctx, 32, 5), prec_b=30).op_params == (0, 0, 0, 30)


def test_rows_of_different_length_are_refused_with_both_shapes(ctx: Context) -> None:
    with pytest.raises(GgmlAssert) as caught:
        mul_mat(ctx, new(ctx, 4, 3, name="w"), new(ctx, 5, 8, name="x"))
    assert caught.value.message == "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"
    assert "w f32[4, 3]" in caught.value.explanation
    assert "x f32[5, 8]" in caught.value.explanation


def test_a_transposed_weight_is_refused(ctx: Context) -> None:
    w = new(ctx, 4, 3, name="w")
    w.set_layout((3, 4, 1, 1), (16, 4, 48, 48))
    with pytest.raises(GgmlAssert) as caught:
        mul_mat(ctx, w, new(ctx, 3, 2))
    assert caught.value.condition == "!ggml_is_transposed(a)"
    with pytest.raises(GgmlAssert) as caught:
        mul_mat_id(ctx, w, new(ctx, 3, 1, 2), new(ctx, 1, 2, type=I32))
    assert caught.value.condition == "!ggml_is_transposed(as)"


def test_experts_are_chosen_by_token_and_slot(ctx: Context) -> None:
    experts = new(ctx, 1, 2, 3, data=[[1, 2], [10, 20], [100, 200]])
    x = new(ctx, 1, 1, 2, data=[3, 5])
    ids = new(ctx, 2, 2, type=I32, data=[[2, 0], [1, 1]])
    r = place(mul_mat_id(ctx, experts, x, ids))
    assert r.ne == (2, 2, 2, 1)
    KERNELS[r.op](ARRAYS, r)
    assert ARRAYS.f32(r)[0].tolist() == [[[300, 600], [3, 6]], [[50, 100], [50, 100]]]


def test_an_expert_that_is_not_there_is_named(ctx: Context) -> None:
    experts, x = new(ctx, 1, 2, 3, data=np.ones(6)), new(ctx, 1, 1, 1, data=[1])
    r = place(mul_mat_id(ctx, experts, x, new(ctx, 1, 1, type=I32, name="topk", data=[3])))
    with pytest.raises(GgmlAssert) as caught:
        KERNELS[r.op](ARRAYS, r)
    assert "topk" in caught.value.explanation
    assert "expert 3" in caught.value.explanation


def test_the_outer_product_sums_over_columns(ctx: Context) -> None:
    a, b = new(ctx, 2, 2, data=[[1, 2], [3, 4]]), new(ctx, 3, 2, data=[[1, 0, 1], [0, 1, 1]])
    assert computed(out_prod(ctx, a, b)) == [[1, 2], [3, 4], [4, 6]]


def test_weights_larger_than_a_chunk_are_multiplied_piece_by_piece(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    wv, xv = rng.standard_normal((50, 64)), rng.standard_normal((3, 64))
    r = mul_mat(ctx, new(ctx, 64, 50, data=wv), new(ctx, 64, 3, data=xv))
    whole = np.array(computed(r))
    monkeypatch.setattr("ggmltool.ggml.ops.matmul.CHUNK", 64 * 7)
    assert np.allclose(computed(r), whole, rtol=1e-5, atol=1e-5)
    assert np.allclose(whole, xv @ wv.T, rtol=1e-4, atol=1e-5)
