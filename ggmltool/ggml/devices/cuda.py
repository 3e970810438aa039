"""The CUDA device of ggml 0.20.2 on Ampere and later: its ops and their conditions, and what its tensors take."""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.cuda_fattn import flash_attn_nbytes, flash_attn_refusal
from ggmltool.ggml.devices.extra import Memory, pinned
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import F16, F32, I16, I32, I64, TYPES, DType
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, Op
from ggmltool.ggml.tensor import (
    MAX_SRC,
    Tensor,
    is_contiguous,
    is_contiguous_1,
    is_contiguous_2,
    is_contiguous_rows,
    is_contiguous_to,
)

ROW_PADDING = 512
"""MATRIX_ROW_PADDING: elements that rows of quantized tensors are padded to."""

FAMILIES = frozenset(("CUDA", "ROCm"))
"""The memory of devices of this kind."""

FEATURES = ("turing", "ada")
AMD_FEATURES = ("wmma", "mfma")
"""What decides which attention kernel there is; see `cuda_fattn.best_kernel`."""

NEVER: frozenset[int] = frozenset(
    int(op)
    for op in (
        Op.DIAG_MASK_ZERO,
        Op.IM2COL_BACK,
        Op.CONV_3D,
        Op.POOL_1D,
        Op.POOL_2D_BACK,
        Op.FLASH_ATTN_BACK,
        Op.WIN_PART,
        Op.WIN_UNPART,
        Op.GET_REL_POS,
        Op.ADD_REL_POS,
        Op.MAP_CUSTOM1,
        Op.MAP_CUSTOM2,
        Op.MAP_CUSTOM3,
        Op.CUSTOM,
    )
)
"""Ops that CUDA never runs."""


def _types(names: str) -> frozenset[DType]:
    return frozenset(TYPES[name] for name in names.split())


_MUL_MAT_TYPES = _types(
    "f32 f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 nvfp4 q2_K q3_K q4_K q5_K q6_K q8_K iq1_s iq1_m "
    "iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs"
)
_GET_ROWS_TYPES = _types(
    "f32 f16 bf16 i32 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq1_s iq1_m iq4_xs"
)
_GET_ROWS_SUPER_BLOCK_TYPES = _types("iq4_nl mxfp4")
_SET_ROWS_TYPES = _types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl")
_FLOATS = _types("f32 f16 bf16")
_HALF_OR_FULL = _types("f32 f16")
_COPIES = (
    {(F32, TYPES[n]) for n in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "i32")}
    | {(TYPES[n], F32) for n in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "i32")}
    | {(I32, I32)}
)
_SUPER_BLOCK = 256


def src(op: Tensor, i: int) -> Tensor:
    t = op.src[i] if i < len(op.src) else None
    return t if t is not None else op


NOT_CONTIGUOUS = ("source 0 is not contiguous", "source 1 is not contiguous")
_GAPS = ("rows of source 0 have gaps (nb[0] = {nb0[0]})", "rows of source 1 have gaps (nb[0] = {nb1[0]})")


def _unary(op: Tensor) -> str | None:
    return None if is_contiguous(src(op, 0)) else NOT_CONTIGUOUS[0]


def _glu(op: Tensor) -> str | None:
    return None if is_contiguous_1(src(op, 0)) else "source 0 is not contiguous from dimension 1 on"


def _mul_mat(op: Tensor) -> str | None:
    a, b = src(op, 0), src(op, 1)
    if a.nb[0] != a.type.type_size:
        return _GAPS[0]
    if b.nb[0] != b.type.type_size:
        return _GAPS[1]
    if b.type is F16 and a.type is not F16:
        return "source 1 is f16, and source 0 is {type0}, not f16 too"
    return None if a.type in _MUL_MAT_TYPES else "source 0 is {type0}, which it cannot multiply"


def _all_f32(op: Tensor) -> str | None:
    if op.type is not F32:
        return "the result is {type}, not f32"
    return None if all(s.type is F32 for s in op.src if s is not None) else "not all sources are f32"


def _get_rows(op: Tensor) -> str | None:
    a = src(op, 0)
    if a.type in _GET_ROWS_TYPES:
        return None
    if a.type not in _GET_ROWS_SUPER_BLOCK_TYPES:
        return "source 0 is {type0}, of which it takes no rows"
    return "rows of {type0} are {ne0[0]} long, no multiple of 256" if a.ne[0] % _SUPER_BLOCK else None


def _get_rows_back(op: Tensor) -> str | None:
    if op.type is not F32 or src(op, 0).type is not F32:
        return "source 0 is {type0} and the result {type}, not both f32"
    return None if op.ne[2] == 1 and op.ne[3] == 1 else "the result has more than two dimensions"


def _set_rows(op: Tensor) -> str | None:
    values, idx = src(op, 0), src(op, 1)
    fits = (values.type is F32 and op.type in _SET_ROWS_TYPES) or (values.type is F16 and op.type is F16)
    if not fits:
        return "it writes no rows of {type0} into {type}"
    return None if idx.type in (I64, I32) else "the row numbers are {type1}, neither i64 nor i32"


def _set(op: Tensor) -> str | None:
    if op.type not in (F32, I32):
        return "the result is {type}, neither f32 nor i32"
    same = src(op, 0).type is op.type and src(op, 1).type is op.type
    return None if same else "it sets no {type1} in {type0}"


def _cpy(op: Tensor) -> str | None:
    a, b = src(op, 0), src(op, 1)
    if (a.type in _FLOATS and b.type in _FLOATS) or (a.type, b.type) in _COPIES:
        return None
    if a.type is not b.type:
        return "it copies no {type0} to {type1}"
    return None if is_contiguous(a) and is_contiguous(b) else "it copies {type0} only where both are contiguous"


def _dup(op: Tensor) -> str | None:
    return "source 0 is {type0}" if src(op, 0).type in (I32, I16) else None


def _repeat(op: Tensor) -> str | None:
    return None if src(op, 0).type in _HALF_OR_FULL else "source 0 is {type0}, neither f32 nor f16"


def _repeat_back(op: Tensor) -> str | None:
    a = src(op, 0)
    if op.type is not F32:
        return "the result is {type}, not f32"
    return None if a.ne[2] * a.ne[3] <= 1 << 15 else "ne[2] * ne[3] of source 0 is more than 32768"


def _concat(op: Tensor) -> str | None:
    a, b = src(op, 0), src(op, 1)
    if a.type is not b.type or a.type is not op.type:
        return "the types differ: {type0} and {type1} to {type}"
    if not a.type.quantized:
        return None
    dim = op.op_params[0] if op.op_params else 0
    n = 4 if dim == 3 else 3
    if not (is_contiguous_to(a, n) and is_contiguous_to(b, n)):
        return "the sources are {type0} and not contiguous"
    block = a.type.block_size
    return None if a.ne[0] % block == 0 and b.ne[0] % block == 0 else "rows of {type0} are not whole blocks"


def _conv_transpose_1d(op: Tensor) -> str | None:
    both = src(op, 0).type is F32 and src(op, 1).type is F32
    return None if both else "the sources are {type0} and {type1}, not both f32"


def _col2im_1d(op: Tensor) -> str | None:
    a = src(op, 0)
    if a.type not in _FLOATS or op.type is not a.type:
        return "it makes no {type} of {type0}"
    return None if is_contiguous(a) and is_contiguous(op) else "source 0 or the result is not contiguous"


def _f32_contiguous(op: Tensor) -> str | None:
    if src(op, 0).type is not F32:
        return "source 0 is {type0}, not f32"
    return None if is_contiguous(src(op, 0)) else NOT_CONTIGUOUS[0]


def _rows(op: Tensor) -> str | None:
    return None if is_contiguous_rows(src(op, 0)) else "rows of source 0 are not contiguous"


def _contiguous(op: Tensor) -> str | None:
    return None if is_contiguous(src(op, 0)) else NOT_CONTIGUOUS[0]


def _both_contiguous(op: Tensor) -> str | None:
    if not is_contiguous(src(op, 0)):
        return NOT_CONTIGUOUS[0]
    return None if is_contiguous(src(op, 1)) else NOT_CONTIGUOUS[1]


def _binary(op: Tensor) -> str | None:
    if op.type in _HALF_OR_FULL and src(op, 0).type in _HALF_OR_FULL and src(op, 1).type in _HALF_OR_FULL:
        return None
    return "{type0} and {type1} to {type}: not all are f32 or f16"


def _ssm_scan(op: Tensor) -> str | None:
    s = src(op, 0)
    if src(op, 3).ne[0] == 1:
        fits = s.ne[0] in (128, 256) and s.ne[1] % 16 == 0
        return None if fits else "Mamba-2: a state of {ne0[0]} by heads of {ne0[1]}, not 128 or 256 by a multiple of 16"
    if len(op.op_params) > 0 and op.op_params[0] > 1:
        return "Mamba-1: it keeps more than one state"
    fits = s.ne[0] == 16 and s.ne[1] == 1 and s.ne[2] % 128 == 0 and src(op, 4).ne[1] == 1
    return None if fits else "Mamba-1: the state is not 16 by 1 by a multiple of 128 for one group"


def _ssm_conv(op: Tensor) -> str | None:
    return "ne[1] of source 0 is {ne0[1]}, no multiple of 128" if src(op, 0).ne[1] % 128 else None


def _soft_max_back(op: Tensor) -> str | None:
    max_bias = op.op_params[1] if len(op.op_params) > 1 else 0
    return None if max_bias in (0, -(2**31)) else "max_bias is not 0"


def _rope(op: Tensor) -> str | None:
    a = src(op, 0)
    if a.nb[0] != a.type.type_size:
        return _GAPS[0]
    return None if is_contiguous_2(a) else "source 0 is not contiguous from dimension 2 on"


def _conv_2d_dw(op: Tensor) -> str | None:
    return None if src(op, 0).type is F32 else "source 0 is {type0}, not f32"


_INDEXER_KEY_TYPES = _types("f32 bf16 f16 q8_0 q5_1 q5_0 q4_1 q4_0")


def _lightning_indexer(op: Tensor) -> str | None:
    q, k = src(op, 0), src(op, 1)
    if q.ne[0] != 128 or q.ne[1] not in (32, 64):
        return "source 0 has {ne0[1]} heads of {ne0[0]}, not 32 or 64 of 128"
    if k.type not in _INDEXER_KEY_TYPES:
        return "the keys are {type1}"
    aligned = [q] if k.type.quantized else [q, k]
    if all(nb % 16 == 0 for t in aligned for nb in t.nb[1:]):
        return None
    return "strides of source 0 or 1 are not multiples of 16 bytes"


RULES: dict[int, OpRule] = {
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.OUT_PROD: _all_f32,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
    Op.SET: _set,
    Op.CPY: _cpy,
    Op.DUP: _dup,
    Op.REPEAT: _repeat,
    Op.REPEAT_BACK: _repeat_back,
    Op.CONCAT: _concat,
    Op.CONV_TRANSPOSE_1D: _conv_transpose_1d,
    Op.COL2IM_1D: _col2im_1d,
    Op.SILU_BACK: _f32_contiguous,
    Op.NORM: _rows,
    Op.RMS_NORM: _rows,
    Op.L2_NORM: _rows,
    Op.SUM: _rows,
    Op.RMS_NORM_BACK: _contiguous,
    Op.SUM_ROWS: _contiguous,
    Op.MEAN: _contiguous,
    Op.GROUP_NORM: _contiguous,
    Op.ADD: _binary,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SSM_SCAN: _ssm_scan,
    Op.SSM_CONV: _ssm_conv,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.ROLL: _f32_contiguous,
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    Op.IM2COL: _both_contiguous,
    Op.IM2COL_3D: _both_contiguous,
    Op.CONV_2D: _both_contiguous,
    Op.ACC: _both_contiguous,
    Op.CONV_2D_DW: _conv_2d_dw,
    Op.DSV4_HC_COMB: _all_f32,
    Op.DSV4_HC_PRE: _all_f32,
    Op.DSV4_HC_POST: _all_f32,
    Op.LIGHTNING_INDEXER: _lightning_indexer,
    Op.FLASH_ATTN_EXT: flash_attn_refusal,
}
"""The ops CUDA runs only under a condition (ggml_backend_cuda_device_supports_op)."""

RULE_KEYS: frozenset[int] = frozenset(
    {int(op) for op in RULES} | set(range(FIRST_UNARY_KEY, FIRST_GLU_KEY)) | set(range(FIRST_GLU_KEY, N_OP_KEYS))
)


_ELSEWHERE = tuple(f"source {i} lies in {{buft{i}}}, memory of another CUDA device" for i in range(MAX_SRC))


def sources_here(buft: BufferType, _: Hardware) -> OpRule:
    """A device runs no op that has a source in the memory of another CUDA device; host memory is not looked at."""

    def check(op: Tensor) -> str | None:
        for i, s in enumerate(op.src):
            if s is not None and s.buffer is not None:
                other = s.buffer.buft
                if other is not buft and other.family in FAMILIES:
                    return _ELSEWHERE[i]
        return None

    return check


def alloc_size(memory: Memory) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""

    row_padding, has = memory.row_padding, memory.features

    def size_of(t: Tensor) -> int:
        size = flash_attn_nbytes(t, has) if t.op == Op.FLASH_ATTN_EXT else t.nbytes
        if row_padding and t.type.quantized:
            rest = t.ne[0] % row_padding
            if rest:
                size += t.type.row_size(row_padding - rest)
        return size

    return size_of


EXTRA = (pinned("CUDA_Host"),)
AMD_EXTRA = (pinned("ROCm_Host"),)


_SORTED_ROW = 1024


def _short_rows(op: Tensor) -> str | None:
    long = src(op, 0).ne[0] > _SORTED_ROW
    return "it sorts rows of up to 1024, and source 0 has {ne0[0]}" if long else None


AMD_RULES: dict[int, OpRule] = {**RULES, Op.ARGSORT: _short_rows, Op.TOP_K: _short_rows}
"""The rules of a build for ROCm, which has none of NVIDIA's library for sorting."""

AMD_RULE_KEYS = RULE_KEYS | {int(Op.ARGSORT), int(Op.TOP_K)}
