"""Which flash attention kernel CUDA and ROCm take, and the room it needs behind its result."""

from __future__ import annotations

from enum import Enum

from ggmltool.ggml.devices.combinators import Rule
from ggmltool.ggml.devices.extra import Features
from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import Tensor, nelements
from ggmltool.ggml.version import pad

_KV_TYPES = frozenset(TYPES[name] for name in ("f32", "f16", "bf16", "q4_0", "q8_0"))
_SAME_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
_KQ_STRIDE = 256
_EXTRA_ALIGNMENT = 128
_KERNEL_GROUP = 32
"""Query heads per key head that every kernel for grouped queries can work with."""

_LONG_CONTEXT = 8192


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
    q, k, _, _ = _operands(dst)
    gqa = _gqa(q, k)
    gqa_opt = _gqa_opt_applies(dst, gqa)
    if _refusal(dst, gqa, gqa_opt) is not None:
        return Kernel.NONE
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % _KQ_STRIDE == 0
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


def _amd_has_matrices_for(q: Tensor, gqa: int, gqa_opt: bool, has: Features) -> bool:
    most = 32 if q.ne[0] == 320 else 16 if q.ne[0] in (576, 192) else 8
    shared = 1
    while gqa % (2 * shared) == 0 and shared < most:
        shared *= 2
    rows = q.ne[1] * shared
    if "mfma" in has and any(q.ne[0] <= head and rows > least for head, least in _AMD_ROWS):
        return True
    return "wmma" in has and gqa_opt and q.ne[0] <= 128 and rows > 8


def flash_attn_refusal(dst: Tensor) -> str | None:
    """ggml_cuda_flash_attn_ext_supported: None where there is a kernel, else why there is none."""
    q, k, _, _ = _operands(dst)
    gqa = _gqa(q, k)
    return _refusal(dst, gqa, _gqa_opt_applies(dst, gqa))


FLASH_ATTN = Rule(flash_attn_refusal)


def flash_attn_nbytes(dst: Tensor, has: Features = NVIDIA) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    _, k, v, _ = _operands(dst)
    kernel = best_kernel(dst, has)
    always = kernel in (Kernel.TILE, Kernel.MMA)
    need_k = always or (kernel is Kernel.VEC and k.type is F32)
    need_v = always or (kernel is Kernel.VEC and v.type is F32)
    end = dst.nbytes
    if need_k and k.type is not F16:
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(k)
    v_is_view_of_k = v.view_src is not None and (
        v.view_src is k or (v.view_src is k.view_src and v.view_offs == k.view_offs)
    )
    if need_v and v.type is not F16 and not v_is_view_of_k:
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(v)
    return end


def _operands(dst: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    q, k, v = (*dst.src, None, None, None)[:3]
    if q is None or k is None or v is None:
        raise GgmlAssert("ggml_cuda_flash_attn_ext_get_alloc_size", "K != nullptr", f"{dst.name} lacks a source")
    return q, k, v, dst.src[3] if len(dst.src) > 3 else None


def _gqa(q: Tensor, k: Tensor) -> int:
    """Query heads per key head. Raises GgmlAssert where they do not come out even."""
    if k.ne[2] == 0 or q.ne[2] % k.ne[2] != 0:
        raise GgmlAssert(
            "ggml_cuda_get_best_fattn_kernel",
            "Q->ne[2] % K->ne[2] == 0",
            f"{q.ne[2]} query heads cannot share {k.ne[2]} key heads evenly",
        )
    return q.ne[2] // k.ne[2]


def _refusal(dst: Tensor, gqa: int, gqa_opt: bool) -> str | None:
    """Why there is no kernel, as a device's rule says it; None where there is one."""
    _, k, v, mask = _operands(dst)
    if not _head_size_ok(k.ne[0], v.ne[0], gqa, gqa_opt):
        if not _head_size_ok(k.ne[0], v.ne[0], _KERNEL_GROUP, True):
            return "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V"
        return "heads of {ne1[0]} need a mask, no ALiBi, aligned strides, K padded to 256 and more queries per key head"
    if k.type is not v.type:
        return "K is {type1} and V is {type2}; the default build has no kernel for two types"
    if k.type not in _KV_TYPES:
        return "the default build has no kernel for K and V of {type1}"
    return "the mask differs from head to head" if mask is not None and mask.ne[2] != 1 else None


def _gqa_opt_applies(dst: Tensor, gqa: int) -> bool:
    q, k, v, mask = _operands(dst)
    max_bias = dst.op_params[1] if len(dst.op_params) > 1 else 0
    if gqa < 2 or mask is None or max_bias not in (0, -(2**31)) or k.ne[1] % _KQ_STRIDE != 0:
        return False
    return all(t.type.quantized or all(nb % 16 == 0 for nb in t.nb[1:]) for t in (q, k, v, mask))


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
