"""The Metal device of ggml 0.26: more ops, attention by pairs of head sizes, products by the kernels that there are.

From ggml 0.26.0, src/ggml-metal: ggml_metal_device_supports_op (ggml-metal-device.m), ggml_metal_op_mul_mat_use_mm,
ggml_metal_op_mul_mat_use_fwht (ggml-metal-common.cpp), ggml_metal_op_flash_attn_ext_extra_idx and
ggml_metal_op_mul_mat_id_extra_amax (ggml-metal-ops.cpp).
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import metal as before
from ggmltool.ggml.devices.conditions import RESULT, optional, source, word
from ggmltool.ggml.devices.op_rules import NO_KERNEL
from ggmltool.ggml.devices.profile import Hardware, SizeFacts
from ggmltool.ggml.dtypes import BF16, F16
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_21.rules import room_with_copies
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import pad

_LARGER_KEYS = frozenset(((96, 64), (128, 96), (192, 128), (320, 256), (576, 512)))
"""Head sizes of K and V that differ."""

_NOT_MULTIPLIED = r.types("nvfp4 tq1_0")

_IS_HADAMARD = 1
_HADAMARD = r.all_of(
    r.param(1, (_IS_HADAMARD,), "source 0 is not known to be a Hadamard matrix"),
    r.f32(0, RESULT),
    r.contiguous(1, RESULT),
    r.same_shape(1, RESULT),
    r.among(1, "ne0", 64, 128, 256, 512, 1024, 2048, 4096, 8192),
)
"""A product that is a fast Walsh-Hadamard transform."""


def _not_transposed(i: int) -> r.Rule:
    return r.on(i, f"source {i} is transposed", lambda t: t.nb[0] <= t.nb[1])


_LONG_ROWS = r.at_least(0, "ne0", 64)
_BY_MATRICES = r.all_of(_not_transposed(0), _not_transposed(1), _LONG_ROWS, r.at_least(1, "ne1", 9))
_EXPERTS_BY_MATRICES = r.all_of(_LONG_ROWS, r.at_least(2, "ne1", 32))
_NOT_BY_F16 = r.not_types(1, F16)


def _by_f16(rule: r.Rule) -> r.Rule:
    """Weights that are multiplied by all types but f16, and by f16 where the rule holds."""
    return r.all_of(
        r.not_types(0, _NOT_MULTIPLIED, NO_KERNEL), r.unless(_NOT_BY_F16, r.all_of(r.not_types(0, BF16), rule))
    )


RULES: dict[int, r.Rule] = before.RULES | r.by_op(
    {
        "CONCAT": r.all_of(
            r.same_type(0, 1, RESULT),
            r.types_of(0, r.types("f32 f16 bf16 i8 i16 i32 i64 q4_0 q4_1 q5_0 q5_1 q8_0"), NO_KERNEL),
        ),
        "PAD SOLVE_TRI": r.f32(0),
        "FLASH_ATTN_EXT": r.all_of(
            r.between(
                1,
                2,
                "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V",
                lambda k, v: k.ne[0] == v.ne[0] or (k.ne[0], v.ne[0]) in _LARGER_KEYS,
            ),
            before.RULES[Op.FLASH_ATTN_EXT],
        ),
        "LIGHTNING_INDEXER": r.all_of(
            r.among(0, "ne0", 128),
            r.types_of(3, F16),
            r.types_of(1, before.KV_TYPES, NO_KERNEL),
            r.f32(0, 2, RESULT),
            r.contiguous_rows(0, 1, 2, 3),
        ),
        "DSV4_HC_PRE": r.all_of(r.f32(0, 1, RESULT), r.contiguous_rows(0, 1)),
        "MUL_MAT": r.any_of(_by_f16(r.any_of(r.types_of(0, F16), _BY_MATRICES)), _HADAMARD),
        "MUL_MAT_ID": _by_f16(_EXPERTS_BY_MATRICES),
        "GET_ROWS": r.not_types(0, _NOT_MULTIPLIED, NO_KERNEL),
    }
)
"""All that Metal runs, on hardware that has every feature."""


def _is_by_f16(op: Tensor) -> bool:
    """Whether an op multiplies by f16 what only matrices of a simdgroup can."""
    if op.op not in (Op.MUL_MAT, Op.MUL_MAT_ID) or source(op, 1).type is not F16:
        return False
    return op.op == Op.MUL_MAT_ID or (source(op, 0).type is not F16 and _HADAMARD.ask(op) is not None)


_WITHOUT = before.WITHOUT | {
    "simdgroup_mm": r.all_of(
        before.WITHOUT["simdgroup_mm"],
        r.holds(
            "this GPU has no matrices of a simdgroup, which {op} of {type0} by f16 needs", lambda op: not _is_by_f16(op)
        ),
    )
}


def hardware_limits(_: BufferType, hardware: Hardware) -> OpRule | None:
    """What a GPU that lacks features asks of every op; None for one that has them all."""
    return before.without(hardware, _WITHOUT)


_COPIED_FROM = 32
_LARGE_HEAD = 512
_MAX_LISTED = 4096
_LISTED_HEADS = _LARGER_KEYS | {(size, size) for size in (32, 64, 96, 128, 192, 256, 512)}
_SCALES = 8 + 4 * 256
"""Behind MUL_MAT_ID: two factors, and the largest value that each threadgroup has seen (N_MM_NPART_AMAX)."""


def alloc_size(_: SizeFacts) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size."""
    return _size_of


def _attention_room(t: Tensor) -> int:
    q = source(t, 0)
    large = q.ne[0] >= _LARGE_HEAD and not before.takes_vectors(t)
    return room_with_copies(t, q.ne[1] >= _COPIED_FROM or large) + _lists_of_keys(t)


def _lists_of_keys(t: Tensor) -> int:
    """Where the graph says how many keys a mask leaves at most (n_kv_max): their numbers, for each row of the mask."""
    mask, most = optional(t, 3), word(t, 4)
    k, v = source(t, 1), source(t, 2)
    if mask is None or not 0 < most <= _MAX_LISTED:
        return 0
    if (k.ne[0], v.ne[0]) not in _LISTED_HEADS or k.type not in before.KV_TYPES:
        return 0
    return pad(4 * pad(most, 32) * mask.ne[1] * mask.ne[2] * mask.ne[3], 16)


_size_of = before.sizes(_attention_room, _SCALES)

EXTRA = before.extra_bufts(_size_of)
