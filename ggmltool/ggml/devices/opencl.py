"""The OpenCL device of ggml 0.20.2: its ops and their conditions, and what its tensors take."""

from __future__ import annotations

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import Memory
from ggmltool.ggml.devices.rule_parts import (
    F32_OR_F16,
    contiguous,
    contiguous_result,
    contiguous_rows,
    every,
    f32_result,
    f32_sources,
    half_or_full,
    ops,
    source,
    types,
    word,
    yes,
)
from ggmltool.ggml.dtypes import F16, F32, I32, I64, TYPES, DType
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_contiguous_1

_WORKGROUP = 1024
_GAPS = 4
"""Gaps between the parts that a quantized tensor is taken apart into."""

_Q4_0, _Q8_0 = TYPES["q4_0"], TYPES["q8_0"]
_SET_ROWS_TYPES = types("f16 f32 q8_0 q4_0")
_COPIES: dict[DType, frozenset[DType]] = {F32: F32_OR_F16, F16: F32_OR_F16, I32: frozenset((I32,))}
_WHOLE_WEIGHTS = types("q4_1 q5_0 q5_1 mxfp4 iq4_nl q4_K q5_K q6_K")
_ANY_WEIGHTS = types("f32 q1_0 q4_0 q8_0")
_EXPERTS = types("q4_0 q8_0 mxfp4")
_HEADS = frozenset(((192, 128), *((n, n) for n in (40, 64, 80, 96, 112, 128, 192, 256, 512))))
_KV_TYPES = types("f16 f32 q4_0 q8_0")

_F32_WHOLE = frozenset((UnaryOp.GELU, UnaryOp.SILU, UnaryOp.RELU, UnaryOp.GELU_ERF, UnaryOp.GELU_QUICK))
_F32_ANY = frozenset((UnaryOp.TANH, UnaryOp.NEG, UnaryOp.EXP, UnaryOp.EXPM1))
_HALF_OR_FULL = frozenset((UnaryOp.ABS, UnaryOp.SOFTPLUS))


def _unary(op: Tensor) -> str | None:
    function, a = word(op, 0), source(op, 0)
    if function == UnaryOp.SIGMOID:
        return None if is_contiguous(a) else "source 0 is not contiguous"
    if function in _HALF_OR_FULL:
        return half_or_full(op)
    if a.type is not F32:
        return "source 0 is {type0}, not f32"
    return None if function in _F32_ANY or is_contiguous(a) else "source 0 is not contiguous"


def _glu(op: Tensor) -> str | None:
    if not is_contiguous_1(source(op, 0)):
        return "source 0 is not contiguous from dimension 1 on"
    return None if op.type in F32_OR_F16 else "the result is {type}, neither f32 nor f16"


def _set_rows(op: Tensor) -> str | None:
    if source(op, 0).type is not F32 or op.type not in _SET_ROWS_TYPES:
        return "it writes no rows of {type0} into {type}"
    return None if source(op, 1).type in (I64, I32) else "the row numbers are {type1}, neither i64 nor i32"


def _copy(op: Tensor) -> str | None:
    return None if op.type in _COPIES.get(source(op, 0).type, ()) else "it copies no {type0} to {type}"


def _set(op: Tensor) -> str | None:
    same = op.type is source(op, 0).type and op.type is source(op, 1).type
    return None if same and op.type in (F32, I32) else "it sets no {type1} in {type0}"


def _binary(op: Tensor) -> str | None:
    a, b = source(op, 0).type, source(op, 1).type
    if op.op == Op.ADD and op.type is F16 and a in F32_OR_F16 and b in F32_OR_F16:
        return None
    same = a is b and a is op.type and a in F32_OR_F16
    return None if same else "{type0} and {type1} to {type}: not all are f32, or all f16"


def _rms_norm(op: Tensor) -> str | None:
    return "rows are {ne[0]} long, no multiple of 4" if op.ne[0] % 4 else None


def _pad(op: Tensor) -> str | None:
    return "it pads with zeros, not in a circle" if word(op, 8) else None


def _upscale(op: Tensor) -> str | None:
    mode = word(op, 0)
    return "it scales to the nearest or bilinear, without smoothing" if mode & 512 or mode & 255 > 1 else None


def _conv_2d(op: Tensor) -> str | None:
    given = (source(op, 0).type, source(op, 1).type, op.type)
    fits = given in ((F16, F16, F16), (F32, F32, F32), (F16, F32, F32))
    return None if fits else "it convolves no {type1} with {type0} to {type}"


def _delta_net(op: Tensor) -> str | None:
    return None if source(op, 2).ne[0] in (16, 32, 64, 128) else "heads of {ne2[0]}, not 16, 32, 64 or 128"


def _mul_mat(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.type in (F16, TYPES["bf16"]):
        return None
    if a.type not in _ANY_WEIGHTS and a.type not in _WHOLE_WEIGHTS:
        return "source 0 is {type0}, which it cannot multiply"
    if b.type is not F32:
        return "source 1 is {type1}, not f32"
    if a.type in _ANY_WEIGHTS or (is_contiguous(a) and is_contiguous(b)):
        return None
    return "a source is not contiguous, and source 0 is {type0}"


def _mul_mat_id(op: Tensor) -> str | None:
    a, b = source(op, 0), source(op, 1)
    if a.type not in _EXPERTS:
        return "source 0 is {type0}, which it cannot multiply"
    if b.type is not F32:
        return "source 1 is {type1}, not f32"
    return None if is_contiguous(a) and is_contiguous(b) else "a source is not contiguous"


def _diag_mask(op: Tensor) -> str | None:
    return None if op.ne[3] == 1 else "it masks no fourth dimension"


def _rope(op: Tensor) -> str | None:
    several = word(op, 2) & 8
    return None if not several or source(op, 0).type in F32_OR_F16 else "source 0 is {type0}, neither f32 nor f16"


def _argsort(op: Tensor) -> str | None:
    return None if op.ne[0] <= _WORKGROUP else "it sorts rows of up to 1024, and these have {ne[0]}"


def _flash_attn(op: Tensor) -> str | None:
    q, k, v = source(op, 0), source(op, 1), source(op, 2)
    if (q.ne[0], v.ne[0]) not in _HEADS:
        return "no kernel for heads of {ne0[0]} in Q and {ne2[0]} in V"
    why = "no kernel for Q of {type0}, K of {type1}, V of {type2} and a result of {type}"
    if q.type is F16:
        fits = k.type is F16 and v.type is F16 and op.type is F16
        return None if fits and q.ne[0] != 512 else why
    if q.type is not F32 or op.type is not F32 or k.type not in _KV_TYPES or v.type not in _KV_TYPES:
        return why
    if k.type is v.type and k.type.quantized and (q.ne[0] % 32 or v.ne[0] % 32):
        return "heads of a {type1} cache have to be whole blocks"
    if q.ne[0] == 512 and not (k.type is F16 and v.type is F16):
        return why
    return "one row with heads of 512 is faster on the CPU" if q.ne[0] == 512 and q.ne[1] == 1 else None


_F32 = f32_sources(0)

RULES: dict[int, OpRule] = {
    Op.GET_ROWS: half_or_full,
    Op.SET_ROWS: _set_rows,
    **dict.fromkeys(ops("CPY DUP CONT"), _copy),
    Op.SET: _set,
    **dict.fromkeys(ops("SCALE SOLVE_TRI SUM_ROWS CUMSUM"), every(_F32, contiguous(0))),
    **dict.fromkeys(ops("ADD MUL DIV SUB"), _binary),
    **dict.fromkeys(ops("ADD_ID CLAMP MEAN"), _F32),
    **dict.fromkeys(ops("SQR SQRT"), every(half_or_full, contiguous(0))),
    Op.UNARY: _unary,
    Op.GLU: _glu,
    **dict.fromkeys(ops("TRI FILL"), every(f32_result, contiguous_result)),
    Op.RMS_NORM: every(_rms_norm, contiguous_rows(0)),
    Op.L2_NORM: contiguous_rows(0),
    **dict.fromkeys(ops("REPEAT TIMESTEP_EMBEDDING"), every(_F32, f32_result)),
    Op.PAD: every(_pad, _F32, f32_result),
    Op.UPSCALE: every(_upscale, _F32, f32_result),
    Op.CONV_2D: _conv_2d,
    **dict.fromkeys(ops("SSM_CONV CONCAT"), every(f32_sources(0, 1), f32_result)),
    Op.GATED_DELTA_NET: every(_F32, f32_result, _delta_net),
    Op.GROUP_NORM: contiguous(0),
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.DIAG_MASK_INF: _diag_mask,
    Op.ROPE: _rope,
    Op.ARGSORT: every(_F32, _argsort),
    Op.FLASH_ATTN_EXT: _flash_attn,
    **dict.fromkeys(ops("SOFT_MAX NORM DIAG IM2COL"), yes),
}
"""All that OpenCL runs (ggml_opencl_supports_op)."""

_FUNCTIONS = {FIRST_UNARY_KEY + f for f in (*_F32_WHOLE, *_F32_ANY, *_HALF_OR_FULL, UnaryOp.SIGMOID)}
_FUNCTIONS |= set(range(FIRST_GLU_KEY, N_OP_KEYS))
KEYS: frozenset[int] = frozenset({int(op) for op in RULES} | _FUNCTIONS)
RULE_KEYS: frozenset[int] = frozenset({int(op) for op, rule in RULES.items() if rule is not yes} | _FUNCTIONS)


def alloc_size(memory: Memory) -> AllocSize:
    """ggml_backend_opencl_buffer_type_get_alloc_size: quantized tensors are taken apart into aligned parts."""
    more = _GAPS * memory.alignment

    def size_of(t: Tensor) -> int:
        return t.nbytes + more if t.type.quantized else t.nbytes

    return size_of
