"""The CUDA device on Ampere and later, and ROCm: its ops and their conditions, its attention, what its tensors take.

From ggml 0.20.2, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_device_supports_op,
ggml_backend_cuda_buffer_type_get_alloc_size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, optional, source
from ggmltool.ggml.devices.profile import MATRIX_ROW_PADDING, Features, Hardware, Profile, SizeFacts, pinned
from ggmltool.ggml.devices.unsupported import asserts
from ggmltool.ggml.dtypes import F16, F32, I16, I32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import MAX_SRC, Tensor, is_contiguous_to, nelements
from ggmltool.ggml.version import pad

_SAME_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
_EXTRA_ALIGNMENT = 128
_KERNEL_GROUP = 32
"""Query heads per key head that every kernel for grouped queries can work with."""

_LONG_CONTEXT = 8192
_BEST_KERNEL = "ggml_cuda_get_best_fattn_kernel"


class Kernel(Enum):
    """best_fattn_kernel."""

    NONE = 0
    TILE = 1
    VEC = 2
    MMA = 3


NVIDIA = frozenset({"turing", "ada"})
"""An NVIDIA GPU of the Ada generation or newer: matrix units as since Turing, and vectors good enough for one row."""


class Attention(NamedTuple):
    """An op of attention, and what its kernel is chosen by: `gqa` are queries per key, `gqa_opt`: they can be computed
    together; `has` is what the GPU has: `turing` (matrix units as since then) and `ada` (it is at least of that
    generation) of NVIDIA's, `wmma` (RDNA 3 and newer) or `mfma` (CDNA) of AMD's.
    """

    q: Tensor
    k: Tensor
    quantized: bool
    gqa: int
    gqa_opt: bool
    has: Features


def rather_vectors(of: Attention) -> bool:
    """Whether a batch is so small that NVIDIA's vectors are faster than its matrix units."""
    q, ada = of.q, "ada" in of.has
    if of.quantized:
        if q.ne[1] <= (2 if ada else 1):
            return True
    elif ada and q.ne[1] == 1 and q.ne[3] == 1 and not (of.gqa > 4 and of.k.ne[1] >= _LONG_CONTEXT):
        return True
    return not of.gqa_opt and q.ne[1] == 1


_CDNA_ROWS = ((64, 8), (128, 16), (256, 64))
"""Head sizes up to the first figure, and the rows above which CDNA's matrix units are faster."""


def amd_rows(of: Attention) -> int:
    """The rows that a kernel for AMD computes together: queries of a key are a power of two that their number is a
    multiple of."""
    head = of.q.ne[0]
    most = 32 if head == 320 else 16 if head in (576, 192) else 8
    return of.q.ne[1] * min(of.gqa & -of.gqa or most, most)


def amd_has_matrices(of: Attention) -> bool:
    """Whether AMD's matrix units are faster than its vectors."""
    head, rows = of.q.ne[0], amd_rows(of)
    if "mfma" in of.has and any(head <= most and rows > least for most, least in _CDNA_ROWS):
        return True
    return "wmma" in of.has and of.gqa_opt and head <= 128 and rows > 8


ChosenBy = Callable[[Attention], bool]
KernelOf = Callable[[Tensor, Features], Kernel]


def best_kernel(
    dst: Tensor,
    has: Features = NVIDIA,
    takes: r.Rule | None = None,
    by_vectors: ChosenBy = rather_vectors,
    by_amd_matrices: ChosenBy = amd_has_matrices,
) -> Kernel:
    """ggml_cuda_get_best_fattn_kernel, by default with the default build's K and V types; `takes` says whether there is
    a kernel at all."""
    if (takes or FLASH_ATTN).ask(dst) is not None:
        return Kernel.NONE
    q, k, v = source(dst, 0), source(dst, 1), source(dst, 2)
    gqa = o.queries_per_key(dst, _BEST_KERNEL)
    of = Attention(q, k, k.type.quantized or v.type.quantized, gqa, o.groups_queries(dst, gqa), has)
    vec_ok = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % o.KQ_STRIDE == 0
    has_matrix_kernel = q.ne[0] not in (40, 72)
    if "turing" in has and has_matrix_kernel:
        return Kernel.VEC if vec_ok and by_vectors(of) else Kernel.MMA
    if has_matrix_kernel and by_amd_matrices(of):
        return Kernel.MMA
    if vec_ok and (q.ne[1] <= 2 if of.quantized else q.ne[1] == 1 and not of.gqa_opt):
        return Kernel.VEC
    return Kernel.TILE


def flash_attn_nbytes(dst: Tensor, has: Features = NVIDIA, kernel_of: KernelOf = best_kernel) -> int:
    """ggml_cuda_flash_attn_ext_get_alloc_size: the result, then f16 copies of K and V where the kernel needs them."""
    k, v = optional(dst, 1), optional(dst, 2)
    if k is None or v is None:
        raise GgmlAssert("ggml_cuda_flash_attn_ext_get_alloc_size", "K != nullptr", f"{dst.name} lacks a source")
    kernel = kernel_of(dst, has)
    always = kernel in (Kernel.TILE, Kernel.MMA)
    need_k = always or (kernel is Kernel.VEC and k.type is F32)
    need_v = always or (kernel is Kernel.VEC and v.type is F32)
    return _nbytes_with_copies(dst, k, v, need_k, need_v)


def _nbytes_with_copies(dst: Tensor, k: Tensor, v: Tensor, need_k: bool, need_v: bool) -> int:
    """ggml_cuda_flash_attn_ext_get_f16_extra_data: the result, and behind it f16 copies of K and V that are needed."""
    end = dst.nbytes
    if need_k and k.type is not F16:
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(k)
    if need_v and v.type is not F16 and not o.is_view_of_keys(k, v):
        end = pad(end, _EXTRA_ALIGNMENT) + 2 * nelements(v)
    return end


def _heads_refusal(dst: Tensor) -> str | None:
    gqa = o.queries_per_key(dst, _BEST_KERNEL)
    k, v = source(dst, 1).ne[0], source(dst, 2).ne[0]
    if _head_size_ok(k, v, gqa, o.groups_queries(dst, gqa)):
        return None
    if not _head_size_ok(k, v, _KERNEL_GROUP, True):
        return "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V"
    return "heads of {ne1[0]} need a mask, no ALiBi, aligned strides, K padded to 256 and more queries per key head"


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


HEADS = r.Rule(_heads_refusal)
"""What kernels ask of the sizes of heads."""

FLASH_ATTN = r.all_of(HEADS, o.KV_AND_MASK)
"""Whether there is a kernel at all."""


FAMILIES = frozenset(("CUDA", "ROCm"))
"""The memory of devices of this kind."""

FEATURES = ("turing", "ada")
AMD_FEATURES = ("wmma", "mfma")
"""What decides which attention kernel there is; see `cuda_fattn.best_kernel`."""

MUL_MAT_TYPES = r.types(
    "f32 f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 mxfp4 nvfp4 q2_K q3_K q4_K q5_K q6_K q8_K iq1_s iq1_m "
    "iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs"
)
_GET_ROWS_TYPES = r.types(
    "f32 f16 bf16 i32 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq1_s iq1_m iq4_xs"
)
_SET_ROWS = {F32: r.types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl"), F16: r.types("f16")}
_COPIES = (
    dict.fromkeys(r.FLOATS, r.FLOATS)
    | {F32: r.FLOATS | r.types("q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl i32"), I32: r.types("f32 i32")}
    | dict.fromkeys(r.types("q8_0 q4_0 q4_1 q5_0 q5_1"), r.types("f32"))
)
_INDEXER_KEYS = r.types("f32 bf16 f16 q8_0 q5_1 q5_0 q4_1 q4_0")
_MOST_MATRICES = 1 << 15


def _whole_batches(op: Tensor) -> bool:
    """No gaps in the dimensions below the one that is joined, or below the last."""
    n = 4 if op.op_params[:1] == (3,) else 3
    return is_contiguous_to(source(op, 0), n) and is_contiguous_to(source(op, 1), n)


def _whole_blocks(op: Tensor) -> bool:
    return all(source(op, i).ne[0] % source(op, i).type.block_size == 0 for i in range(2))


GET_ROWS_BACK = r.all_of(r.f32(0, RESULT), o.matrix(RESULT))
REPEAT_BACK = r.all_of(
    r.f32(RESULT),
    r.holds(
        "ne[2] * ne[3] of source 0 is more than 32768",
        lambda op: source(op, 0).ne[2] * source(op, 0).ne[3] <= _MOST_MATRICES,
    ),
)
_MUL_MAT = r.all_of(
    o.unit_stride(0, 1),
    o.F16_BY_F16,
    o.multiplies(MUL_MAT_TYPES),
)
_BLOCKS = r.all_of(
    r.holds("the sources are {type0} and not contiguous", _whole_batches),
    r.holds("rows of {type0} are not whole blocks", _whole_blocks),
)
MAMBA_1 = r.all_of(
    r.at_least(3, "ne0", 2),
    r.among(0, "ne0", 16),
    r.among(0, "ne1", 1),
    r.multiple(0, "ne2", 128),
    r.among(4, "ne1", 1),
    r.param(0, (0, 1), "it keeps one state in Mamba-1"),
)


def lightning_indexer(*heads: int) -> r.Rule:
    """ggml_cuda_lightning_indexer_supported: so many heads."""
    return r.all_of(
        r.among(0, "ne0", 128),
        r.among(0, "ne1", *heads),
        r.types_of(1, _INDEXER_KEYS, o.NO_KERNEL),
        *(r.unless(r.types_of(i, r.QUANTIZED), o.aligned_strides(i, 16)) for i in (0, 1)),
    )


RULES: dict[int, r.Rule] = r.by_op(
    {
        "UNARY GROUP_NORM RMS_NORM_BACK SUM_ROWS MEAN": r.contiguous(0),
        "GLU": r.contiguous(0, kind="from 1"),
        "MUL_MAT MUL_MAT_ID": _MUL_MAT,
        "OUT_PROD": r.f32(RESULT, 0, 1),
        "GET_ROWS": r.any_of(
            o.takes_rows_of(_GET_ROWS_TYPES),
            r.all_of(o.takes_rows_of(r.types("iq4_nl mxfp4")), r.multiple(0, "ne0", 256)),
        ),
        "GET_ROWS_BACK": GET_ROWS_BACK,
        "SET_ROWS": r.all_of(o.writes_rows(_SET_ROWS), o.ROW_NUMBERS),
        "SET": r.all_of(r.types_of(RESULT, (F32, I32)), r.same_type(RESULT, 0, 1)),
        "CPY": r.any_of(o.copies(_COPIES, to=1), r.all_of(r.same_type(0, 1), r.contiguous(0, 1))),
        "DUP": r.not_types(0, (I32, I16)),
        "REPEAT": r.f32_or_f16(0),
        "REPEAT_BACK": REPEAT_BACK,
        "CONCAT": r.all_of(r.same_type(0, 1, RESULT), r.unless(r.not_types(0, r.QUANTIZED), _BLOCKS)),
        "CONV_TRANSPOSE_1D": r.f32(0, 1),
        "COL2IM_1D": o.COL2IM_1D,
        "SILU_BACK ROLL": r.all_of(r.f32(0), r.contiguous(0)),
        "NORM RMS_NORM L2_NORM SUM": r.contiguous_rows(0),
        "ADD SUB MUL DIV": r.f32_or_f16(0, 1, RESULT),
        "SSM_SCAN": r.any_of(o.MAMBA_2, MAMBA_1),
        "SSM_CONV": r.multiple(0, "ne1", 128),
        "SOFT_MAX_BACK": o.NO_ALIBI,
        "ROPE ROPE_BACK": r.all_of(o.unit_stride(0), r.contiguous(0, kind="from 2")),
        "IM2COL IM2COL_3D CONV_2D ACC": r.contiguous(0, 1),
        "CONV_2D_DW": r.f32(0),
        **o.DSV4_IN_F32,
        "LIGHTNING_INDEXER": lightning_indexer(32, 64),
        "FLASH_ATTN_EXT": FLASH_ATTN,
        "DIAG_MASK_ZERO IM2COL_BACK CONV_3D POOL_1D POOL_2D_BACK FLASH_ATTN_BACK WIN_PART WIN_UNPART GET_REL_POS "
        "ADD_REL_POS MAP_CUSTOM1 MAP_CUSTOM2 MAP_CUSTOM3 CUSTOM": r.NEVER,
    }
)
"""What CUDA runs under a condition, or not at all; it runs all other ops."""

AMD_RULES = RULES | r.by_op(
    {"ARGSORT TOP_K": r.saying("it sorts rows of up to 1024, and source 0 has {ne0[0]}", r.at_most(0, "ne0", 1024))}
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


def alloc_size(memory: SizeFacts) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows padded, and room for f16 copies of attention's K and V."""
    return o.padded_size(memory, flash_attn_nbytes)


PROFILE = Profile(
    "CUDA",
    row_padding=MATRIX_ROW_PADDING,
    rules=RULES,
    check=sources_here,
    alloc_size=alloc_size,
    offload_min_batch=32,
    events=True,
    copies_async=True,
    features=FEATURES,
    has=frozenset(FEATURES),
    caps=frozenset(("async", "host_buffer", "mmap_support")),
    alloc_more="f16 copies of K and V behind FLASH_ATTN_EXT",
    extra=(pinned("CUDA_Host"),),
    unsupported=asserts("ggml_cuda_graph_evaluate_and_capture"),
)

ROCM = replace(
    PROFILE,
    name="ROCm",
    rules=AMD_RULES,
    features=AMD_FEATURES,
    has=frozenset({"wmma"}),
    extra=(pinned("ROCm_Host"),),
)
