"""The devices of ggml 0.21: those of 0.20.2, with some other sizes and rules.

From ggml 0.21.0, src: ggml-cann/ggml-cann.cpp, ggml_backend_cann_supports_op, which rotates from the first column on
only; ggml-opencl/ggml-opencl.cpp, ggml_opencl_supports_op of a GPU that is no Adreno 7xx, which has scans of Mamba-2;
ggml-metal/ggml-metal-ops.cpp, ggml_metal_op_flash_attn_ext_extra_kv_f16 and _use_kv_f16: behind an attention there is
always room for f16 copies of K and V.
"""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.devices import cann, opencl
from ggmltool.ggml.devices.combinators import all_of, among, by_op, f32, param, types
from ggmltool.ggml.devices.extra import Memory
from ggmltool.ggml.devices.metal import attention_room, extra_bufts, sizes
from ggmltool.ggml.devices.operands import RESULT, source
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import PROFILES as BEFORE
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


def _metal_size(_: Memory) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size."""
    return _size_of


_size_of = sizes(lambda t: room_with_copies(t, source(t, 0).ne[1] >= _COPIED_FROM))

_ROPE = all_of(param(15, (0,), "it rotates from the first column on only"), cann.RULES[Op.ROPE])

_SSM_SCAN = all_of(
    f32(0, 1, 2, 3, 4, 5, RESULT),
    among(3, "ne0", 1),
    among(0, "ne0", 128, 256),
    param(0, (1,), "it keeps no snapshots of the state"),
)

OPENCL = opencl.RULES | by_op({"SSM_SCAN": _SSM_SCAN})
"""All that OpenCL runs."""

_CHANGED: dict[str, Profile] = {
    "Metal": replace(BEFORE["Metal"], alloc_size=_metal_size, extra=extra_bufts(_size_of)),
    "OpenCL": replace(BEFORE["OpenCL"], rules=OPENCL),
    "CANN": replace(BEFORE["CANN"], rules=cann.RULES | by_op({"ROPE": _ROPE})),
}

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.21") for name, profile in (BEFORE | _CHANGED).items()}
"""The profiles by name."""
