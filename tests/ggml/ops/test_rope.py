"""rope's rules and the shape of its rotation."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32, I32, I64, DType
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, KERNELS, Raw, float_bits
from ggmltool.ggml.ops.rope import IMROPE, MROPE, NEOX, NORMAL, VISION, rope_ext, rope_ext_back, rope_multi
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays

load()
ARRAYS = HostArrays()


@pytest.fixture
def ctx() -> Context:
    return Context()


def place(t: Tensor) -> Tensor:
    t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes, AddressSpace())
    t.data = t.buffer.base
    return t


def new(ctx: Context, *ne: int, type: DType = F32, name: str = "", data: object = None) -> Tensor:
    t = ctx.new_tensor(type, ne, name=name)
    if data is not None:
        ARRAYS.put(place(t), np.asarray(data).reshape(t.ne[::-1]))
    return t


def test_the_words_are_ggmls(ctx: Context) -> None:
    q, pos = new(ctx, 64, 8, 5), new(ctx, 5, type=I32)
    r = rope_ext(ctx, q, pos, n_dims=32, mode=NEOX, n_ctx_orig=4096, freq_scale=0.5, beta_fast=32, beta_slow=1)
    floats = [float_bits(x) for x in (10000.0, 0.5, 0.0, 1.0, 32.0, 1.0)]
    assert r.op_params == (0, 32, NEOX, 0, 4096, *floats)
    assert (r.ne, r.type, r.src, r.view_src) == (q.ne, F32, [q, pos], None)


def test_a_captured_rope_gives_its_parameters_back(ctx: Context) -> None:
    r = rope_multi(ctx, new(ctx, 64, 8, 5), new(ctx, 20, type=I32), n_dims=64, sections=[8, 12, 12, 0], mode=MROPE)
    params = BY_OP[Op.ROPE].read_params(Raw(r.op_params, F32, r.ne, r.nb, 0))
    assert params is not None
    assert (params["n_dims"], params["mode"], params["sections"]) == (64, MROPE, [8, 12, 12, 0])
    assert rope_ext(ctx, new(ctx, 64, 8, 5), new(ctx, 20, type=I32), **params).op_params == r.op_params


def test_sections_are_stored_only_in_modes_that_have_them(ctx: Context) -> None:
    r = rope_ext(ctx, new(ctx, 64, 8, 5), new(ctx, 5, type=I32), n_dims=64, mode=NEOX, sections=[1, 2, 3, 4])
    assert len(r.op_params) == 9
    with pytest.raises(ValueError, match="4 sections"):
        rope_ext(ctx, new(ctx, 64, 8, 5), new(ctx, 5, type=I32), n_dims=64, mode=NEOX, sections=[1, 2, 3, 4, 5])


def test_a_mode_may_be_given_by_its_name() -> None:
    modes = next(p for p in CONSTRUCTORS["rope"].params if p.name == "mode").choices
    assert modes is not None
    assert (modes["normal"], modes["neox"], modes["mrope"], modes["vision"], modes["imrope"]) == (
        NORMAL, NEOX, MROPE, VISION, IMROPE,
    )  # fmt: skip


def test_frequency_factors_are_the_optional_third_source(ctx: Context) -> None:
    q, pos, factors = new(ctx, 64, 8, 5), new(ctx, 5, type=I32), new(ctx, 32)
    assert rope_ext(ctx, q, pos, factors, n_dims=64, mode=NEOX).src == [q, pos, factors]
    assert CONSTRUCTORS["rope"].sources == ("a", "b", "c")
    assert CONSTRUCTORS["rope"].n_required_sources == 2


def test_in_place_is_a_view_and_backwards_another_op(ctx: Context) -> None:
    q, pos = new(ctx, 64, 8, 5, name="q"), new(ctx, 5, type=I32)
    r = rope_ext(ctx, q, pos, n_dims=64, mode=NEOX, inplace=True)
    assert (r.view_src, r.name) == (q, "q (view)")
    assert rope_ext_back(ctx, q, pos, n_dims=64, mode=NEOX).op == Op.ROPE_BACK


@pytest.mark.parametrize(
    ("mode", "positions", "type", "condition"),
    [
        (1, 5, I32, '(mode & 1) == 0 && "mode & 1 == 1 is no longer supported"'),
        (NEOX, 5, I64, "b->type == GGML_TYPE_I32"),
        (NEOX, 6, I32, "a->ne[2] == b->ne[0]"),
        (MROPE, 5, I32, "a->ne[2] * 4 == b->ne[0]"),
    ],
)
def test_positions_that_do_not_fit_are_refused(
    ctx: Context, mode: int, positions: int, type: DType, condition: str
) -> None:
    with pytest.raises(GgmlAssert) as caught:
        rope_ext(ctx, new(ctx, 64, 8, 5, name="q"), new(ctx, positions, type=type, name="pos"), n_dims=64, mode=mode)
    assert (caught.value.function, caught.value.condition) == ("ggml_rope_impl", condition)
    assert caught.value.explanation


@pytest.mark.parametrize("mode", [NORMAL, NEOX, MROPE, IMROPE, VISION])
def test_a_turn_keeps_lengths_and_backwards_undoes_it(ctx: Context, mode: int) -> None:
    values = np.random.default_rng(0).standard_normal((3, 2, 16)).astype(np.float32)
    several = 4 if mode & MROPE else 1
    pos = new(ctx, 3 * several, type=I32, data=np.arange(3 * several) * 7)
    params = {"n_dims": 8 if mode == VISION else 16, "mode": mode, "sections": [2, 2, 2, 2] if several == 4 else []}
    turned = place(rope_ext(ctx, new(ctx, 16, 2, 3, data=values), pos, **params))
    KERNELS[Op.ROPE](ARRAYS, turned)
    got = ARRAYS.f32(turned)[0]
    assert not np.allclose(got, values)
    assert np.allclose(np.square(got).sum(-1), np.square(values).sum(-1), rtol=1e-5)
    back = place(rope_ext_back(ctx, turned, pos, **params))
    KERNELS[Op.ROPE_BACK](ARRAYS, back)
    assert np.allclose(ARRAYS.f32(back)[0], values, atol=1e-5)


def test_the_angle_of_the_first_pair_is_the_position(ctx: Context) -> None:
    pos = new(ctx, 1, type=I32, data=[1])
    r = place(rope_ext(ctx, new(ctx, 4, 1, 1, data=[1, 0, 0, 0]), pos, n_dims=4, mode=NORMAL))
    KERNELS[Op.ROPE](ARRAYS, r)
    assert np.allclose(ARRAYS.f32(r).reshape(-1), [np.cos(1), np.sin(1), 0, 0])


def test_sections_without_pairs_cannot_be_computed(ctx: Context) -> None:
    pos = new(ctx, 4, type=I32, data=[0, 1, 2, 3])
    r = place(rope_ext(ctx, new(ctx, 8, 1, 1, data=np.ones(8)), pos, n_dims=8, mode=MROPE))
    with pytest.raises(NotComputable, match="sections"):
        KERNELS[Op.ROPE](ARRAYS, r)
