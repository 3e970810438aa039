"""What the flash attention of CUDA and SYCL, which has CUDA's code, asks in common.

From ggml 0.20.2, src/ggml-cuda/fattn.cu and src/ggml-sycl/fattn.cpp: the beginning of get_best_fattn_kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.buffer import AllocSize, row_padding_of
from ggmltool.ggml.devices.combinators import all_of, among, same_type, saying, types, types_of
from ggmltool.ggml.devices.extra import Features, Memory
from ggmltool.ggml.devices.op_rules import ZERO
from ggmltool.ggml.devices.operands import optional, source, word
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor

KQ_STRIDE = 256
"""FATTN_KQ_STRIDE: what keys are padded to."""

ONE_MASK = saying("the mask differs from head to head", among(3, "ne2", 1))

KV_AND_MASK = all_of(
    saying("K is {type1} and V is {type2}; the default build has no kernel for two types", same_type(1, 2)),
    types_of(1, types("f32 f16 bf16 q4_0 q8_0"), "for which the default build has no kernel"),
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


def padded_size(memory: Memory, attention_nbytes: Callable[[Tensor, Features], int]) -> AllocSize:
    """Alloc sizes where quantized rows are padded, and attention takes so much on hardware with certain features."""
    row_padding, has = memory.row_padding, memory.features

    def size_of(t: Tensor) -> int:
        size = attention_nbytes(t, has) if t.op == Op.FLASH_ATTN_EXT else t.nbytes
        return size + row_padding_of(t, row_padding) if t.type.quantized else size

    return size_of
