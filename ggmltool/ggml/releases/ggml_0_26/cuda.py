"""The CUDA device of ggml 0.26, and ROCm's: what of their ops and sizes is other than in 0.21.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op; fwht.cu:
ggml_cuda_op_mul_mat_use_fwht; lightning-indexer.cu: ggml_cuda_lightning_indexer_supported.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import cuda as before
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
    types,
    types_of,
)
from ggmltool.ggml.devices.conditions import RESULT, optional, source
from ggmltool.ggml.devices.cuda import HEADS, NVIDIA, Kernel, nbytes_with_copies, queries_at_once
from ggmltool.ggml.devices.op_rules import (
    F16_BY_F16,
    KQ_STRIDE,
    ONE_MASK,
    groups_queries,
    has_no_alibi,
    mamba_2_state,
    multiplies,
    padded_size,
    queries_per_key,
    unit_stride,
)
from ggmltool.ggml.devices.profile import Features, SizeFacts
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.releases.ggml_0_26.fusing import NO_F32_PRECISION
from ggmltool.ggml.tensor import Tensor

_KV_TYPES = types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0")
_COMPILED = types("f16 bf16 q4_0 q8_0")
"""Types for which the default build has a vector kernel, for K and V both of one (GGML_CUDA_FA_QUANTS)."""

ALL_QUANTS = "fa_all_quants"
"""What a build with GGML_CUDA_FA_QUANTS=all has: a vector kernel for all types of K and V."""

FLASH_ATTN = all_of(HEADS, types_of((1, 2), _KV_TYPES, "for which attention has no kernel"), ONE_MASK)
"""Whether there is a kernel at all."""

_BEST_KERNEL = "ggml_cuda_get_best_fattn_kernel"
_LONG_CONTEXT = 8192
_LARGE_HEAD = 256


def best_kernel(dst: Tensor, has: Features = NVIDIA) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel; `has` is what the GPU has, as in `ggmltool.ggml.devices.cuda`."""
    if FLASH_ATTN.ask(dst) is not None:
        return Kernel.NONE
    q, k, v = source(dst, 0), source(dst, 1), source(dst, 2)
    gqa = queries_per_key(dst, _BEST_KERNEL)
    gqa_opt = groups_queries(dst, gqa)
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % KQ_STRIDE == 0
    quantized = k.type.quantized or v.type.quantized
    has_matrix_kernel = q.ne[0] not in (40, 72)
    if "turing" in has and has_matrix_kernel:
        vectors = vec_ok and _rather_vectors(q, k, gqa, gqa_opt, quantized, "ada" in has)
        return Kernel.VEC if vectors else Kernel.MMA
    if has_matrix_kernel and _amd_has_matrices_for(q, gqa if has_no_alibi(dst) else 1, gqa_opt, has):
        return Kernel.MMA
    if vec_ok and (q.ne[1] <= 2 if quantized else q.ne[1] == 1 and not gqa_opt):
        return Kernel.VEC
    return Kernel.TILE


def _rather_vectors(q: Tensor, k: Tensor, gqa: int, gqa_opt: bool, quantized: bool, ada: bool) -> bool:
    """Whether a batch is so small that NVIDIA's vectors are faster than its matrix units."""
    if quantized:
        if q.ne[1] <= (2 if ada else 1):
            return True
    elif ada and q.ne[1] == 1 and q.ne[3] == 1 and (gqa <= 4 or (q.ne[0] < _LARGE_HEAD and k.ne[1] < _LONG_CONTEXT)):
        return True
    return not gqa_opt and q.ne[1] == 1


_CDNA_ROWS = ((64, 8), (128, 16), (256, 64))
_CDNA_ROWS_OF_LARGER = 128
"""Head sizes up to the first figure, and the rows above which CDNA's matrix units are faster."""

_RDNA_ROWS = ((128, 8), (256, 16))
"""The same of RDNA 3 and newer."""


def _amd_has_matrices_for(q: Tensor, gqa: int, gqa_opt: bool, has: Features) -> bool:
    most = 32 if q.ne[0] == 320 else 16 if q.ne[0] in (576, 192) else 8
    rows = q.ne[1] * queries_at_once(gqa, most)
    if "mfma" in has:
        if any(q.ne[0] <= head and rows > least for head, least in _CDNA_ROWS):
            return True
        if q.ne[0] > _LARGE_HEAD and gqa_opt and rows > _CDNA_ROWS_OF_LARGER:
            return True
    if "wmma" in has and gqa_opt:
        return next((rows > least for head, least in _RDNA_ROWS if q.ne[0] <= head), False)
    return False


def _is_compiled(k: DType, v: DType, has: Features) -> bool:
    """ggml_cuda_get_fattn_vec_case: whether the build has a vector kernel for K and V of these types."""
    return (k is v and k in _COMPILED) or ALL_QUANTS in has


def flash_attn_nbytes(dst: Tensor, has: Features = NVIDIA) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    k, v = optional(dst, 1), optional(dst, 2)
    if k is None or v is None:
        raise GgmlAssert("ggml_cuda_flash_attn_ext_get_alloc_size", "K != nullptr", f"{dst.name} lacks a source")
    match best_kernel(dst, has):
        case Kernel.NONE:
            return dst.nbytes
        case Kernel.VEC if _is_compiled(F16 if k.type is F32 else k.type, F16 if v.type is F32 else v.type, has):
            return nbytes_with_copies(dst, k, v, k.type is F32, v.type is F32)
    return nbytes_with_copies(dst, k, v, True, True)


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


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""
    return padded_size(memory, flash_attn_nbytes)
