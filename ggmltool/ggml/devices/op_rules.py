"""Rules on ops that several devices have, in the words that fit the op."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ggmltool.ggml.devices.combinators import (
    ALL_TYPES,
    Rule,
    all_of,
    among,
    between,
    contiguous,
    f32,
    floats,
    multiple,
    on,
    param,
    same_type,
    type_pairs,
    types,
    types_of,
)
from ggmltool.ggml.devices.operands import RESULT, field_of, name_of
from ggmltool.ggml.dtypes import F16, I32, I64, DType

ZERO = (0, -(2**31))
"""The words of 0.0 and -0.0."""

NO_KERNEL = "for which it has no kernel"

ROW_NUMBERS = types_of(1, (I32, I64))
"""The second source of GET_ROWS and SET_ROWS."""

NO_ALIBI = param(1, ZERO, "max_bias is not 0")
NO_SOFTCAP = param(2, ZERO, "it has no softcap")
PADS_WITH_ZEROS = param(8, (0,), "it pads with zeros, not in a circle")


def mamba_2_state(*sizes: int) -> Rule:
    """SSM_SCAN with states of these sizes."""
    return all_of(among(0, "ne0", *sizes), multiple(0, "ne1", 16))


MAMBA_2_STATE = mamba_2_state(128, 256)
MAMBA_2 = all_of(among(3, "ne0", 1), MAMBA_2_STATE)
"""SSM_SCAN with one value of A a head."""


F16_BY_F16 = type_pairs(
    1,
    0,
    dict.fromkeys(ALL_TYPES, ALL_TYPES) | {F16: types("f16")},
    "source 1 is f16, and source 0 is {type0}, not f16 too",
)
"""MUL_MAT by f16 of f16 only."""


COL2IM_1D = all_of(floats(0), same_type(0, RESULT), contiguous(0, RESULT))

DSV4_IN_F32 = {
    "DSV4_HC_PRE": f32(0, 1, RESULT),
    "DSV4_HC_COMB": f32(0, 1, 2, RESULT),
    "DSV4_HC_POST": f32(0, 1, 2, 3, RESULT),
}
"""DeepSeek's hyper-connections."""


def multiplies(accepted: Collection[DType]) -> Rule:
    """MUL_MAT and MUL_MAT_ID of weights of these types."""
    return types_of(0, accepted, "which it cannot multiply")


def multiplies_by(pairs: Mapping[DType, frozenset[DType]]) -> Rule:
    """MUL_MAT and MUL_MAT_ID of weights of a type by others."""
    return type_pairs(0, 1, pairs, "it multiplies no {type0} by {type1}")


def takes_rows_of(accepted: Collection[DType]) -> Rule:
    """GET_ROWS out of these types."""
    return types_of(0, accepted, "of which it takes no rows")


def writes_rows(pairs: Mapping[DType, frozenset[DType]]) -> Rule:
    """SET_ROWS from a type to others."""
    return type_pairs(0, RESULT, pairs, "it writes no rows of {type0} into {type}")


def copies(pairs: Mapping[DType, frozenset[DType]], to: int = RESULT) -> Rule:
    """CPY, DUP and CONT from a type to others; `to` is the operand that the device looks at."""
    return type_pairs(0, to, pairs, f"it copies no {{type0}} to {field_of(to, 'type')}")


def unit_stride(*operands: int) -> Rule:
    """Elements, or blocks, of these operands follow each other."""
    return all_of(*map(_unit_stride, operands))


def _unit_stride(i: int) -> Rule:
    gaps = f"rows of {name_of(i)} have gaps (nb[0] = {field_of(i, 'nb', '[0]')})"
    return on(i, gaps, lambda t: t.nb[0] == t.type.type_size)


def aligned_strides(i: int, size: int) -> Rule:
    """Rows, matrices and what is beyond begin at multiples of so many bytes."""
    return all_of(multiple(i, "nb1", size), multiple(i, "nb2", size), multiple(i, "nb3", size))


def matrix(*operands: int) -> Rule:
    """These operands have no more than two dimensions."""
    return all_of(among(operands, "ne2", 1), among(operands, "ne3", 1))


def same_ne(d: int, i: int, j: int) -> Rule:
    """Dimension `d` of two operands is the same."""
    differ = f"ne[{d}] of {name_of(i)} and of {name_of(j)} differ"
    values = f"{field_of(i, 'ne', f'[{d}]')} and {field_of(j, 'ne', f'[{d}]')}"
    return between(i, j, f"{differ}, {values}", lambda a, b: a.ne[d] == b.ne[d])
