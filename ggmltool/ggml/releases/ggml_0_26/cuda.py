"""The CUDA device of ggml 0.26, and ROCm's: what of their ops and sizes is other than in 0.21.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op; fwht.cu:
ggml_cuda_op_mul_mat_use_fwht; lightning-indexer.cu: ggml_cuda_lightning_indexer_supported.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import cuda as before
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, source
from ggmltool.ggml.devices.cuda import HEADS, NVIDIA, Attention, Kernel
from ggmltool.ggml.devices.profile import Features, SizeFacts
from ggmltool.ggml.dtypes import BF16, F16, F32
from ggmltool.ggml.releases.ggml_0_26.fusing import NO_F32_PRECISION
from ggmltool.ggml.tensor import Tensor

_KV_TYPES = r.types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0")
_COMPILED = r.types("f16 bf16 q4_0 q8_0")
"""Types for which the default build has a vector kernel, for K and V both of one (GGML_CUDA_FA_QUANTS)."""

ALL_QUANTS = "fa_all_quants"
"""What a build with GGML_CUDA_FA_QUANTS=all has: a vector kernel for all types of K and V."""

FLASH_ATTN = r.all_of(HEADS, r.types_of((1, 2), _KV_TYPES, "for which attention has no kernel"), o.ONE_MASK)
"""Whether there is a kernel at all."""

_LARGE_HEAD = 256
_CDNA_ROWS_OF_LARGER = 128
"""The rows above which CDNA's matrix units are faster for heads that are larger."""

_RDNA_ROWS = ((128, 8), (256, 16))
"""Head sizes up to the first figure, and the rows above which the matrix units of RDNA 3 and newer are faster."""


def best_kernel(dst: Tensor, has: Features = NVIDIA) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel; `has` is what the GPU has, as in `ggmltool.ggml.devices.cuda`."""

    def by_amd_matrices(of: Attention) -> bool:
        return _amd_has_matrices(of if o.has_no_alibi(dst) else of._replace(gqa=1))

    return before.best_kernel(dst, has, FLASH_ATTN, _rather_vectors, by_amd_matrices)


def _rather_vectors(of: Attention) -> bool:
    shared_large_heads = not of.quantized and of.gqa > 4 and of.q.ne[0] >= _LARGE_HEAD
    return before.rather_vectors(of._replace(has=of.has - {"ada"}) if shared_large_heads else of)


def _amd_has_matrices(of: Attention) -> bool:
    head, rows = of.q.ne[0], before.amd_rows(of)
    if "mfma" in of.has and head > _LARGE_HEAD and of.gqa_opt and rows > _CDNA_ROWS_OF_LARGER:
        return True
    if "wmma" in of.has and of.gqa_opt and next((rows > least for most, least in _RDNA_ROWS if head <= most), False):
        return True
    return before.amd_has_matrices(of._replace(has=of.has - {"wmma"}))


def _compiled_kernel(dst: Tensor, has: Features) -> Kernel:
    """ggml_cuda_get_fattn_vec_case: the build may lack a vector kernel for K and V of their types."""
    kernel = best_kernel(dst, has)
    k, v = (F16 if t.type is F32 else t.type for t in (source(dst, 1), source(dst, 2)))
    is_there = (k is v and k in _COMPILED) or ALL_QUANTS in has
    return Kernel.TILE if kernel is Kernel.VEC and not is_there else kernel


def flash_attn_nbytes(dst: Tensor, has: Features = NVIDIA) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    return before.flash_attn_nbytes(dst, has, _compiled_kernel)


FEATURES = (*before.FEATURES, ALL_QUANTS)
AMD_FEATURES = (*before.AMD_FEATURES, ALL_QUANTS)

_HINT_SRC0_IS_HADAMARD = 1
_INT_MAX = 2**31 - 1
_AMD_SHARED_MEMORY = 64 << 10
"""Bytes of shared memory that a block of threads has on AMD's GPUs."""

_MOST_SORTED = _AMD_SHARED_MEMORY // 4

_HADAMARD = r.all_of(
    r.param(1, (_HINT_SRC0_IS_HADAMARD,), "it multiplies f16 by no other type but in a Hadamard transform"),
    r.saying(
        "in a Hadamard transform of f16, {why}",
        r.all_of(r.f32(0, RESULT), r.types_of(1, (F32, F16)), r.contiguous(1, RESULT), r.same_shape(1, RESULT)),
    ),
)
_WEIGHTS = o.multiplies(before.MUL_MAT_TYPES)
_GLU = r.contiguous(0, kind="from 1")
_SUMS = r.all_of(r.f32(0, RESULT), r.contiguous_rows(0))

RULES: dict[int, r.Rule] = before.RULES | r.by_op(
    {
        "UNARY": r.types_of(0, r.FLOATS),
        "XIELU": r.f32_or_f16(0),
        "SWIGLU_OAI SWIGLU_CLAMP": r.all_of(r.not_types(0, BF16, "for which this function has no kernel"), _GLU),
        "MUL_MAT": r.all_of(o.unit_stride(0, 1), r.any_of(o.F16_BY_F16, _HADAMARD), _WEIGHTS),
        "MUL_MAT_ID": r.all_of(
            o.unit_stride(0, 1),
            o.F16_BY_F16,
            NO_F32_PRECISION,
            _WEIGHTS,
        ),
        "DUP POOL_1D": r.ALWAYS,
        "SCALE": r.all_of(r.types_of(0, (F32, BF16)), r.same_type(0, RESULT)),
        "CLAMP": r.contiguous_rows(0),
        "ADD SUB MUL DIV": r.any_of(
            r.f32_or_f16(0, 1, RESULT),
            r.all_of(r.types_of(0, BF16), r.types_of(RESULT, BF16), r.types_of(1, (F32, BF16))),
        ),
        "SSM_SCAN": r.any_of(r.all_of(r.among(3, "ne0", 1), o.mamba_2_state(96, 128, 256)), before.MAMBA_1),
        "ROLL": r.f32(0),
        "CONV_3D": r.all_of(r.f32_or_f16(0), r.f32(1, RESULT), r.contiguous(0, 1, RESULT)),
        "CONV_2D_DW": r.all_of(r.f32_or_f16(0), r.f32(1, RESULT)),
        "TOP_K ARGSORT": r.at_most(0, "ne0", _INT_MAX),
        "SUM_ROWS MEAN": _SUMS,
        "LIGHTNING_INDEXER": before.lightning_indexer(4, 32, 64),
        "FLASH_ATTN_EXT": FLASH_ATTN,
    }
)
"""What CUDA runs under a condition, or not at all; it runs all other ops."""

AMD_RULES = RULES | r.by_op(
    {
        "ARGSORT": r.saying(
            f"it sorts rows of up to {_MOST_SORTED}, and source 0 has {{ne0[0]}}", r.at_most(0, "ne0", _MOST_SORTED)
        )
    }
)
"""The rules of a build for ROCm, which sorts a row in the shared memory of a block."""


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""
    return o.padded_size(memory, flash_attn_nbytes)
