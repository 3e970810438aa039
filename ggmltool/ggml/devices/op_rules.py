"""Rules on ops that several devices have, in the words that fit the op; attention among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ggmltool.ggml.buffer import AllocSize, row_padding_of
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, field_of, name_of, optional, source, word
from ggmltool.ggml.devices.profile import Features, SizeFacts
from ggmltool.ggml.dtypes import F16, I32, I64, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor

ZERO = (0, -(2**31))
"""The words of 0.0 and -0.0."""

NO_KERNEL = "for which it has no kernel"

ROW_NUMBERS = r.types_of(1, (I32, I64))
"""The second source of GET_ROWS and SET_ROWS."""

NO_ALIBI = r.param(1, ZERO, "max_bias is not 0")
NO_SOFTCAP = r.param(2, ZERO, "it has no softcap")
PADS_WITH_ZEROS = r.param(8, (0,), "it pads with zeros, not in a circle")


def mamba_2_state(*sizes: int) -> r.Rule:
    """SSM_SCAN with states of these sizes."""
    return r.all_of(r.among(0, "ne0", *sizes), r.multiple(0, "ne1", 16))


MAMBA_2_STATE = mamba_2_state(128, 256)
MAMBA_2 = r.all_of(r.among(3, "ne0", 1), MAMBA_2_STATE)
"""SSM_SCAN with one value of A a head."""


F16_BY_F16 = r.type_pairs(
    1,
    0,
    dict.fromkeys(r.ALL_TYPES, r.ALL_TYPES) | {F16: r.types("f16")},
    "source 1 is f16, and source 0 is {type0}, not f16 too",
)
"""MUL_MAT by f16 of f16 only."""


COL2IM_1D = r.all_of(r.floats(0), r.same_type(0, RESULT), r.contiguous(0, RESULT))

DSV4_IN_F32 = {
    "DSV4_HC_PRE": r.f32(0, 1, RESULT),
    "DSV4_HC_COMB": r.f32(0, 1, 2, RESULT),
    "DSV4_HC_POST": r.f32(0, 1, 2, 3, RESULT),
}
"""DeepSeek's hyper-connections."""


def multiplies(accepted: Collection[DType]) -> r.Rule:
    """MUL_MAT and MUL_MAT_ID of weights of these types."""
    return r.types_of(0, accepted, "which it cannot multiply")


def multiplies_by(pairs: Mapping[DType, frozenset[DType]]) -> r.Rule:
    """MUL_MAT and MUL_MAT_ID of weights of a type by others."""
    return r.type_pairs(0, 1, pairs, "it multiplies no {type0} by {type1}")


def takes_rows_of(accepted: Collection[DType]) -> r.Rule:
    """GET_ROWS out of these types."""
    return r.types_of(0, accepted, "of which it takes no rows")


def writes_rows(pairs: Mapping[DType, frozenset[DType]]) -> r.Rule:
    """SET_ROWS from a type to others."""
    return r.type_pairs(0, RESULT, pairs, "it writes no rows of {type0} into {type}")


def copies(pairs: Mapping[DType, frozenset[DType]], to: int = RESULT) -> r.Rule:
    """CPY, DUP and CONT from a type to others; `to` is the operand that the device looks at."""
    return r.type_pairs(0, to, pairs, f"it copies no {{type0}} to {field_of(to, 'type')}")


def unit_stride(*operands: int) -> r.Rule:
    """Elements, or blocks, of these operands follow each other."""
    return r.all_of(*map(_unit_stride, operands))


def _unit_stride(i: int) -> r.Rule:
    gaps = f"rows of {name_of(i)} have gaps (nb[0] = {field_of(i, 'nb', '[0]')})"
    return r.on(i, gaps, lambda t: t.nb[0] == t.type.type_size)


def aligned_strides(i: int, size: int) -> r.Rule:
    """Rows, matrices and what is beyond begin at multiples of so many bytes."""
    return r.all_of(r.multiple(i, "nb1", size), r.multiple(i, "nb2", size), r.multiple(i, "nb3", size))


def matrix(*operands: int) -> r.Rule:
    """These operands have no more than two dimensions."""
    return r.all_of(r.among(operands, "ne2", 1), r.among(operands, "ne3", 1))


def same_ne(d: int, i: int, j: int) -> r.Rule:
    """Dimension `d` of two operands is the same."""
    differ = f"ne[{d}] of {name_of(i)} and of {name_of(j)} differ"
    values = f"{field_of(i, 'ne', f'[{d}]')} and {field_of(j, 'ne', f'[{d}]')}"
    return r.between(i, j, f"{differ}, {values}", lambda a, b: a.ne[d] == b.ne[d])


KQ_STRIDE = 256
"""FATTN_KQ_STRIDE: what keys are padded to."""

ONE_MASK = r.saying("the mask differs from head to head", r.among(3, "ne2", 1))

KV_AND_MASK = r.all_of(
    r.saying("K is {type1} and V is {type2}; the default build has no kernel for two types", r.same_type(1, 2)),
    r.types_of(1, r.types("f32 f16 bf16 q4_0 q8_0"), "for which the default build has no kernel"),
    ONE_MASK,
)
"""What all kernels ask of K, V and the mask."""


def queries_per_key(op: Tensor, function: str) -> int:
    """Query heads per key head. Raises GgmlAssert, of `function`, where they do not come out even."""
    queries, keys = source(op, 0).ne[2], source(op, 1).ne[2]
    if keys == 0 or queries % keys != 0:
        told = f"{queries} query heads cannot share {keys} key heads evenly"
        raise GgmlAssert(function, "Q->ne[2] % K->ne[2] == 0", told)
    return queries // keys


def has_no_alibi(op: Tensor) -> bool:
    """max_bias is 0."""
    return word(op, 1) in ZERO


def groups_queries(op: Tensor, gqa: int) -> bool:
    """gqa_opt_applies: whether `gqa` queries that share a key can be computed together."""
    mask = optional(op, 3)
    if gqa < 2 or mask is None or not has_no_alibi(op) or source(op, 1).ne[1] % KQ_STRIDE != 0:
        return False
    tensors = (source(op, 0), source(op, 1), source(op, 2), mask)
    return all(t.type.quantized or all(nb % 16 == 0 for nb in t.nb[1:]) for t in tensors)


def is_view_of_keys(k: Tensor, v: Tensor) -> bool:
    """V_is_K_view: whether V lies where K does, so that one copy serves both."""
    return v.view_src is not None and (v.view_src is k or (v.view_src is k.view_src and v.view_offs == k.view_offs))


def padded_size(memory: SizeFacts, attention_nbytes: Callable[[Tensor, Features], int]) -> AllocSize:
    """Alloc sizes where quantized rows are padded, and attention takes so much on hardware with certain features."""
    row_padding, has = memory.row_padding, memory.features

    def size_of(t: Tensor) -> int:
        size = attention_nbytes(t, has) if t.op == Op.FLASH_ATTN_EXT else t.nbytes
        return size + row_padding_of(t, row_padding) if t.type.quantized else size

    return size_of
