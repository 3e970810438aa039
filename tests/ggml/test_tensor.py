"""Tensors: strides, bytes, names and the predicates on layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml import tensor as tensors
from ggmltool.ggml.devices.gpu_arrays import can_decode, can_encode, decode_blocks, encode_blocks
from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor, contiguous_nb, cut_name
from ggmltool.ggml.values.quants import dequantize, quantize
from tests.ggml.layouts import contiguous_tensors, strided_tensors


def make(ne: tuple[int, int, int, int], nb: tuple[int, int, int, int] | None = None, type: str = "f32") -> Tensor:
    return Tensor(TYPES[type], ne, nb)


@given(contiguous_tensors())
def test_a_new_tensor_is_contiguous_by_every_measure(t: Tensor) -> None:
    assert tensors.is_contiguous(t)
    assert tensors.is_contiguous_1(t)
    assert tensors.is_contiguous_2(t)
    assert tensors.is_contiguous_rows(t)
    assert tensors.is_padded_1d(t)
    assert not tensors.is_transposed(t) or t.ne[0] == 0
    assert t.nbytes == tensors.nelements(t) * t.type.type_size // t.type.block_size


@given(strided_tensors())
def test_contiguity_in_more_dimensions_implies_it_in_fewer(t: Tensor) -> None:
    assert tensors.is_contiguous_to(t, 4) == tensors.is_contiguous(t)
    for n in (2, 3, 4):
        assert not tensors.is_contiguous_to(t, n) or tensors.is_contiguous_to(t, n - 1)


@pytest.mark.parametrize(
    ("a", "b", "can"),
    [
        ((8, 4, 1, 1), (8, 3, 1, 1), True),
        ((8, 4, 2, 1), (8, 3, 6, 5), True),
        ((8, 4, 6, 1), (8, 3, 2, 1), False),
        ((8, 4, 1, 1), (4, 3, 1, 1), False),
        ((8, 4, 0, 1), (8, 3, 1, 1), False),
    ],
)
def test_a_product_needs_equal_rows_and_batches_that_divide(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int], can: bool
) -> None:
    assert tensors.can_mul_mat(make(a), make(b)) == can


def test_names_are_cut_to_63_bytes_in_the_middle_of_a_character() -> None:
    assert cut_name("a" * 63) == "a" * 63
    assert cut_name("a" * 64) == "a" * 63
    half = cut_name("a" * 62 + "ü")
    assert half.encode("utf-8", "surrogateescape") == b"a" * 62 + b"\xc3"


@given(st.text(max_size=80))
def test_a_cut_name_is_a_prefix_of_the_bytes(name: str) -> None:
    raw = name.encode("utf-8", "surrogatepass") if name.isprintable() else None
    if raw is None:
        return
    assert cut_name(name).encode("utf-8", "surrogateescape") == raw[:63]


def test_the_description_of_an_op_is_its_functions_name() -> None:
    t = make((4, 1, 1, 1))
    assert tensors.op_desc(t) == "NONE"
    t.set_op(Op.UNARY, (int(UnaryOp.SILU),), make((4, 1, 1, 1)))
    assert tensors.op_desc(t) == "SILU"
    t.set_op(Op.GLU, (int(GluOp.SWIGLU),))
    assert tensors.op_desc(t) == "SWIGLU"
    t.set_op(Op.MUL_MAT)
    assert tensors.op_desc(t) == "MUL_MAT"


def test_trailing_holes_of_the_sources_are_dropped_and_holes_in_front_kept() -> None:
    t, x = make((4, 1, 1, 1)), make((4, 1, 1, 1))
    t.set_op(Op.FLASH_ATTN_EXT, (), None, x, None, None)
    assert t.src == [None, x]


def test_a_clone_shares_nothing_that_changes() -> None:
    t = Tensor(F16, (4, 2, 1, 1), op=Op.SCALE, op_params=(7,), flags=1, src=[make((4, 2, 1, 1))], name="n", id="i")
    t.data = 123
    copy = t.clone(5)
    assert (copy.type, copy.ne, copy.nb, copy.op, copy.op_params, copy.flags) == (F16, t.ne, t.nb, t.op, (7,), 1)
    assert (copy.name, copy.id, copy.index, copy.src, copy.view_src, copy.buffer, copy.data) == (
        "n", "i", 5, [], None, None, 0,
    )  # fmt: skip


def test_a_new_layout_counts_its_bytes_anew() -> None:
    t = make((4, 4, 1, 1))
    t.set_layout((4, 2, 1, 1), (4, 32, 64, 64))
    assert t.nbytes == 48
    assert contiguous_nb(F32, t.ne) == (4, 16, 32, 32)


DECODED = [t for t in TYPES.values() if can_decode(t)]
ENCODED = [t for t in TYPES.values() if can_encode(t)]


@pytest.mark.parametrize("type", DECODED, ids=lambda t: t.name)
def test_any_bytes_are_decoded_to_the_same_values(type: object) -> None:
    t = next(t for t in DECODED if t is type)
    rng = np.random.default_rng(t.id)
    rows = rng.integers(0, 256, (3, 2, 40 * t.type_size), dtype=np.uint8)
    expected = dequantize(rows, t)
    with np.errstate(all="ignore"):
        got = decode_blocks(np, rows, t)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("type", ENCODED, ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 3e4])
def test_values_are_encoded_to_the_same_bytes(type: object, scale: float) -> None:
    t = next(t for t in ENCODED if t is type)
    rng = np.random.default_rng(t.id)
    values = (rng.standard_normal((4, 3, 8 * t.block_size)) * scale).astype(np.float32)
    values[0, 0, : t.block_size] = 0
    values[1, 1, : t.block_size] = 2.5
    values[2, 2] = np.rint(values[2, 2])
    with np.errstate(all="ignore"):
        got = encode_blocks(np, values, t)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, quantize(values, t))


def test_rows_with_gaps_and_rows_of_no_elements_are_decoded() -> None:
    t = TYPES["q8_0"]
    rows = np.random.default_rng(1).integers(0, 100, (2, 5, 3 * t.type_size), dtype=np.uint8)
    np.testing.assert_array_equal(decode_blocks(np, rows[:, ::2, t.type_size :], t), dequantize(rows, t)[:, ::2, 32:])
    assert decode_blocks(np, rows[:, :0], t).shape == (2, 0, 96)
    assert encode_blocks(np, np.zeros((0, 64), np.float32), t).shape == (0, 2 * t.type_size)
