"""The SYCL device on Intel GPUs: its ops and their conditions, and which ops it offloads.

From ggml 0.20.2, src/ggml-sycl: ggml_backend_sycl_device_supports_op, get_op_batch_size (ggml-sycl.cpp),
ggml_sycl_flash_attn_ext_supported (fattn.cpp).
"""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, optional, source, word
from ggmltool.ggml.devices.profile import MATRIX_ROW_PADDING, Profile, pinned
from ggmltool.ggml.devices.unsupported import asserts
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_permuted, nrows

_GET_ROWS_TYPES = r.types(
    "i32 f16 bf16 f32 q1_0 mxfp4 nvfp4 iq2_xxs iq2_xs iq2_s iq3_xxs iq1_s iq1_m iq3_s iq4_nl iq4_xs q2_K q3_K q4_0 "
    "q4_1 q4_K q5_0 q5_1 q5_K q6_K q8_0"
)
_INDEXER_KEYS = r.types("f16 f32 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl")
_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256, 512))

_SEARCHED = r.types("iq2_xxs iq2_xs iq2_s iq3_xxs iq1_s iq1_m iq3_s")
_NOT_WRITTEN = r.types("q2_K q3_K q4_K q5_K q6_K iq4_xs") | _SEARCHED
_NOT_READ = _NOT_WRITTEN | r.types("q1_0 nvfp4 iq4_nl")
COPIES = (
    dict.fromkeys(r.ALL_TYPES, r.ALL_TYPES)
    | dict.fromkeys(_NOT_READ, r.ALL_TYPES - {F32})
    | {type: r.ALL_TYPES - {F32, type} for type in _SEARCHED}
    | dict.fromkeys((F16, F32), r.ALL_TYPES - _NOT_WRITTEN)
    | {BF16: r.ALL_TYPES - _NOT_WRITTEN - r.types("q4_0 q4_1 q8_0")}
)


def _takes_half(op: Tensor) -> bool:
    a, b = source(op, 0), source(op, 1)
    if is_permuted(a):
        return is_contiguous(a) or a.ne[2] <= 1 or a.ne[3] <= 1
    return not is_permuted(b) or b.ne[2] <= 1 or b.ne[3] <= 1 or a.ne[0] <= 128 or a.ne[2] != 1


_PRODUCT = r.all_of(
    o.same_ne(3, 0, 1),
    r.unless(r.not_types(0, F16), r.holds("a source is permuted and of four dimensions", _takes_half)),
)


_KEY_TYPES = r.types("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0")
_BEST_KERNEL = "ggml_sycl_get_best_fattn_kernel"


def _heads_refusal(op: Tensor) -> str | None:
    k, v = source(op, 1).ne[0], source(op, 2).ne[0]
    if k == 576:
        fits = v == 512 and o.groups_queries(op, o.queries_per_key(op, _BEST_KERNEL))
        why = "heads of 576 need V of 512, a mask, no ALiBi, aligned strides, K padded to 256 and shared key heads"
        return None if fits else why
    return None if k in _HEAD_SIZES and k == v else "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V"


def is_prompt_for_mkl(op: Tensor) -> bool:
    """Whether MKL, which has fewer conditions on types, multiplies such prompts, if the head sizes fit."""
    gqa = o.queries_per_key(op, _BEST_KERNEL)
    q, k = source(op, 0), source(op, 1)
    if optional(op, 3) is None or optional(op, 4) is not None or gqa < 2:
        return False
    if q.ne[1] < 32 or k.ne[1] < 1024 or not o.has_no_alibi(op) or word(op, 2) not in o.ZERO:
        return False
    return q.ne[3] == k.ne[3] or k.ne[3] == 1


def has_whole_rows(t: Tensor) -> bool:
    """Whether rows of f16 begin at multiples of what a row takes."""
    return t.type is not F16 or t.nb[1] % (2 * t.ne[0]) == 0


def _mkl_takes(op: Tensor) -> bool:
    """Whether prompts of this shape go through MKL."""
    if not is_prompt_for_mkl(op):
        return False
    q, k, v = source(op, 0), source(op, 1), source(op, 2)
    has_heads = 64 <= q.ne[0] <= 512 and q.ne[0] % 64 == 0 and q.ne[0] == v.ne[0]
    return has_heads and has_whole_rows(k) and has_whole_rows(v)


def attention(mkl_takes: Callable[[Tensor], bool]) -> r.Rule:
    """FLASH_ATTN_EXT of a GPU for which oneDNN is not taken."""
    return r.unless(
        r.holds("it is no prompt for MKL", mkl_takes),
        r.all_of(r.Rule(_heads_refusal), r.types_of(1, _KEY_TYPES, o.NO_KERNEL), o.ONE_MASK),
    )


RULES: dict[int, r.Rule] = r.by_op(
    {
        "CONV_TRANSPOSE_1D": r.f32(0, 1),
        "GLU": r.contiguous(0, kind="from 1"),
        "MUL_MAT MUL_MAT_ID": _PRODUCT,
        "OUT_PROD": r.all_of(
            r.f32(1, RESULT),
            r.any_of(r.f32(0), r.all_of(r.types_of(0, TYPES["q1_0"]), o.same_ne(2, 0, 1), o.same_ne(3, 0, 1))),
        ),
        "GET_ROWS": o.takes_rows_of(_GET_ROWS_TYPES),
        "SET": r.f32(RESULT, 0, 1),
        "SET_ROWS": r.all_of(r.floats(0), o.ROW_NUMBERS),
        **o.DSV4_IN_F32,
        "LIGHTNING_INDEXER": r.all_of(
            r.f32(0, 2, RESULT), r.among(0, "ne0", 128), r.types_of(3, F16), r.types_of(1, _INDEXER_KEYS, o.NO_KERNEL)
        ),
        "CPY": o.copies(COPIES, to=1),
        "REPEAT_BACK": r.f32(0),
        "PAD_REFLECT_1D": r.all_of(r.contiguous(0), r.f32(RESULT, 0)),
        "RMS_NORM_BACK SUM SUM_ROWS MEAN": r.contiguous(0),
        "TRI": r.all_of(r.f32(RESULT), r.contiguous(0)),
        "SOFT_MAX_BACK": o.NO_ALIBI,
        "COL2IM_1D": r.all_of(r.contiguous(0), r.floats(RESULT), r.same_type(0, RESULT)),
        "CONV_3D": r.all_of(r.f32(RESULT), r.f32_or_f16(0), r.f32(1), r.contiguous(0, 1)),
        "TOP_K": r.all_of(
            r.types_of(RESULT, I32),
            r.at_least(RESULT, "ne0", 1),
            r.at_most(RESULT, "ne0", 32),
            r.f32(0),
            r.contiguous(0),
        ),
        "PAD": o.PADS_WITH_ZEROS,
        "SSM_CONV": r.f32(RESULT, 0, 1),
        "ROLL ARANGE": r.f32(RESULT),
        "SSM_SCAN": o.MAMBA_2,
        "SOLVE_TRI": r.at_most((0, 1), "ne0", 64),
        "FLASH_ATTN_EXT": attention(_mkl_takes),
        "CONV_2D CONV_2D_DW CONV_TRANSPOSE_2D UNARY CONCAT DUP ARGMAX ADD ADD1 ADD_ID SUB COUNT_EQUAL MUL DIV "
        "REPEAT SQR SQRT SIN COS CLAMP LOG NORM L2_NORM GROUP_NORM RMS_NORM SCALE CONT DIAG_MASK_INF SOFT_MAX ROPE "
        "ROPE_BACK IM2COL IM2COL_3D UPSCALE ARGSORT POOL_2D POOL_1D ACC LEAKY_RELU TIMESTEP_EMBEDDING RWKV_WKV6 "
        "RWKV_WKV7 GATED_LINEAR_ATTN GATED_DELTA_NET OPT_STEP_ADAMW OPT_STEP_SGD FILL CUMSUM DIAG "
        "CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK": r.ALWAYS,
    }
)
"""All that SYCL runs."""


def batch_size(op: Tensor) -> int:
    """The batch size by which SYCL offloads an op; unlike CUDA it counts the rows of ROPE_BACK."""
    if op.op == Op.GET_ROWS:
        return 0
    if op.op == Op.MUL_MAT:
        return op.ne[1]
    return op.ne[2] if op.op in (Op.MUL_MAT_ID, Op.ROPE) else nrows(op)


PROFILE = Profile(
    "SYCL",
    row_padding=MATRIX_ROW_PADDING,
    others=False,
    rules=RULES,
    offload_min_batch=32,
    batch_size=batch_size,
    events=True,
    sets_async=True,
    extra=(pinned("SYCL_Host", max_size=None),),
    caps=frozenset(("async", "host_buffer", "mmap_support")),
    unsupported=asserts("ggml_backend_sycl_graph_compute_impl", "error: "),
)
