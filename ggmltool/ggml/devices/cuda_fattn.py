"""Which flash attention kernel CUDA and ROCm take, and the room it needs behind its result.

From ggml 0.20.2, src/ggml-cuda/fattn.cu: ggml_cuda_flash_attn_ext_supported, ggml_cuda_get_best_fattn_kernel,
ggml_cuda_flash_attn_ext_get_alloc_size.
"""

from __future__ import annotations

from enum import Enum

from ggmltool.ggml.devices.attention import KQ_STRIDE, KV_AND_MASK, groups_queries, is_view_of_keys, queries_per_key
from ggmltool.ggml.devices.combinators import Rule, all_of
from ggmltool.ggml.devices.extra import Features
from ggmltool.ggml.devices.operands import optional, source
from ggmltool.ggml.dtypes import F16, F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import Tensor, nelements
from ggmltool.ggml.version import pad

_SAME_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
_EXTRA_ALIGNMENT = 128
_KERNEL_GROUP = 32
"""Query heads per key head that every kernel for grouped queries can work with."""

_LONG_CONTEXT = 8192
_BEST_KERNEL = "ggml_cuda_get_best_fattn_kernel"


class Kernel(Enum):
    """best_fattn_kernel."""

    NONE = 0
    TILE = 1
    VEC = 2
    MMA = 3


NVIDIA = frozenset({"turing", "ada"})
"""An NVIDIA GPU of the Ada generation or newer: matrix units as since Turing, and vectors good enough for one row."""


def best_kernel(dst: Tensor, has: Features = NVIDIA) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel with the default build's K and V types.

    `has` is what the GPU has: `turing` (matrix units as since then) and `ada` (it is at least of that generation) of
    NVIDIA's, `wmma` (RDNA 3 and newer) or `mfma` (CDNA) of AMD's.
    """
    if FLASH_ATTN.ask(dst) is not None:
        return Kernel.NONE
    q, k = source(dst, 0), source(dst, 1)
    gqa = queries_per_key(dst, _BEST_KERNEL)
    gqa_opt = groups_queries(dst, gqa)
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % KQ_STRIDE == 0
    has_matrix_kernel = q.ne[0] not in (40, 72)
    if "turing" in has and has_matrix_kernel:
        return Kernel.VEC if vec_ok and _rather_vectors(q, k, gqa, gqa_opt, "ada" in has) else Kernel.MMA
    if has_matrix_kernel and _amd_has_matrices_for(q, gqa, gqa_opt, has):
        return Kernel.MMA
    if vec_ok and (q.ne[1] <= 2 if k.type.quantized else q.ne[1] == 1 and not gqa_opt):
        return Kernel.VEC
    return Kernel.TILE


def _rather_vectors(q: Tensor, k: Tensor, gqa: int, gqa_opt: bool, ada: bool) -> bool:
    """Whether a batch is so small that NVIDIA's vectors are faster than its matrix units."""
    if not k.type.quantized:
        if ada and q.ne[1] == 1 and q.ne[3] == 1 and not (gqa > 4 and k.ne[1] >= _LONG_CONTEXT):
            return True
    elif q.ne[1] <= (2 if ada else 1):
        return True
    return not gqa_opt and q.ne[1] == 1


_AMD_ROWS = ((64, 8), (128, 16), (256, 64))
"""Head sizes up to the first figure, and the rows above which CDNA's matrix units are faster."""


def queries_at_once(gqa: int, most: int) -> int:
    """Queries of a key that a kernel for AMD computes together: a power of two that their number is a multiple of."""
    shared = 1
    while gqa % (2 * shared) == 0 and shared < most:
        shared *= 2
    return shared


def _amd_has_matrices_for(q: Tensor, gqa: int, gqa_opt: bool, has: Features) -> bool:
    most = 32 if q.ne[0] == 320 else 16 if q.ne[0] in (576, 192) else 8
    rows = q.ne[1] * queries_at_once(gqa, most)
    if "mfma" in has and any(q.ne[0] <= head and rows > least for head, least in _AMD_ROWS):
        return True
    return "wmma" in has and gqa_opt and q.ne[0] <= 128 and rows > 8


def flash_attn_nbytes(dst: Tensor, has: Features = NVIDIA) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    k, v = optional(dst, 1), optional(dst, 2)
    if k is None or v is None:
        raise GgmlAssert("ggml_cuda_flash_attn_ext_get_alloc_size", "K != nullptr", f"{dst.name} lacks a source")
    kernel = best_kernel(dst, has)
    always = kernel in (Kernel.TILE, Kernel.MMA)
    need_k = always or (kernel is Kernel.VEC and k.type is F32)
    need_v = always or (kernel is Kernel.VEC and v.type is F32)
    return nbytes_with_copies(dst, k, v, need_k, need_v)


def nbytes_with_copies(dst: Tensor, k: Tensor, v: Tensor, need_k: bool, need_v: bool) -> int:
    """ggml_cuda_flash_attn_ext_get_f16_extra_data: the result, and behind it f16 copies of K and V that are needed."""
    end = dst.nbytes
    if need_k and k.type is not F16:
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(k)
    if need_v and v.type is not F16 and not is_view_of_keys(k, v):
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(v)
    return end


def _heads_refusal(dst: Tensor) -> str | None:
    gqa = queries_per_key(dst, _BEST_KERNEL)
    k, v = source(dst, 1).ne[0], source(dst, 2).ne[0]
    if _head_size_ok(k, v, gqa, groups_queries(dst, gqa)):
        return None
    if not _head_size_ok(k, v, _KERNEL_GROUP, True):
        return "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V"
    return "heads of {ne1[0]} need a mask, no ALiBi, aligned strides, K padded to 256 and more queries per key head"


def _head_size_ok(k: int, v: int, gqa: int, gqa_opt: bool) -> bool:
    if k in _SAME_HEAD_SIZES:
        return k == v
    match k:
        case 192:
            return v == 128 and gqa_opt and gqa % 8 == 0
        case 320:
            return v == 256 and gqa_opt and gqa % 32 == 0
        case 512:
            return v == 512 and gqa_opt
        case 576:
            return v == 512 and gqa_opt
    return False


HEADS = Rule(_heads_refusal)
"""What kernels ask of the sizes of heads."""

FLASH_ATTN = all_of(HEADS, KV_AND_MASK)
"""Whether there is a kernel at all."""
