"""The CUDA device of ggml 0.26, and ROCm's: what of their ops and sizes is other than in 0.21.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op; fwht.cu:
ggml_cuda_op_mul_mat_use_fwht; lightning-indexer.cu: ggml_cuda_lightning_indexer_supported.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import cuda as before
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, optional, source
from ggmltool.ggml.devices.cuda import HEADS, NVIDIA, Kernel, nbytes_with_copies, queries_at_once
from ggmltool.ggml.devices.profile import Features, SizeFacts
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.releases.ggml_0_26.fusing import NO_F32_PRECISION
from ggmltool.ggml.tensor import Tensor

_KV_TYPES = r.types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0")
_COMPILED = r.types("f16 bf16 q4_0 q8_0")
"""Types for which the default build has a vector kernel, for K and V both of one (GGML_CUDA_FA_QUANTS)."""

ALL_QUANTS = "fa_all_quants"
"""What a build with GGML_CUDA_FA_QUANTS=all has: a vector kernel for all types of K and V."""

FLASH_ATTN = r.all_of(HEADS, r.types_of((1, 2), _KV_TYPES, "for which attention has no kernel"), o.ONE_MASK)
"""Whether there is a kernel at all."""

_BEST_KERNEL = "ggml_cuda_get_best_fattn_kernel"
_LONG_CONTEXT = 8192
_LARGE_HEAD = 256


def best_kernel(dst: Tensor, has: Features = NVIDIA) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel; `has` is what the GPU has, as in `ggmltool.ggml.devices.cuda`."""
    if FLASH_ATTN.ask(dst) is not None:
        return Kernel.NONE
    q, k, v = source(dst, 0), source(dst, 1), source(dst, 2)
    gqa = o.queries_per_key(dst, _BEST_KERNEL)
    gqa_opt = o.groups_queries(dst, gqa)
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % o.KQ_STRIDE == 0
    quantized = k.type.quantized or v.type.quantized
    has_matrix_kernel = q.ne[0] not in (40, 72)
    if "turing" in has and has_matrix_kernel:
        vectors = vec_ok and _rather_vectors(q, k, gqa, gqa_opt, quantized, "ada" in has)
        return Kernel.VEC if vectors else Kernel.MMA
    if has_matrix_kernel and _amd_has_matrices_for(q, gqa if o.has_no_alibi(dst) else 1, gqa_opt, has):
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
