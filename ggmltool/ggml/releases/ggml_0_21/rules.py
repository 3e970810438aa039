"""What devices of ggml 0.21 do otherwise: Metal has room for f16 copies of K and V behind any attention, OpenCL has
scans of Mamba-2, CANN rotates from the first column on only.

From ggml 0.21.0: ggml_metal_op_flash_attn_ext_extra_kv_f16, _use_kv_f16 (src/ggml-metal/ggml-metal-ops.cpp),
ggml_opencl_supports_op (src/ggml-opencl/ggml-opencl.cpp) of a GPU that is no Adreno 7xx,
ggml_backend_cann_supports_op (src/ggml-cann/ggml-cann.cpp).
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import cann, opencl
from ggmltool.ggml.devices.combinators import Rule, all_of, among, by_op, f32, param, types
from ggmltool.ggml.devices.conditions import RESULT, source
from ggmltool.ggml.devices.metal import attention_room, extra_bufts, sizes
from ggmltool.ggml.devices.profile import SizeFacts
from ggmltool.ggml.op import Op
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


def metal_alloc_size(_: SizeFacts) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size."""
    return _size_of


_size_of = sizes(lambda t: room_with_copies(t, source(t, 0).ne[1] >= _COPIED_FROM))

METAL_EXTRA = extra_bufts(_size_of)


OPENCL_RULES: dict[int, Rule] = opencl.RULES | by_op(
    {
        "SSM_SCAN": all_of(
            f32(0, 1, 2, 3, 4, 5, RESULT),
            among(3, "ne0", 1),
            among(0, "ne0", 128, 256),
            param(0, (1,), "it keeps no snapshots of the state"),
        ),
    }
)
"""All that OpenCL runs."""


_FROM_THE_FIRST = param(15, (0,), "it rotates from the first column on only")

CANN_RULES: dict[int, Rule] = cann.RULES | by_op({"ROPE": all_of(_FROM_THE_FIRST, cann.RULES[Op.ROPE])})
"""All that CANN runs."""
