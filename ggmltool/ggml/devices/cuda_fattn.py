"""Which flash attention kernel CUDA takes, and the room it needs behind its result (compute capability 8.9)."""

from __future__ import annotations

from enum import Enum

from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import Tensor, nelements
from ggmltool.ggml.version import pad

_KV_TYPES = frozenset(TYPES[name] for name in ("f32", "f16", "bf16", "q4_0", "q8_0"))
_SAME_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
_KQ_STRIDE = 256
_EXTRA_ALIGNMENT = 128
_LONG_CONTEXT = 8192


class Kernel(Enum):
    """best_fattn_kernel."""

    NONE = 0
    TILE = 1
    VEC = 2
    MMA = 3


def best_kernel(dst: Tensor) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel for compute capability 8.9 with the default build's K and V types."""
    q, k, v, mask = _operands(dst)
    if k.ne[2] == 0 or q.ne[2] % k.ne[2] != 0:
        raise GgmlAssert(
            "ggml_cuda_get_best_fattn_kernel",
            "Q->ne[2] % K->ne[2] == 0",
            f"{q.ne[2]} query heads cannot share {k.ne[2]} key heads evenly",
        )
    gqa = q.ne[2] // k.ne[2]
    gqa_opt = _gqa_opt_applies(dst, gqa)
    if not _head_size_ok(k.ne[0], v.ne[0], gqa, gqa_opt) or k.type is not v.type or k.type not in _KV_TYPES:
        return Kernel.NONE
    if mask is not None and mask.ne[2] != 1:
        return Kernel.NONE
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % _KQ_STRIDE == 0
    if q.ne[0] in (40, 72):
        return Kernel.TILE
    if vec_ok:
        if not k.type.quantized:
            if q.ne[1] == 1 and q.ne[3] == 1 and not (gqa > 4 and k.ne[1] >= _LONG_CONTEXT):
                return Kernel.VEC
        elif q.ne[1] <= 2:
            return Kernel.VEC
        if not gqa_opt and q.ne[1] == 1:
            return Kernel.VEC
    return Kernel.MMA


def flash_attn_supported(dst: Tensor) -> bool:
    """ggml_cuda_flash_attn_ext_supported."""
    return best_kernel(dst) is not Kernel.NONE


def flash_attn_nbytes(dst: Tensor) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    _, k, v, _ = _operands(dst)
    kernel = best_kernel(dst)
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
    q, k, v = dst.src[0], dst.src[1], dst.src[2]
    if q is None or k is None or v is None:
        raise GgmlAssert("ggml_cuda_flash_attn_ext_get_alloc_size", "K != nullptr", f"{dst.name} lacks a source")
    return q, k, v, dst.src[3] if len(dst.src) > 3 else None


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
