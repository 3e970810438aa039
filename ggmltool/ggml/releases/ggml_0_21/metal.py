"""The Metal device of ggml 0.21: behind an attention there is always room for f16 copies of K and V.

From ggml 0.21.0, src/ggml-metal/ggml-metal-ops.cpp: ggml_metal_op_flash_attn_ext_extra_kv_f16, _use_kv_f16.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices.combinators import types
from ggmltool.ggml.devices.extra import Memory
from ggmltool.ggml.devices.metal import attention_room, extra_bufts, sizes
from ggmltool.ggml.devices.operands import source
from ggmltool.ggml.tensor import Tensor, nelements
from ggmltool.ggml.version import pad

_COPIED_TYPES = types("q4_0 q4_1 q5_0 q5_1 q8_0")
_COPIED_FROM = 32
_F16 = 2


def room_with_copies(t: Tensor, copies: bool) -> int:
    """The room behind FLASH_ATTN_EXT; `copies` says whether its kernel reads the f16 copies of quantized K and V.

    There is room for them in any case. A V that is the beginning of K shares the copy of K.
    """
    k, v = source(t, 1), source(t, 2)
    shared = v.view_src is not None and (v.view_src is k or (v.view_src is k.view_src and v.view_offs == k.view_offs))
    k_row, v_row = k.nb[1], v.nb[1]
    if copies and k.type in _COPIED_TYPES:
        k_row, v_row = _F16 * k.ne[0], _F16 * (k if shared else v).ne[0]
    copied = pad(_F16 * nelements(k), 16) + (0 if shared else pad(_F16 * nelements(v), 16))
    return attention_room(t, k_row, v_row) + copied


def alloc_size(_: Memory) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size."""
    return _size_of


_size_of = sizes(lambda t: room_with_copies(t, source(t, 0).ne[1] >= _COPIED_FROM))

EXTRA = extra_bufts(_size_of)
