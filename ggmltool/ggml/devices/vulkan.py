"""The Vulkan device of ggml 0.20.2: its ops and their conditions."""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import pinned
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.devices.rule_parts import (
    F32_OR_F16,
    FLOATS,
    contiguous,
    contiguous_result,
    contiguous_rows,
    every,
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
from ggmltool.ggml.op import FIRST_UNARY_KEY, N_OP_KEYS, Op
from ggmltool.ggml.tensor import MAX_SRC, Tensor, is_contiguous, is_contiguous_rows

BLOCK_SIZE = 1 << 30
"""GGML_VK_SUBALLOCATION_BLOCK_SIZE: the largest buffer in bytes, where the driver allows as much."""

MAX_TENSOR_SIZE = (1 << 32) - 1
"""maxStorageBufferRange of nearly every driver."""

_SHARED_MEMORY = 32 << 10
_WORKGROUP = 1024
_TOP_K_LEVELS = 11

_BF16 = TYPES["bf16"]
_MUL_MAT_TYPES = types(
    "f32 f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq4_xs iq4_nl mxfp4 nvfp4 tq2_0"
)
_GET_ROWS_TYPES = _MUL_MAT_TYPES | {I32}
_KV_TYPES = types("f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl")
_COPY_TYPES = types("f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl")
_SET_ROWS_TYPES = _COPY_TYPES | {F32}


def _same_half_or_full(op: Tensor) -> str | None:
    if op.type in F32_OR_F16 and source(op, 0).type is op.type:
        return None
    return "it makes no {type} of {type0}; both have to be f32, or both f16"


def _glu(op: Tensor) -> str | None:
    other = optional(op, 1)
    if other is not None and other.type is not source(op, 0).type:
        return "the sources are {type0} and {type1}, not of one type"
    return _same_half_or_full(op)


def _rows_are_dense(t: Tensor) -> bool:
    """ggml_vk_dim01_contiguous."""
    nb0, nb1, nb2, nb3 = t.nb
    dense = nb0 == t.type.type_size and nb1 == nb0 * t.ne[0] // t.type.block_size
    return dense and (t.ne[3] == 1 or nb3 == nb2 * t.ne[2])


def _mul_mat(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.type not in _MUL_MAT_TYPES:
        return "source 0 is {type0}, which it cannot multiply"
    if (a if op.op == Op.MUL_MAT else source(op, 2)).ne[3] != b.ne[3]:
        return "it repeats no source over ne[3]"
    if a.type not in FLOATS and not _rows_are_dense(a):
        return "source 0 is {type0}, and its rows have gaps"
    if b.type not in F32_OR_F16 and not _rows_are_dense(b):
        return "source 1 is {type1}, and its rows have gaps"
    return "it multiplies no bf16 by f16" if a.type is _BF16 and b.type is F16 else None


def _flash_attn(op: Tensor) -> str | None:
    k, v, mask, sinks = source(op, 1), source(op, 2), optional(op, 3), optional(op, 4)
    if k.ne[0] % 8 or v.ne[0] % 8:
        return "heads of {ne1[0]} in K and {ne2[0]} in V, no multiples of 8"
    if sinks is not None and sinks.type is not F32:
        return "the sinks are {type4}, not f32"
    if source(op, 0).type is not F32 or op.type is not F32:
        return "Q is {type0} and the result {type}, not both f32"
    if mask is not None and mask.type is not F16:
        return "the mask is {type3}, not f16"
    if k.type not in _KV_TYPES or v.type not in _KV_TYPES:
        return "no kernel for K of {type1} and V of {type2}"
    return "K is {type1} and V is {type2}: bf16 goes with bf16 only" if (k.type is _BF16) != (v.type is _BF16) else None


def _get_rows(op: Tensor) -> str | None:
    return None if source(op, 0).type in _GET_ROWS_TYPES else "source 0 is {type0}, of which it takes no rows"


def _set_rows(op: Tensor) -> str | None:
    if source(op, 0).type not in F32_OR_F16 or op.type not in _SET_ROWS_TYPES:
        return "it writes no rows of {type0} into {type}"
    return None if source(op, 1).type in (I32, I64) else "the row numbers are {type1}, neither i64 nor i32"


def _copy(op: Tensor) -> str | None:
    a = source(op, 0)
    given = optional(op, 1)
    to = a.type if given is None else given.type
    if (a.type is F32 and (to is F32 or to in _COPY_TYPES)) or (to is F32 and a.type in _COPY_TYPES):
        return None
    if (a.type is F16 and to is F16) or (a.type is F32 and to is I32) or (a.type is I32 and to is F32):
        return None
    if a.type is not to:
        return "it copies no {type0} to {type1}"
    if a.type.quantized and not (is_contiguous(a) and is_contiguous(op)):
        return "it copies {type0} only where both are contiguous"
    return "{type0} has an odd number of bytes" if a.type.type_size % 2 else None


def _repeat(op: Tensor) -> str | None:
    size = op.type.type_size
    fits = size == source(op, 0).type.type_size and size in (4, 2)
    return None if fits else "it repeats elements of 2 or 4 bytes, no {type0} to {type}"


def _rope(op: Tensor) -> str | None:
    fits = is_contiguous_rows(op) and is_contiguous_rows(source(op, 0))
    return None if fits else "rows of source 0 or of the result are not contiguous"


def _binary(op: Tensor) -> str | None:
    if op.type in F32_OR_F16 and source(op, 0).type in F32_OR_F16 and source(op, 1).type in F32_OR_F16:
        return None
    return "{type0} and {type1} to {type}: not all are f32 or f16"


def _i32(slot: int) -> OpRule:
    reason = f"source {slot} is {{type{slot}}}, not i32"

    def rule(op: Tensor) -> str | None:
        return None if source(op, slot).type is I32 else reason

    return rule


def _top_k(op: Tensor) -> str | None:
    return "it finds the first 1023 at most, not {ne[0]}" if op.ne[0].bit_length() >= _TOP_K_LEVELS else None


def _upscale(op: Tensor) -> str | None:
    mode = word(op, 0)
    antialiased = mode & 512 and mode & 255 != 1
    return "it smooths only bilinear scaling" if antialiased else None


def _set(op: Tensor) -> str | None:
    a = source(op, 0).type
    same = a is source(op, 1).type and a is op.type and a in (F32, I32)
    return None if same else "it sets no {type1} in {type0}"


def _concat(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.type is not b.type or a.type is not op.type:
        return "the types differ: {type0} and {type1} to {type}"
    if not a.type.quantized:
        return None if a.type.type_size in (1, 2, 4, 8) else "elements of {type0} are of no handy size"
    fits = all(is_contiguous_rows(t) for t in (a, b, op))
    return None if fits else "the tensors are {type0}, and rows are not contiguous"


def _add1(op: Tensor) -> str | None:
    pair = (source(op, 0).type, source(op, 1).type)
    return None if pair in ((F32, F32), (F16, F32), (F16, F16)) else "it adds no {type1} to {type0}"


def _fill(op: Tensor) -> str | None:
    return None if op.type in F32_OR_F16 else "the result is {type}, neither f32 nor f16"


def _mask(op: Tensor) -> str | None:
    mask = optional(op, 1)
    return None if mask is None or mask.type in F32_OR_F16 else "the mask is {type1}, neither f32 nor f16"


def _solve_tri(op: Tensor) -> str | None:
    n, k = source(op, 0).ne[0], source(op, 1).ne[0]
    if k > _WORKGROUP:
        return "source 1 has {ne1[0]} columns, more than a workgroup of 1024"
    return None if 4 * (n + k) <= _SHARED_MEMORY else "a matrix of {ne0[0]} does not fit into shared memory"


def _float(op: Tensor) -> str | None:
    return None if source(op, 0).type in FLOATS else "source 0 is {type0}"


def _linear_attn(op: Tensor) -> str | None:
    return None if source(op, 0).ne[0] == 64 else "heads of {ne0[0]}, not 64"


def _delta_net(op: Tensor) -> str | None:
    if source(op, 2).ne[0] not in (16, 32, 64, 128):
        return "heads of {ne2[0]}, not 16, 32, 64 or 128"
    given = [optional(op, i) for i in range(6)]
    return None if all(s is not None and s.type is F32 for s in given) else "not all sources are f32"


def _ssm_scan(op: Tensor) -> str | None:
    given = [optional(op, i) for i in range(6)]
    if any(s is not None and s.type.quantized for s in given):
        return "a source is quantized"
    ids, a, state = optional(op, 6), optional(op, 3), source(op, 0)
    if ids is not None and ids.type is not I32:
        return "the ids are {type6}, not i32"
    if a is None or a.nb[1] != 4:
        return "it is not Mamba-2: source 3 has more than one value a head"
    if state.ne[0] not in (128, 256) or state.ne[1] % 16:
        return "a state of {ne0[0]} by heads of {ne0[1]}, not 128 or 256 by a multiple of 16"
    return None


def _half_or_full_result(op: Tensor) -> str | None:
    return None if op.type in F32_OR_F16 else "the result is {type}, neither f32 nor f16"


def _conv_2d(op: Tensor) -> str | None:
    kernel = source(op, 0)
    channels = (2, 3) if op.op == Op.CONV_TRANSPOSE_2D else (3, 2)
    fits = kernel.ne[channels[0]] == op.ne[2] and kernel.ne[channels[1]] == source(op, 1).ne[2]
    return None if fits else "the kernel's channels are not those of source 1 and the result"


_F32 = f32_sources(0)
_F32_ROWS = every(_F32, contiguous_rows(0))
_F32_WHOLE = every(contiguous(0), _F32)
_MAP = every(half_or_full, same_type)
_IMAGE = every(f32_sources(1), _half_or_full_result)
_CONVOLVED = every(half_or_full, f32_sources(1), f32_result)
_ALL_WHOLE = every(contiguous(0, 1), contiguous_result)

RULES: dict[int, OpRule] = {
    Op.UNARY: _same_half_or_full,
    Op.GLU: _glu,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.FLASH_ATTN_EXT: _flash_attn,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: every(f32_result, _F32),
    Op.SET_ROWS: _set_rows,
    **dict.fromkeys(ops("CONT CPY DUP"), _copy),
    Op.REPEAT: _repeat,
    Op.REPEAT_BACK: every(f32_result, _F32),
    Op.ROPE: _rope,
    Op.GROUP_NORM: contiguous(0),
    **dict.fromkeys(ops("NORM L2_NORM"), every(_F32, f32_result)),
    **dict.fromkeys(ops("ADD SUB MUL DIV"), _binary),
    Op.ADD_ID: every(f32_sources(0, 1), _i32(2), f32_result),
    **dict.fromkeys(ops("SILU_BACK RMS_NORM_BACK OPT_STEP_ADAMW OPT_STEP_SGD SCALE DIAG_MASK_INF"), _F32_WHOLE),
    **dict.fromkeys(ops("ARGMAX POOL_1D POOL_2D"), _F32_WHOLE),
    **dict.fromkeys(ops("SQR SQRT SIN COS CLAMP LEAKY_RELU LOG TRI DIAG"), _MAP),
    Op.OUT_PROD: every(contiguous(0, 1), f32_sources(0, 1), f32_result),
    Op.ARGSORT: every(contiguous_result, contiguous(0)),
    Op.TOP_K: every(contiguous_result, contiguous(0), _top_k),
    Op.UPSCALE: every(_upscale, _F32),
    Op.ACC: every(f32_sources(0, 1), f32_result),
    Op.SET: _set,
    Op.CONCAT: _concat,
    Op.ADD1: _add1,
    Op.ARANGE: f32_result,
    Op.FILL: _fill,
    **dict.fromkeys(ops("PAD ROLL TIMESTEP_EMBEDDING SSM_CONV"), _F32),
    Op.SOFT_MAX: every(_F32_WHOLE, _mask),
    Op.SOFT_MAX_BACK: every(contiguous(0, 1), f32_sources(0, 1)),
    **dict.fromkeys(ops("SUM SUM_ROWS MEAN CUMSUM"), _F32_ROWS),
    Op.SOLVE_TRI: every(f32_result, _F32, _solve_tri),
    Op.COUNT_EQUAL: every(contiguous(0, 1), _i32(0), _i32(1)),
    Op.IM2COL: every(contiguous(1), _IMAGE),
    Op.IM2COL_3D: _IMAGE,
    Op.CONV_2D_DW: every(half_or_full, f32_sources(1)),
    Op.GATED_LINEAR_ATTN: every(_F32, f32_result, _linear_attn),
    Op.GATED_DELTA_NET: every(_delta_net, f32_result),
    Op.SSM_SCAN: every(_F32, f32_result, _ssm_scan),
    Op.CONV_TRANSPOSE_1D: f32_sources(0, 1),
    Op.COL2IM_1D: every(_float, same_type, contiguous(0), contiguous_result),
    **dict.fromkeys(ops("CONV_2D CONV_TRANSPOSE_2D"), every(_CONVOLVED, _conv_2d, _ALL_WHOLE)),
    Op.CONV_3D: every(_CONVOLVED, _ALL_WHOLE),
    **dict.fromkeys(ops("ROPE_BACK RMS_NORM RWKV_WKV6 RWKV_WKV7"), yes),
}
"""All that Vulkan runs (ggml_backend_vk_device_supports_op), with a current driver on a discrete GPU."""

KEYS: frozenset[int] = frozenset({int(op) for op in RULES} | set(range(FIRST_UNARY_KEY, N_OP_KEYS)))
RULE_KEYS: frozenset[int] = frozenset(
    {int(op) for op, rule in RULES.items() if rule is not yes} | set(range(FIRST_UNARY_KEY, N_OP_KEYS))
)

_TOO_LARGE = tuple(f"source {i} is larger than the largest buffer that a shader can see" for i in range(MAX_SRC))


def size_limits(_: BufferType, hardware: Hardware) -> OpRule:
    """A shader sees buffers up to a size; no tensor of an op may be larger."""
    limit = hardware.max_tensor_size

    def check(op: Tensor) -> str | None:
        if op.op in (Op.IM2COL, Op.IM2COL_3D):
            return None  # they get addresses, which reach all of a buffer
        for i, s in enumerate(op.src):
            if s is not None and s.nbytes > limit:
                return _TOO_LARGE[i]
        return "the result is larger than the largest buffer that a shader can see" if op.nbytes > limit else None

    return check


EXTRA = (pinned("Vulkan_Host", max_size=None, alignment=64),)
