"""What the BLAS device runs (FACTS 2c)."""

from __future__ import annotations

import pytest

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import VIEW_OPS, Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder


def make() -> Device:
    return make_device(PROFILES["BLAS"], "BLAS", make_buft(PROFILES["CPU"], "CPU", "CPU"))


def product(k: int = 256, n: int = 64, m: int = 64, a: str = "f32", b: str = "f32", hint: int = 0) -> Tensor:
    build = Builder()
    x, y = build.leaf("a", k, n, type=a), build.leaf("b", k, m, type=b)
    return build.node("n", Op.MUL_MAT, x, y, ne=(n, m), type="f32", params=(0, hint))


def test_it_runs_nothing_but_products_and_views() -> None:
    build = Builder()
    x = build.leaf("x", 64, 64)
    for op in Op:
        if op not in (Op.MUL_MAT, Op.OUT_PROD):
            assert make().supports_op(build.node("n", op, x, x)) == (op in VIEW_OPS or op == Op.NONE)


@pytest.mark.parametrize(("k", "n", "m", "yes"), [(256, 32, 32, True), (256, 31, 32, False), (256, 32, 31, False)])
def test_a_product_is_worth_it_from_32_rows_and_columns_on(k: int, n: int, m: int, yes: bool) -> None:
    assert make().supports_op(product(k, n, m)) == yes
    assert make().supports_op(product(32))
    assert not make().supports_op(product(31))


@pytest.mark.parametrize("type", sorted(TYPES))
def test_the_weights_may_be_of_any_type_that_turns_into_f32(type: str) -> None:
    assert make().supports_op(product(a=type)) == (type not in ("i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"))


def test_the_other_operand_is_f32() -> None:
    assert not make().supports_op(product(a="f16", b="f16"))


def test_a_hadamard_product_is_left_to_others() -> None:
    assert not make().supports_op(product(hint=1))


@pytest.mark.parametrize("which", [0, 1])
def test_both_operands_are_contiguous(which: int) -> None:
    n = product()
    s = n.src[which]
    assert s is not None
    s.set_layout(s.ne, (4, 2048, 2048 * 64, 2048 * 64))
    assert not make().supports_op(n)


def outer(a: Tensor, b: Tensor) -> Tensor:
    return Builder().node("n", Op.OUT_PROD, a, b)


def test_an_outer_product_is_of_f32_matrices_of_which_the_second_may_be_transposed() -> None:
    build = Builder()
    a, b = build.leaf("a", 8, 4), build.leaf("b", 6, 4)
    assert make().supports_op(outer(a, b))
    b.set_layout(b.ne, (16, 4, 96, 96))
    assert make().supports_op(outer(a, b))
    b.set_layout(b.ne, (4, 32, 128, 128))
    assert not make().supports_op(outer(a, b))
    assert not make().supports_op(outer(build.leaf("c", 8, 4, 2), build.leaf("b", 6, 4)))
    assert not make().supports_op(outer(build.leaf("c", 8, 4, type="f16"), build.leaf("b", 6, 4)))


def test_it_has_no_memory_of_its_own_and_uses_all_of_the_host() -> None:
    blas = make()
    assert (blas.type, blas.buft.name, blas.any_host) == ("accel", "CPU", True)
    assert not blas.offload_op(product())
