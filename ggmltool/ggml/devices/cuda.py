"""The CUDA device on Ampere and later, and ROCm: its ops and their conditions, and what its tensors take.

From ggml 0.20.2, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op,
ggml_backend_cuda_buffer_type_get_alloc_size.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.attention import padded_size
from ggmltool.ggml.devices.combinators import (
    FLOATS,
    NEVER,
    QUANTIZED,
    Rule,
    all_of,
    among,
    any_of,
    at_least,
    at_most,
    by_op,
    contiguous,
    contiguous_rows,
    f32,
    f32_or_f16,
    holds,
    multiple,
    not_types,
    param,
    same_type,
    saying,
    types,
    types_of,
    unless,
)
from ggmltool.ggml.devices.cuda_fattn import FLASH_ATTN, flash_attn_nbytes
from ggmltool.ggml.devices.extra import Memory, pinned
from ggmltool.ggml.devices.op_rules import (
    COL2IM_1D,
    DSV4_IN_F32,
    F16_BY_F16,
    MAMBA_2,
    NO_ALIBI,
    NO_KERNEL,
    ROW_NUMBERS,
    aligned_strides,
    copies,
    matrix,
    multiplies,
    takes_rows_of,
    unit_stride,
    writes_rows,
)
from ggmltool.ggml.devices.operands import RESULT, source
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import F16, F32, I16, I32
from ggmltool.ggml.tensor import MAX_SRC, Tensor, is_contiguous_to

ROW_PADDING = 512
"""MATRIX_ROW_PADDING: elements that rows of quantized tensors are padded to."""

FAMILIES = frozenset(("CUDA", "ROCm"))
"""The memory of devices of this kind."""

FEATURES = ("turing", "ada")
AMD_FEATURES = ("wmma", "mfma")
"""What decides which attention kernel there is; see `cuda_fattn.best_kernel`."""

MUL_MAT_TYPES = types(
    "f32 f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 nvfp4 q2_K q3_K q4_K q5_K q6_K q8_K iq1_s iq1_m "
    "iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs"
)
_GET_ROWS_TYPES = types(
    "f32 f16 bf16 i32 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq1_s iq1_m iq4_xs"
)
_SET_ROWS = {F32: types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl"), F16: types("f16")}
_COPIES = (
    dict.fromkeys(FLOATS, FLOATS)
    | {F32: FLOATS | types("q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl i32"), I32: types("f32 i32")}
    | dict.fromkeys(types("q8_0 q4_0 q4_1 q5_0 q5_1"), types("f32"))
)
_INDEXER_KEYS = types("f32 bf16 f16 q8_0 q5_1 q5_0 q4_1 q4_0")
_MOST_MATRICES = 1 << 15


def _whole_batches(op: Tensor) -> bool:
    """No gaps in the dimensions below the one that is joined, or below the last."""
    n = 4 if op.op_params[:1] == (3,) else 3
    return is_contiguous_to(source(op, 0), n) and is_contiguous_to(source(op, 1), n)


def _whole_blocks(op: Tensor) -> bool:
    return all(source(op, i).ne[0] % source(op, i).type.block_size == 0 for i in range(2))


GET_ROWS_BACK = all_of(f32(0, RESULT), matrix(RESULT))
REPEAT_BACK = all_of(
    f32(RESULT),
    holds(
        "ne[2] * ne[3] of source 0 is more than 32768",
        lambda op: source(op, 0).ne[2] * source(op, 0).ne[3] <= _MOST_MATRICES,
    ),
)
_MUL_MAT = all_of(
    unit_stride(0, 1),
    F16_BY_F16,
    multiplies(MUL_MAT_TYPES),
)
_BLOCKS = all_of(
    holds("the sources are {type0} and not contiguous", _whole_batches),
    holds("rows of {type0} are not whole blocks", _whole_blocks),
)
MAMBA_1 = all_of(
    at_least(3, "ne0", 2),
    among(0, "ne0", 16),
    among(0, "ne1", 1),
    multiple(0, "ne2", 128),
    among(4, "ne1", 1),
    param(0, (0, 1), "it keeps one state in Mamba-1"),
)


def lightning_indexer(*heads: int) -> Rule:
    """ggml_cuda_lightning_indexer_supported: so many heads."""
    return all_of(
        among(0, "ne0", 128),
        among(0, "ne1", *heads),
        types_of(1, _INDEXER_KEYS, NO_KERNEL),
        *(unless(types_of(i, QUANTIZED), aligned_strides(i, 16)) for i in (0, 1)),
    )


RULES: dict[int, Rule] = by_op(
    {
        "UNARY GROUP_NORM RMS_NORM_BACK SUM_ROWS MEAN": contiguous(0),
        "GLU": contiguous(0, kind="from 1"),
        "MUL_MAT MUL_MAT_ID": _MUL_MAT,
        "OUT_PROD": f32(RESULT, 0, 1),
        "GET_ROWS": any_of(
            takes_rows_of(_GET_ROWS_TYPES), all_of(takes_rows_of(types("iq4_nl mxfp4")), multiple(0, "ne0", 256))
        ),
        "GET_ROWS_BACK": GET_ROWS_BACK,
        "SET_ROWS": all_of(writes_rows(_SET_ROWS), ROW_NUMBERS),
        "SET": all_of(types_of(RESULT, (F32, I32)), same_type(RESULT, 0, 1)),
        "CPY": any_of(copies(_COPIES, to=1), all_of(same_type(0, 1), contiguous(0, 1))),
        "DUP": not_types(0, (I32, I16)),
        "REPEAT": f32_or_f16(0),
        "REPEAT_BACK": REPEAT_BACK,
        "CONCAT": all_of(same_type(0, 1, RESULT), unless(not_types(0, QUANTIZED), _BLOCKS)),
        "CONV_TRANSPOSE_1D": f32(0, 1),
        "COL2IM_1D": COL2IM_1D,
        "SILU_BACK ROLL": all_of(f32(0), contiguous(0)),
        "NORM RMS_NORM L2_NORM SUM": contiguous_rows(0),
        "ADD SUB MUL DIV": f32_or_f16(0, 1, RESULT),
        "SSM_SCAN": any_of(MAMBA_2, MAMBA_1),
        "SSM_CONV": multiple(0, "ne1", 128),
        "SOFT_MAX_BACK": NO_ALIBI,
        "ROPE ROPE_BACK": all_of(unit_stride(0), contiguous(0, kind="from 2")),
        "IM2COL IM2COL_3D CONV_2D ACC": contiguous(0, 1),
        "CONV_2D_DW": f32(0),
        **DSV4_IN_F32,
        "LIGHTNING_INDEXER": lightning_indexer(32, 64),
        "FLASH_ATTN_EXT": FLASH_ATTN,
        "DIAG_MASK_ZERO IM2COL_BACK CONV_3D POOL_1D POOL_2D_BACK FLASH_ATTN_BACK WIN_PART WIN_UNPART GET_REL_POS "
        "ADD_REL_POS MAP_CUSTOM1 MAP_CUSTOM2 MAP_CUSTOM3 CUSTOM": NEVER,
    }
)
"""What CUDA runs under a condition, or not at all; it runs all other ops."""

AMD_RULES = RULES | by_op(
    {"ARGSORT TOP_K": saying("it sorts rows of up to 1024, and source 0 has {ne0[0]}", at_most(0, "ne0", 1024))}
)
"""The rules of a build for ROCm, which has none of NVIDIA's library for sorting."""


_ELSEWHERE = tuple(f"source {i} lies in {{buft{i}}}, memory of another CUDA device" for i in range(MAX_SRC))


def sources_here(buft: BufferType, _: Hardware) -> OpRule:
    """A device runs no op that has a source in the memory of another CUDA device; host memory is not looked at."""

    def check(op: Tensor) -> str | None:
        for s in op.src:
            if s is not None and s.buffer is not None:
                other = s.buffer.buft
                if other is not buft and other.family in FAMILIES:
                    return _ELSEWHERE[op.src.index(s)]
        return None

    return check


def alloc_size(memory: Memory) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""
    return padded_size(memory, flash_attn_nbytes)


EXTRA = (pinned("CUDA_Host"),)
AMD_EXTRA = (pinned("ROCm_Host"),)
