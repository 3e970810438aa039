"""The Metal device of ggml 0.20.2: its ops and their conditions, what its tensors take, and which ops it asks for."""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.devices.extra import ExtraBuft, Memory
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.devices.rule_parts import (
    F32_OR_F16,
    FLOATS,
    contiguous,
    contiguous_result,
    contiguous_rows,
    every,
    expressed,
    f32_result,
    f32_sources,
    half_or_full,
    ops,
    optional,
    same_type,
    source,
    types,
    word,
    yes,
)
from ggmltool.ggml.dtypes import F16, F32, I32, I64, TYPES
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, Op
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous_1, nelements
from ggmltool.ggml.version import pad

FAMILY = "Metal"

FEATURES = ("bfloat", "simdgroup_mm", "simdgroup_reduction")
"""What Apple's own GPUs have from the M1 on; bfloat needs Metal 3."""

_BF16 = TYPES["bf16"]
_NVFP4 = TYPES["nvfp4"]

_HEAD_SIZES = frozenset((32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576))
_KV_TYPES = types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1")
_CONCAT_TYPES = types("f32 f16 bf16 i8 i16 i32 i64")
_TO_FLOAT = types("f32 f16")
_COPIES = {
    F32: types("f32 f16 bf16 q8_0 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 iq4_nl tq2_0 i32"),
    F16: _TO_FLOAT,
    _BF16: types("f32 bf16"),
    I32: types("f32 i32"),
} | dict.fromkeys(types("q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 tq2_0"), _TO_FLOAT)
_SET_ROWS = {F16: types("f16"), F32: types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl tq2_0")}


@expressed(0, contiguous="from 1")
def _glu(op: Tensor) -> str | None:
    return None if is_contiguous_1(source(op, 0)) else "source 0 is not contiguous from dimension 1 on"


def _concat(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.type is not b.type or a.type is not op.type:
        return "the types differ: {type0} and {type1} to {type}"
    return None if a.type in _CONCAT_TYPES else "it joins no {type0}"


@expressed(same_type=(0, 1))
def _binary(op: Tensor) -> str | None:
    return None if source(op, 0).type is source(op, 1).type else "the sources are {type0} and {type1}, not of one type"


@expressed(0, types=F32_OR_F16)
def _half_or_full_kernel(op: Tensor) -> str | None:
    return None if source(op, 0).type in F32_OR_F16 else "the kernel is {type0}, neither f32 nor f16"


@expressed(RESULT, types=F32_OR_F16)
def _half_or_full_result(op: Tensor) -> str | None:
    return None if op.type in F32_OR_F16 else "the result is {type}, neither f32 nor f16"


@expressed(0, types=FLOATS)
def _float(op: Tensor) -> str | None:
    return None if source(op, 0).type in FLOATS else "source 0 is {type0}"


@expressed(same_shape=(0, 1))
def _same_shapes(op: Tensor) -> str | None:
    return None if are_same_shape(source(op, 0), source(op, 1)) else "the sources differ in shape"


def _count_equal(op: Tensor) -> str | None:
    both = source(op, 0).type is I32 and source(op, 1).type is I32
    return None if both and op.type is I64 else "it counts i32 in i64, not {type0} and {type1} in {type}"


def _pad(op: Tensor) -> str | None:
    if word(op, 8):
        return "it pads with zeros, not in a circle"
    return "it pads at the end only" if any(word(op, i) for i in (0, 2, 4, 6)) else None


def _flash_attn(op: Tensor) -> str | None:
    if source(op, 0).ne[0] not in _HEAD_SIZES:
        return "no kernel for heads of {ne0[0]}"
    k = source(op, 1).type
    if k is not source(op, 2).type:
        return "K is {type1} and V is {type2}"
    return None if k in _KV_TYPES else "no kernel for K and V of {type1}"


def _lightning_indexer(op: Tensor) -> str | None:
    q = source(op, 0)
    if q.ne[0] != 128 or q.ne[1] != 64:
        return "source 0 has {ne0[1]} heads of {ne0[0]}, not 64 of 128"
    if source(op, 3).type is not F16:
        return "source 3 is {type3}, not f16"
    return None if source(op, 1).type in _KV_TYPES else "the keys are {type1}"


def _hc_comb(op: Tensor) -> str | None:
    fits = source(op, 0).ne[0] == 24 and source(op, 1).ne[0] >= 3 and source(op, 2).ne[0] == 24
    return None if fits else "there are not 4 hyper-connections"


def _hc_pre(op: Tensor) -> str | None:
    return None if source(op, 0).ne[1] == 4 and source(op, 1).ne[0] == 4 else "there are not 4 hyper-connections"


def _hc_post(op: Tensor) -> str | None:
    residual, post, comb = source(op, 1), source(op, 2), source(op, 3)
    fits = residual.ne[1] == 4 and post.ne[0] == 4 and comb.ne[0] == 4 and comb.ne[1] == 4
    return None if fits else "there are not 4 hyper-connections"


def _delta_net(op: Tensor) -> str | None:
    return "ne[0] of source 2 is {ne2[0]}, no multiple of 32" if source(op, 2).ne[0] % 32 else None


@expressed(0, types=frozenset(TYPES.values()) - {_NVFP4})
def _not_nvfp4(op: Tensor) -> str | None:
    return "source 0 is {type0}" if source(op, 0).type is _NVFP4 else None


def _copy(op: Tensor) -> str | None:
    return None if op.type in _COPIES.get(source(op, 0).type, ()) else "it copies no {type0} to {type}"


def _set_rows(op: Tensor) -> str | None:
    return None if op.type in _SET_ROWS.get(source(op, 0).type, ()) else "it writes no rows of {type0} into {type}"


_ROWS = contiguous_rows(0)
_MAP = every(_ROWS, half_or_full)
_BINARY = every(contiguous_rows(0, 1), half_or_full, _binary)
_COLUMN_F32 = f32_sources(0)

RULES: dict[int, OpRule] = {
    **dict.fromkeys(ops("SCALE FILL CLAMP SQR SQRT SIN COS LOG UNARY"), _MAP),
    Op.SILU_BACK: every(f32_sources(0, 1), f32_result, contiguous(0, 1), contiguous_result, _same_shapes),
    Op.GLU: every(_glu, half_or_full),
    Op.CONCAT: _concat,
    **dict.fromkeys(ops("ADD SUB MUL DIV ADD_ID"), _BINARY),
    Op.ACC: every(contiguous_rows(0, 1), _COLUMN_F32),
    Op.CONV_TRANSPOSE_2D: every(contiguous(0, 1), _half_or_full_kernel, f32_sources(1), f32_result),
    Op.COL2IM_1D: every(_float, same_type, contiguous(0), contiguous_result),
    Op.CONV_3D: every(contiguous(0, 1), _half_or_full_kernel, f32_sources(1)),
    Op.SUM: contiguous(0),
    **dict.fromkeys(ops("TRI SUM_ROWS CUMSUM MEAN SOFT_MAX GROUP_NORM L2_NORM NORM RMS_NORM"), _ROWS),
    Op.COUNT_EQUAL: _count_equal,
    Op.IM2COL: every(contiguous(1), f32_sources(1), _half_or_full_result),
    Op.CONV_2D: every(contiguous(0), f32_sources(1), f32_result, _half_or_full_kernel),
    Op.CONV_2D_DW: every(f32_sources(1), f32_result, _half_or_full_kernel),
    **dict.fromkeys(ops("UPSCALE POOL_2D PAD_REFLECT_1D TIMESTEP_EMBEDDING"), _COLUMN_F32),
    Op.POOL_1D: every(contiguous(0), _COLUMN_F32),
    Op.PAD: _pad,
    Op.LEAKY_RELU: half_or_full,
    Op.ROLL: contiguous(0),
    Op.FLASH_ATTN_EXT: _flash_attn,
    Op.LIGHTNING_INDEXER: every(_lightning_indexer, f32_sources(0, 2), f32_result, contiguous_rows(0, 1, 2, 3)),
    Op.DSV4_HC_COMB: every(f32_sources(0, 1, 2), f32_result, _hc_comb, contiguous_rows(0, 1, 2)),
    Op.DSV4_HC_PRE: every(f32_sources(0, 1), f32_result, _hc_pre, contiguous_rows(0, 1)),
    Op.DSV4_HC_POST: every(f32_sources(0, 1, 2, 3), f32_result, _hc_post, contiguous_rows(0, 1, 2, 3)),
    Op.GATED_DELTA_NET: _delta_net,
    **dict.fromkeys(ops("SOLVE_TRI MUL_MAT MUL_MAT_ID GET_ROWS"), _not_nvfp4),
    **dict.fromkeys(ops("SET CPY DUP CONT"), _copy),
    Op.SET_ROWS: _set_rows,
    **dict.fromkeys(
        ops(
            "REPEAT CONV_TRANSPOSE_1D ARGMAX ROPE ROPE_BACK ARGSORT TOP_K ARANGE SSM_SCAN SSM_CONV RWKV_WKV6 RWKV_WKV7 "
            "DIAG OPT_STEP_ADAMW OPT_STEP_SGD"
        ),
        yes,
    ),
}
"""All that Metal runs (ggml_metal_device_supports_op), on hardware that has every feature."""

KEYS: frozenset[int] = frozenset({int(op) for op in RULES} | set(range(FIRST_UNARY_KEY, N_OP_KEYS)))
RULE_KEYS: frozenset[int] = frozenset(
    {int(op) for op, rule in RULES.items() if rule is not yes}
    | set(range(FIRST_UNARY_KEY, FIRST_GLU_KEY))
    | set(range(FIRST_GLU_KEY, N_OP_KEYS))
)

_NEEDS_REDUCTION = ops(
    "SUM SUM_ROWS CUMSUM MEAN SOFT_MAX GROUP_NORM L2_NORM COUNT_EQUAL ARGMAX NORM RMS_NORM DSV4_HC_COMB DSV4_HC_PRE "
    "DSV4_HC_POST SSM_SCAN SSM_CONV GATED_DELTA_NET SOLVE_TRI MUL_MAT MUL_MAT_ID OPT_STEP_ADAMW OPT_STEP_SGD"
)
_NEEDS_MATRICES = ops("FLASH_ATTN_EXT LIGHTNING_INDEXER")


def hardware_limits(_: BufferType, hardware: Hardware) -> OpRule | None:
    """What a GPU without one of the features refuses; None for one that has them all."""
    missing = frozenset(FEATURES) - hardware.features
    if not missing:
        return None

    def check(op: Tensor) -> str | None:
        if "bfloat" in missing:
            if op.type is _BF16:
                return "the result is bf16, which this GPU has not"
            if any(s is not None and s.type is _BF16 for s in op.src[:3]):
                return "a source is bf16, which this GPU has not"
        if "simdgroup_reduction" in missing and op.op in _NEEDS_REDUCTION:
            return "this GPU cannot reduce over a simdgroup, which {op} needs"
        if "simdgroup_mm" in missing and op.op in _NEEDS_MATRICES:
            return "this GPU has no matrices of a simdgroup, which {op} needs"
        return None

    return check


def batch_size(op: Tensor) -> int:
    """The batch size Metal looks at before it asks for an op: it asks for products only (-1: never)."""
    if op.op == Op.MUL_MAT:
        return op.ne[1]
    return op.ne[2] if op.op == Op.MUL_MAT_ID else -1


_PADDED_KEYS = 64
_WORKGROUPS = 32
_MAX_ROWS = 32
_VEC_MAX_ROWS = 20


def alloc_size(_: Memory) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size: room behind some results for what their kernels leave there."""
    return _size_of


_TAKES_MORE = ops("MUL_MAT_ID FLASH_ATTN_EXT CUMSUM ARGSORT TOP_K")


def _size_of(t: Tensor) -> int:
    if t.op not in _TAKES_MORE:
        return t.nbytes
    if t.op == Op.MUL_MAT_ID:
        experts, tokens = source(t, 0).ne[2], source(t, 2).ne[1]
        return t.nbytes + 4 * experts + 4 * experts * tokens
    if t.op == Op.FLASH_ATTN_EXT:
        return t.nbytes + _flash_attn_extra(t)
    return 8 * nelements(source(t, 0)) if t.op == Op.TOP_K else 2 * t.nbytes


def _flash_attn_extra(t: Tensor) -> int:
    """Room for padded keys and values, for the blocks of the mask, and for the results of workgroups."""
    q, k, v, mask = source(t, 0), source(t, 1), source(t, 2), optional(t, 3)
    padded = k.nb[1] * k.ne[2] * k.ne[3] + v.nb[1] * v.ne[2] * v.ne[3]
    blocks = 0
    if mask is not None:
        padded += 2 * mask.ne[1] * mask.ne[2] * mask.ne[3]
        rows, keys = (1, 32) if q.ne[1] < _VEC_MAX_ROWS and q.ne[0] % 32 == 0 else (8, 64)
        blocks = pad(-(-mask.ne[0] // keys) * -(-q.ne[1] // rows) * mask.ne[2] * mask.ne[3], 32)
    results = min(q.ne[1], _MAX_ROWS) * q.ne[2] * q.ne[3] * _WORKGROUPS * (v.ne[0] + 2)
    return _PADDED_KEYS * padded + blocks + 4 * results


EXTRA = (
    ExtraBuft(
        "{device}_Private", FAMILY, max_size=None, alignment=None, alloc_size=_size_of, alloc_more="as the device's own"
    ),
    ExtraBuft(
        "{device}_Mapped", FAMILY, max_size=None, alignment=None, alloc_size=_size_of, alloc_more="as the device's own"
    ),
)
"""Memory that only the GPU sees, and memory of the host (a mapped model file) that it takes over."""
