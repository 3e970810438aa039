"""The CUDA device of ggml 0.26, and ROCm's: what of their ops and sizes is other than in 0.21.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op; fwht.cu:
ggml_cuda_op_mul_mat_use_fwht; lightning-indexer.cu: ggml_cuda_lightning_indexer_supported.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import cuda as before
from ggmltool.ggml.devices.attention import padded_size
from ggmltool.ggml.devices.combinators import (
    ALWAYS,
    FLOATS,
    Rule,
    all_of,
    among,
    any_of,
    at_most,
    by_op,
    contiguous,
    contiguous_rows,
    f32,
    f32_or_f16,
    not_types,
    param,
    same_shape,
    same_type,
    saying,
    types_of,
)
from ggmltool.ggml.devices.extra import Memory
from ggmltool.ggml.devices.op_rules import F16_BY_F16, mamba_2_state, multiplies, unit_stride
from ggmltool.ggml.devices.operands import RESULT
from ggmltool.ggml.dtypes import BF16, F16, F32
from ggmltool.ggml.releases.ggml_0_26.cuda_fattn import ALL_QUANTS, FLASH_ATTN, flash_attn_nbytes
from ggmltool.ggml.releases.ggml_0_26.op_rules import NO_F32_PRECISION

FEATURES = (*before.FEATURES, ALL_QUANTS)
AMD_FEATURES = (*before.AMD_FEATURES, ALL_QUANTS)

_HINT_SRC0_IS_HADAMARD = 1
_INT_MAX = 2**31 - 1
_AMD_SHARED_MEMORY = 64 << 10
"""Bytes of shared memory that a block of threads has on AMD's GPUs."""

_MOST_SORTED = _AMD_SHARED_MEMORY // 4

_HADAMARD = all_of(
    param(1, (_HINT_SRC0_IS_HADAMARD,), "it multiplies f16 by no other type but in a Hadamard transform"),
    saying(
        "in a Hadamard transform of f16, {why}",
        all_of(f32(0, RESULT), types_of(1, (F32, F16)), contiguous(1, RESULT), same_shape(1, RESULT)),
    ),
)
_WEIGHTS = multiplies(before.MUL_MAT_TYPES)
_GLU = contiguous(0, kind="from 1")
_SUMS = all_of(f32(0, RESULT), contiguous_rows(0))

RULES: dict[int, Rule] = before.RULES | by_op(
    {
        "UNARY": types_of(0, FLOATS),
        "XIELU": f32_or_f16(0),
        "SWIGLU_OAI SWIGLU_CLAMP": all_of(not_types(0, BF16, "for which this function has no kernel"), _GLU),
        "MUL_MAT": all_of(unit_stride(0, 1), any_of(F16_BY_F16, _HADAMARD), _WEIGHTS),
        "MUL_MAT_ID": all_of(
            unit_stride(0, 1),
            F16_BY_F16,
            NO_F32_PRECISION,
            _WEIGHTS,
        ),
        "DUP POOL_1D": ALWAYS,
        "SCALE": all_of(types_of(0, (F32, BF16)), same_type(0, RESULT)),
        "CLAMP": contiguous_rows(0),
        "ADD SUB MUL DIV": any_of(
            f32_or_f16(0, 1, RESULT), all_of(types_of(0, BF16), types_of(RESULT, BF16), types_of(1, (F32, BF16)))
        ),
        "SSM_SCAN": any_of(all_of(among(3, "ne0", 1), mamba_2_state(96, 128, 256)), before.MAMBA_1),
        "ROLL": f32(0),
        "CONV_3D": all_of(f32_or_f16(0), f32(1, RESULT), contiguous(0, 1, RESULT)),
        "CONV_2D_DW": all_of(f32_or_f16(0), f32(1, RESULT)),
        "TOP_K ARGSORT": at_most(0, "ne0", _INT_MAX),
        "SUM_ROWS MEAN": _SUMS,
        "LIGHTNING_INDEXER": before.lightning_indexer(4, 32, 64),
        "FLASH_ATTN_EXT": FLASH_ATTN,
    }
)
"""What CUDA runs under a condition, or not at all; it runs all other ops."""

AMD_RULES = RULES | by_op(
    {
        "ARGSORT": saying(
            f"it sorts rows of up to {_MOST_SORTED}, and source 0 has {{ne0[0]}}", at_most(0, "ne0", _MOST_SORTED)
        )
    }
)
"""The rules of a build for ROCm, which sorts a row in the shared memory of a block."""


def alloc_size(memory: Memory) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""
    return padded_size(memory, flash_attn_nbytes)
