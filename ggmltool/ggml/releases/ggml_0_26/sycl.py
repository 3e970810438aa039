"""The SYCL device of ggml 0.26: attention asks for its scratch memory behind the result, and oneDNN can be said to be
there.

From ggml 0.26.0, src/ggml-sycl: ggml_backend_sycl_device_supports_op (ggml-sycl.cpp), ggml_sycl_get_best_fattn_kernel,
ggml_sycl_fattn_get_extra (fattn.cpp), ggml_sycl_flash_attn_ext_onednn_supported (fattn-onednn.cpp).
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices import sycl as before
from ggmltool.ggml.devices.conditions import RESULT, optional, source, word
from ggmltool.ggml.devices.profile import Features, Hardware, SizeFacts
from ggmltool.ggml.dtypes import F16, I32
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, nelements
from ggmltool.ggml.version import pad

FEATURES = ("onednn",)
"""What a build and its GPU may have: attention by oneDNN (but for head size 64 on an Alchemist)."""

_TERNARY = r.types("tq1_0 tq2_0")
_COPIES = {type: to - _TERNARY for type, to in before.COPIES.items() if type not in _TERNARY}

_MLA = (576, 576, 512)
_MLA_QUERIES_PER_KEY = 20


def _mkl_takes(op: Tensor) -> bool:
    """Whether prompts of this shape go through MKL: also those of latent attention as GLM-4.7 Flash has it."""
    if not before.is_prompt_for_mkl(op):
        return False
    q, k, v = source(op, 0), source(op, 1), source(op, 2)
    if 64 <= q.ne[0] <= 512 and q.ne[0] % 64 == 0 and q.ne[0] == v.ne[0]:
        return before.has_whole_rows(k) and before.has_whole_rows(v)
    if (q.ne[0], k.ne[0], v.ne[0]) != _MLA or k.type is not F16 or v.type is not F16:
        return False
    if o.queries_per_key(op, "ggml_sycl_get_best_fattn_kernel") != _MLA_QUERIES_PER_KEY:
        return False
    like_keys = v.view_src is not None and v.nb[1] == k.nb[1]
    return before.has_whole_rows(k) and (like_keys or before.has_whole_rows(v))


_FIRST_PROMPT = 32
_FIRST_QUANTIZED = 1024
_STAGED = r.types("f32 q4_0 q4_1 q5_0 q5_1 q8_0")


def _onednn_has_kernel(op: Tensor) -> bool:
    """ggml_sycl_flash_attn_ext_onednn_supported for a prompt of any length."""
    q, k, v, mask = source(op, 0), source(op, 1), source(op, 2), optional(op, 3)
    if not (k.type is F16 and v.type is F16) and not (k.type in _STAGED and v.type in _STAGED):
        return False
    if mask is None or mask.type is not F16 or mask.ne[2:] != (1, 1) or optional(op, 4) is not None:
        return False
    if not o.has_no_alibi(op) or word(op, 2) not in o.ZERO:
        return False
    return v.ne[0] == k.ne[0] and q.ne[3] == 1 and k.ne[2] != 0 and q.ne[2] % k.ne[2] == 0


def _onednn_takes(op: Tensor) -> bool:
    queries, k = source(op, 0).ne[1], source(op, 1)
    if queries < _FIRST_PROMPT or (k.type is not F16 and k.ne[1] < _FIRST_QUANTIZED):
        return False
    return _onednn_has_kernel(op)


_ATTENTION = before.attention(_mkl_takes)

RULES: dict[int, r.Rule] = before.RULES | r.by_op(
    {
        "MUL_MAT MUL_MAT_ID": r.all_of(before.RULES[Op.MUL_MAT], r.not_types(0, _TERNARY, o.NO_KERNEL)),
        "GET_ROWS_BACK": r.all_of(
            r.f32(RESULT), r.f32_or_f16(0), r.types_of(1, I32), r.among(RESULT, "ne2", 1), r.among(RESULT, "ne3", 1)
        ),
        "SET_ROWS": r.all_of(before.RULES[Op.SET_ROWS], r.not_types(RESULT, _TERNARY, o.NO_KERNEL)),
        "CPY": o.copies(_COPIES, to=1),
        "TOP_K": r.all_of(
            r.types_of(RESULT, I32),
            r.at_least(RESULT, "ne0", 1),
            r.between(RESULT, 0, "the result has {ne[0]} of {ne0[0]} in a row", lambda op, src: op.ne[0] <= src.ne[0]),
            r.f32(0),
            r.contiguous(0),
        ),
        "FLASH_ATTN_EXT": r.any_of(_ATTENTION, r.holds("it is no prompt for oneDNN", _onednn_takes)),
    }
)
"""All that SYCL runs, with every feature."""


def hardware_limits(_: BufferType, hardware: Hardware) -> OpRule | None:
    """What a GPU or a build without oneDNN asks of every op; None for one that has it."""
    if "onednn" in hardware.features:
        return None
    ask = _ATTENTION.ask
    return lambda op: ask(op) if op.op == Op.FLASH_ATTN_EXT else None


_ALIGNMENT = 128
_F16 = 2


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_sycl_buffer_type_get_alloc_size: rows padded, and the most that any kernel of an attention needs."""
    return o.padded_size(memory, _attention_nbytes)


def _attention_nbytes(t: Tensor, has: Features) -> int:
    """ggml_sycl_flash_attn_ext_get_alloc_size: the result, and behind it f16 copies, each of them aligned."""
    q, k, v = source(t, 0), source(t, 1), source(t, 2)
    by_onednn = "onednn" in has and _onednn_has_kernel(t)
    staged = by_onednn and not (_is_bound_in_place(k) and _is_bound_in_place(v))
    k_copy = nelements(k) if staged or k.type is not F16 else 0
    v_copy = nelements(v) if staged or v.type is not F16 else 0
    q_copy = q.ne[2] * q.ne[1] * k.ne[0] if by_onednn else 0
    size = t.nbytes
    for elements in (
        q_copy,
        k_copy,
        0 if o.is_view_of_keys(k, v) and not by_onednn else v_copy,
        int(by_onednn),
        q_copy,
    ):
        if elements:
            size = pad(size, _ALIGNMENT) + _F16 * elements
    return size


def _is_bound_in_place(t: Tensor) -> bool:
    return t.type is F16 and t.nb[0] == _F16 and all(stride % _F16 == 0 for stride in t.nb[1:])
