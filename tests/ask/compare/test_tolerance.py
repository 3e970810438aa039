"""How far two tensors are apart: errors, where they are, and what is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggmltool.ask.compare import tolerance as module
from ggmltool.ask.compare.tolerance import EXACT, ROUNDED, Deviation, is_exact, measure, tolerance_of
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays

NAN, INF = float("nan"), float("inf")


def tensor(values: Any, type: str = "f32") -> Tensor:
    array = np.asarray(values)
    shape = (1, 1, 1, *array.shape)[-4:]
    t = Tensor(TYPES[type], (shape[3], shape[2], shape[1], shape[0]))
    t.buffer = Buffer(BufferType("CPU", "CPU"), max(t.nbytes, 1), AddressSpace())
    t.data = t.buffer.base
    if t.nbytes:
        HostArrays().raw(t)[...] = array.reshape(shape)
    return t


def deviation(a: Any, b: Any, type: str = "f32") -> Deviation:
    return measure(tensor(a, type), tensor(b, type))


def test_the_error_is_the_squared_error_by_the_squares_of_the_first() -> None:
    found = deviation([[3.0, 4.0], [0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])
    assert found.nmse == pytest.approx(1 / 25)
    assert (found.largest_error, found.at, found.values) == (1.0, (1, 1, 0, 0), (0.0, 1.0))
    assert found.within(0.05)
    assert not found.within(0.03)


def test_equal_values_have_no_error_zeros_too() -> None:
    for values in ([1.0, 2.0], [0.0, 0.0], [], [NAN, INF, -INF]):
        found = deviation(values, values)
        assert (found.nmse, found.at, found.misplaced) == (0.0, None, 0)
        assert found.within(0.0)


def test_an_error_against_zeros_is_over_any_tolerance() -> None:
    assert deviation([0.0, 0.0], [0.0, 1e-30]).nmse == INF


@pytest.mark.parametrize(("a", "b"), [(NAN, 1.0), (1.0, NAN), (INF, -INF), (NAN, INF), (INF, 3e38)])
def test_what_is_not_finite_must_be_alike(a: float, b: float) -> None:
    found = deviation([1.0, a], [1.0, b])
    assert (found.misplaced, found.at) == (1, (1, 0, 0, 0))
    assert not found.within(1e30)


def test_integers_must_be_equal_also_where_a_double_cannot_tell_them_apart() -> None:
    assert deviation([5, 2**60], [5, 2**60], "i64").within(0.0, exact=True)
    found = deviation([5, 2**60], [5, 2**60 + 1], "i64")
    assert (found.largest_error, found.at) == (1.0, (1, 0, 0, 0))
    assert not found.within(1e9, exact=True)
    assert is_exact(tensor([5], "i64"))


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(2, 3, 5, 7)).astype(np.float32)
    b = a.copy()
    b[1, 2, 3, 4] += 1
    b[0, 0, 0, 0] += 0.5
    b[1, 0, 0, 1] = NAN
    whole = deviation(a, b)
    monkeypatch.setattr(module, "_BLOCK", 8)
    parts = deviation(a, b)
    assert parts.at == whole.at == (1, 0, 0, 1)
    assert (parts.largest_error, parts.misplaced, parts.not_finite) == (whole.largest_error, 1, (0, 1))
    assert parts.nmse == pytest.approx(whole.nmse)


@pytest.mark.parametrize(
    ("op", "types", "allowed"),
    [
        (Op.MUL_MAT, ("f32", "f32"), ROUNDED),
        (Op.MUL, ("f32", "f32"), EXACT),
        (Op.SOFT_MAX, ("f32",), 1e-6),
        (Op.MUL_MAT, ("f16", "f32"), ROUNDED),
        (Op.MUL_MAT, ("q8_0", "f32"), ROUNDED),
        (Op.ADD, ("bf16", "f32"), ROUNDED),
        (Op.GET_ROWS, ("q8_0", "i32"), EXACT),
        (Op.CPY, ("f16", "f32"), EXACT),
        (Op.VIEW, ("f16",), EXACT),
    ],
)
def test_a_tolerance_is_that_of_ggmls_own_tests_for_the_op_and_its_types(
    op: Op, types: tuple[str, ...], allowed: float
) -> None:
    node = Tensor(TYPES["f32"], (32, 1, 1, 1), op=op, src=[Tensor(TYPES[t], (32, 1, 1, 1)) for t in types])
    assert tolerance_of(node) == allowed


@pytest.mark.parametrize(
    ("op", "function", "allowed"),
    [
        (Op.UNARY, UnaryOp.GELU, ROUNDED),
        (Op.UNARY, UnaryOp.GELU_ERF, EXACT),
        (Op.GLU, GluOp.GEGLU_QUICK, ROUNDED),
        (Op.GLU, GluOp.SWIGLU, EXACT),
    ],
)
def test_functions_from_a_table_of_halves_may_be_further_off(op: Op, function: int, allowed: float) -> None:
    node = Tensor(TYPES["f32"], (32, 1, 1, 1), op=op, op_params=(int(function),))
    node.src = [Tensor(TYPES["f32"], (32, 1, 1, 1))]
    assert tolerance_of(node) == allowed
