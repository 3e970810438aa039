"""The SYCL device of ggml 0.20.2 on Intel GPUs: its ops and their conditions, and which ops it asks for."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import pinned
from ggmltool.ggml.devices.rule_parts import (
    F32_OR_F16,
    FLOATS,
    contiguous,
    every,
    f32_result,
    f32_sources,
    ops,
    optional,
    same_type,
    source,
    types,
    word,
    yes,
)
from ggmltool.ggml.dtypes import F16, F32, I32, I64, TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_contiguous_1, is_permuted, nrows

ROW_PADDING = 512
"""MATRIX_ROW_PADDING: elements that rows of quantized tensors are padded to."""

_WARP = 16
_SOLVE_TRI = 64
_TOP_K = 32
_KQ_STRIDE = 256

_BF16 = TYPES["bf16"]
_Q1_0 = TYPES["q1_0"]
_GET_ROWS_TYPES = types(
    "i32 f16 bf16 f32 q1_0 mxfp4 nvfp4 iq2_xxs iq2_xs iq2_s iq3_xxs iq1_s iq1_m iq3_s iq4_nl iq4_xs q2_K q3_K q4_0 "
    "q4_1 q4_K q5_0 q5_1 q5_K q6_K q8_0"
)
_INDEXER_KEY_TYPES = types("f16 f32 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl")
_SEARCHED = types("iq2_xxs iq2_xs iq2_s iq3_xxs iq1_s iq1_m iq3_s")
_NOT_WRITTEN = types("q2_K q3_K q4_K q5_K q6_K iq4_xs") | _SEARCHED
_NOT_WRITTEN_BY_BF16 = _NOT_WRITTEN | types("q4_0 q4_1 q8_0")
_NOT_READ = _NOT_WRITTEN | types("q1_0 nvfp4 iq4_nl")
_KV_TYPES = types("f32 f16 bf16 q4_0 q8_0")
_HEAD_SIZES = frozenset((40, 64, 72, 80, 96, 112, 128, 256, 512))


def _glu(op: Tensor) -> str | None:
    return None if is_contiguous_1(source(op, 0)) else "source 0 is not contiguous from dimension 1 on"


def _mul_mat(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.ne[3] != b.ne[3]:
        return "it repeats no source over ne[3]"
    if a.type is not F16:
        return None
    if is_permuted(a) and not is_contiguous(a) and a.ne[2] > 1 and a.ne[3] > 1:
        return "source 0 is f16, permuted and of four dimensions"
    if not is_permuted(a) and is_permuted(b) and b.ne[2] > 1 and b.ne[3] > 1 and a.ne[0] > 128 and a.ne[2] == 1:
        return "source 0 is f16 and long, and source 1 permuted and of four dimensions"
    return None


def _out_prod(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if op.type is not F32 or b.type is not F32:
        return "source 1 is {type1} and the result {type}, not both f32"
    if a.type is F32 or (a.type is _Q1_0 and a.ne[2:] == b.ne[2:]):
        return None
    return "source 0 is {type0}, not f32"


def _get_rows(op: Tensor) -> str | None:
    return None if source(op, 0).type in _GET_ROWS_TYPES else "source 0 is {type0}, of which it takes no rows"


def _set_rows(op: Tensor) -> str | None:
    if source(op, 0).type not in FLOATS:
        return "source 0 is {type0}"
    return None if source(op, 1).type in (I64, I32) else "the row numbers are {type1}, neither i64 nor i32"


def _lightning_indexer(op: Tensor) -> str | None:
    if source(op, 0).ne[0] != _WARP * 8:
        return "heads of {ne0[0]}, not 128"
    if source(op, 3).type is not F16:
        return "source 3 is {type3}, not f16"
    return None if source(op, 1).type in _INDEXER_KEY_TYPES else "the keys are {type1}"


_NOT_TO = {F16: _NOT_WRITTEN, F32: _NOT_WRITTEN, _BF16: _NOT_WRITTEN_BY_BF16}


def _copy(op: Tensor) -> str | None:
    a, b = source(op, 0).type, source(op, 1).type
    if b in _NOT_TO.get(a, ()) or (b is F32 and a in _NOT_READ) or (a is b and a in _SEARCHED):
        return "it copies no {type0} to {type1}"
    return None


def _soft_max_back(op: Tensor) -> str | None:
    return None if word(op, 1) in (0, -(2**31)) else "max_bias is not 0"


def _half_or_full_kernel(op: Tensor) -> str | None:
    return None if source(op, 0).type in F32_OR_F16 else "the kernel is {type0}, neither f32 nor f16"


def _float_result(op: Tensor) -> str | None:
    return None if op.type in FLOATS else "the result is {type}"


def _top_k(op: Tensor) -> str | None:
    if op.type is not I32:
        return "the result is {type}, not i32"
    return None if 0 < op.ne[0] <= _TOP_K else "it finds the first 32 at most, not {ne[0]}"


def _pad(op: Tensor) -> str | None:
    return "it pads with zeros, not in a circle" if word(op, 8) else None


def _ssm_scan(op: Tensor) -> str | None:
    if source(op, 3).ne[0] != 1:
        return "it has no Mamba-1"
    state = source(op, 0)
    fits = state.ne[0] in (128, 256) and state.ne[1] % _WARP == 0
    return None if fits else "a state of {ne0[0]} by heads of {ne0[1]}, not 128 or 256 by a multiple of 16"


def _solve_tri(op: Tensor) -> str | None:
    fits = source(op, 0).ne[0] <= _SOLVE_TRI and source(op, 1).ne[0] <= _SOLVE_TRI
    return None if fits else "it solves up to 64 by 64, not {ne0[0]} by {ne1[0]}"


def _flash_attn(op: Tensor) -> str | None:
    """ggml_sycl_flash_attn_ext_supported, of a GPU for which oneDNN is not taken."""
    q, k, v, mask = source(op, 0), source(op, 1), source(op, 2), optional(op, 3)
    if k.ne[2] == 0 or q.ne[2] % k.ne[2]:
        raise GgmlAssert(
            "ggml_sycl_get_best_fattn_kernel",
            "Q->ne[2] % K->ne[2] == 0",
            f"{q.ne[2]} query heads cannot share {k.ne[2]} key heads evenly",
        )
    gqa = q.ne[2] // k.ne[2]
    if _mkl_takes(op, gqa):
        return None
    if k.ne[0] == 576:
        if v.ne[0] != 512 or not _gqa_opt_applies(op, gqa):
            return "heads of 576 need V of 512, a mask, no ALiBi, aligned strides, K padded to 256 and shared key heads"
    elif k.ne[0] not in _HEAD_SIZES or k.ne[0] != v.ne[0]:
        return "no kernel for heads of {ne1[0]} in K and {ne2[0]} in V"
    if k.type is not v.type:
        return "K is {type1} and V is {type2}; the default build has no kernel for two types"
    if k.type not in _KV_TYPES:
        return "the default build has no kernel for K and V of {type1}"
    return "the mask differs from head to head" if mask is not None and mask.ne[2] != 1 else None


def _no_bias(op: Tensor) -> bool:
    return word(op, 1) in (0, -(2**31))


def _gqa_opt_applies(op: Tensor, gqa: int) -> bool:
    mask = optional(op, 3)
    if gqa < 2 or mask is None or not _no_bias(op) or source(op, 1).ne[1] % _KQ_STRIDE:
        return False
    tensors = (source(op, 0), source(op, 1), source(op, 2), mask)
    return all(t.type.quantized or all(nb % 16 == 0 for nb in t.nb[1:]) for t in tensors)


def _mkl_takes(op: Tensor, gqa: int) -> bool:
    """Whether prompts of this shape go through MKL, which has fewer conditions on types."""
    q, k, v = source(op, 0), source(op, 1), source(op, 2)
    if optional(op, 3) is None or optional(op, 4) is not None or gqa < 2:
        return False
    if not (64 <= q.ne[0] <= 512 and q.ne[0] % 64 == 0 and q.ne[0] == v.ne[0]):
        return False
    if q.ne[1] < 32 or k.ne[1] < 1024 or not _no_bias(op) or word(op, 2) not in (0, -(2**31)):
        return False
    if q.ne[3] != k.ne[3] and k.ne[3] != 1:
        return False
    return all(t.type is not F16 or t.nb[1] % (2 * t.ne[0]) == 0 for t in (k, v))


_CONTIGUOUS = contiguous(0)

RULES: dict[int, OpRule] = {
    Op.CONV_TRANSPOSE_1D: f32_sources(0, 1),
    Op.GLU: _glu,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.OUT_PROD: _out_prod,
    Op.GET_ROWS: _get_rows,
    Op.SET: every(f32_result, f32_sources(0, 1)),
    Op.SET_ROWS: _set_rows,
    Op.DSV4_HC_PRE: every(f32_sources(0, 1), f32_result),
    Op.DSV4_HC_COMB: every(f32_sources(0, 1, 2), f32_result),
    Op.DSV4_HC_POST: every(f32_sources(0, 1, 2, 3), f32_result),
    Op.LIGHTNING_INDEXER: every(f32_sources(0, 2), f32_result, _lightning_indexer),
    Op.CPY: _copy,
    Op.REPEAT_BACK: f32_sources(0),
    Op.PAD_REFLECT_1D: every(_CONTIGUOUS, f32_result, f32_sources(0)),
    Op.RMS_NORM_BACK: _CONTIGUOUS,
    Op.TRI: every(f32_result, _CONTIGUOUS),
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.COL2IM_1D: every(_CONTIGUOUS, _float_result, same_type),
    Op.CONV_3D: every(f32_result, _half_or_full_kernel, f32_sources(1), contiguous(0, 1)),
    **dict.fromkeys(ops("SUM SUM_ROWS MEAN"), _CONTIGUOUS),
    Op.TOP_K: every(_top_k, f32_sources(0), _CONTIGUOUS),
    Op.PAD: _pad,
    Op.SSM_CONV: every(f32_result, f32_sources(0, 1)),
    **dict.fromkeys(ops("ROLL ARANGE"), f32_result),
    Op.SSM_SCAN: _ssm_scan,
    Op.SOLVE_TRI: _solve_tri,
    Op.FLASH_ATTN_EXT: _flash_attn,
    **dict.fromkeys(
        ops(
            "CONV_2D CONV_2D_DW CONV_TRANSPOSE_2D UNARY CONCAT DUP ARGMAX ADD ADD1 ADD_ID SUB COUNT_EQUAL MUL DIV "
            "REPEAT SQR SQRT SIN COS CLAMP LOG NORM L2_NORM GROUP_NORM RMS_NORM SCALE CONT DIAG_MASK_INF SOFT_MAX ROPE "
            "ROPE_BACK IM2COL IM2COL_3D UPSCALE ARGSORT POOL_2D POOL_1D ACC LEAKY_RELU TIMESTEP_EMBEDDING RWKV_WKV6 "
            "RWKV_WKV7 GATED_LINEAR_ATTN GATED_DELTA_NET OPT_STEP_ADAMW OPT_STEP_SGD FILL CUMSUM DIAG "
            "CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK"
        ),
        yes,
    ),
}
"""All that SYCL runs (ggml_backend_sycl_device_supports_op)."""

KEYS: frozenset[int] = frozenset({int(op) for op in RULES} | set(range(FIRST_UNARY_KEY, N_OP_KEYS)))
RULE_KEYS: frozenset[int] = frozenset(
    {int(op) for op, rule in RULES.items() if rule is not yes} | set(range(FIRST_GLU_KEY, N_OP_KEYS))
)


def batch_size(op: Tensor) -> int:
    """The batch size SYCL looks at before it asks for an op; unlike CUDA it counts the rows of ROPE_BACK."""
    if op.op == Op.GET_ROWS:
        return 0
    if op.op == Op.MUL_MAT:
        return op.ne[1]
    return op.ne[2] if op.op in (Op.MUL_MAT_ID, Op.ROPE) else nrows(op)


EXTRA = (pinned("SYCL_Host", max_size=None),)
