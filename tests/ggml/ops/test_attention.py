"""flash_attn_ext: shape, parameters, refusals, and a case checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.attention import flash_attn_ext
from ggmltool.ggml.ops.registry import BY_OP, KERNELS, Raw, float_bits
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays

load()
ARRAYS = HostArrays()


@pytest.fixture
def ctx() -> Context:
    return Context()


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "") -> Tensor:
    return ctx.new_tensor(type, ne, name=name)


def filled(ctx: Context, values: Any, type: DType = F32) -> Tensor:
    array = np.asarray(values, dtype=np.float32)
    t = place(ctx.new_tensor(type, array.shape[::-1]))
    ARRAYS.put(t, array.reshape(t.ne[::-1]))
    return t


def place(t: Tensor) -> Tensor:
    t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes, AddressSpace())
    t.data = t.buffer.base
    return t


def computed(t: Tensor) -> Any:
    KERNELS[Op.FLASH_ATTN_EXT](ARRAYS, place(t))
    return ARRAYS.f32(t)[0]


def test_heads_and_queries_change_places(ctx: Context) -> None:
    q, k, v = new(ctx, 64, 3, 8), new(ctx, 64, 40, 2, type=F16), new(ctx, 128, 40, 2, type=F16)
    sinks = new(ctx, 8)
    r = flash_attn_ext(ctx, q, k, v, None, sinks, scale=0.125, prec=10)
    assert (r.type, r.ne, r.src) == (F32, (128, 8, 3, 1), [q, k, v, None, sinks])
    assert r.op_params == (float_bits(0.125), 0, 0, 10)
    assert BY_OP[Op.FLASH_ATTN_EXT].read_params(Raw(r.op_params, F32, r.ne, r.nb, 0)) == {
        "scale": 0.125, "max_bias": 0.0, "logit_softcap": 0.0, "prec": 10, "n_kv_max": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "params", "condition"),
    [
        ((F32, (40, 3)), {}, "mask->type == GGML_TYPE_F16"),
        ((F16, (40, 3, 3)), {}, "q->ne[2] % mask->ne[2] == 0"),
        (None, {"max_bias": 8.0}, "mask"),
    ],
)
def test_masks_that_do_not_fit_are_refused(
    ctx: Context, mask: tuple[DType, tuple[int, ...]] | None, params: dict[str, float], condition: str
) -> None:
    m = new(ctx, *mask[1], type=mask[0], name="kq_mask") if mask else None
    with pytest.raises(GgmlAssert) as caught:
        flash_attn_ext(ctx, new(ctx, 64, 3, 8), new(ctx, 64, 40, 2), new(ctx, 64, 40, 2), m, scale=1.0, **params)
    assert (caught.value.function, caught.value.condition) == ("ggml_flash_attn_ext", condition)
    assert caught.value.explanation


def test_equal_keys_give_the_mean_of_the_values(ctx: Context) -> None:
    k, v = filled(ctx, [[[0, 0], [0, 0]]]), filled(ctx, [[[1, 2], [3, 6]]])
    assert computed(flash_attn_ext(ctx, filled(ctx, [[[1, 1]]]), k, v, scale=1.0)).tolist() == [[[2, 4]]]


def test_masked_keys_do_not_count_and_a_query_without_keys_gives_zeros(ctx: Context) -> None:
    q, k, v = filled(ctx, [[[1], [1]]]), filled(ctx, [[[0], [0]]]), filled(ctx, [[[1], [3]]])
    mask = filled(ctx, [[0, -np.inf], [-np.inf, -np.inf]], F16)
    assert computed(flash_attn_ext(ctx, q, k, v, mask, scale=1.0)).tolist() == [[[1]], [[0]]]


def test_a_sink_takes_its_share(ctx: Context) -> None:
    q, k, v = filled(ctx, [[[1]]]), filled(ctx, [[[0]]]), filled(ctx, [[[8]]])
    assert computed(flash_attn_ext(ctx, q, k, v, None, filled(ctx, [0]), scale=1.0)).tolist() == [[[4]]]


def test_queries_in_pieces_give_the_same(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (filled(ctx, rng.standard_normal(s)) for s in ((4, 9, 8), (2, 7, 8), (2, 7, 8)))
    r = flash_attn_ext(ctx, q, k, v, scale=0.5)
    whole = computed(r).copy()
    monkeypatch.setattr("ggmltool.ggml.ops.attention.CHUNK", 30)
    assert np.allclose(computed(r), whole, atol=1e-6)


def test_a_mask_that_ends_too_early_is_an_error_not_a_crash(ctx: Context) -> None:
    q, k, v = filled(ctx, [[[1], [1]]]), filled(ctx, [[[0], [0]]]), filled(ctx, [[[1], [3]]])
    with pytest.raises(NotComputable, match="mask is too small"):
        computed(flash_attn_ext(ctx, q, k, v, filled(ctx, [[0, 0]], F16), scale=1.0))
