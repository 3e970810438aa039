"""The Metal device of ggml in March 2025: what it ran on Apple's GPUs (M1 and later), and under which conditions."""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import ExtraBuft
from ggmltool.ggml.devices.metal import FAMILY
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.devices.rule_parts import source, types, word
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, DType
from ggmltool.ggml.op import FIRST_UNARY_KEY, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_contiguous_1

FEATURES = ("bfloat",)
"""What a build may have: GGML_METAL_USE_BF16, on a GPU that knows the type."""

_BF16_SOURCES = 3
_MROPE = 8
_NOT_CONTIGUOUS = "source 0 is not contiguous"
_NOT_F32 = "source 0 is {type0}, not f32"


def no_bfloat(_: BufferType, hardware: Hardware) -> OpRule | None:
    """A build without bfloat runs nothing, not even a view, that has a bf16 source among the first three."""
    if "bfloat" in hardware.features:
        return None

    def check(op: Tensor) -> str | None:
        for s in op.src[:_BF16_SOURCES]:
            if s is not None and s.type is BF16:
                return "a source is bf16, and the build has no bfloat"
        return None

    return check


def _f32(op: Tensor) -> str | None:
    return None if source(op, 0).type is F32 else _NOT_F32


def _contiguous(op: Tensor) -> str | None:
    return None if is_contiguous(source(op, 0)) else _NOT_CONTIGUOUS


def _contiguous_f32(op: Tensor) -> str | None:
    return _contiguous(op) or _f32(op)


def _norm(op: Tensor) -> str | None:
    if op.ne[0] % 4:
        return "rows are {ne[0]} long, no multiple of 4"
    return None if is_contiguous_1(source(op, 0)) else "source 0 is not contiguous from dimension 1 on"


def _rope(op: Tensor) -> str | None:
    return "it has no rope of several sections" if word(op, 2) & _MROPE else None


def _im2col(op: Tensor) -> str | None:
    return None if source(op, 0).type is F16 else "source 0 is {type0}, not f16"


def _flash_attn(op: Tensor) -> str | None:
    same = source(op, 1).type is source(op, 2).type
    return None if same else "the keys are {type1} and the values {type2}, not of one type"


def _mul_mat(op: Tensor) -> str | None:
    fine = source(op, 0).type is not F32 or source(op, 1).type is F32
    return None if fine else "source 0 is f32 and source 1 {type1}, not f32 too"


_TO_FLOAT = types("f32 f16")
_COPIES: dict[DType, frozenset[DType]] = {
    F32: types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl"),
    F16: _TO_FLOAT,
    BF16: types("f32 bf16"),
} | dict.fromkeys(types("q4_0 q4_1 q5_0 q5_1 q8_0"), _TO_FLOAT)


def _copy(op: Tensor) -> str | None:
    fine = op.type in _COPIES.get(source(op, 0).type, ())
    return None if fine else "it does not copy {type0} to {type}"


def _set(op: Tensor) -> str | None:
    return None if source(op, 0).type in (F32, I32) else "source 0 is {type0}, neither f32 nor i32"


def _one_fourth(op: Tensor) -> str | None:
    return None if op.ne[3] == 1 else "ne[3] of the result is {ne[3]}, not 1"


RULES: dict[int, OpRule] = {
    Op.UNARY: _contiguous_f32,
    Op.ADD: _f32,
    Op.SUB: _f32,
    Op.MUL: _f32,
    Op.DIV: _f32,
    Op.CLAMP: _f32,
    Op.SQR: _contiguous_f32,
    Op.SQRT: _contiguous_f32,
    Op.SIN: _contiguous_f32,
    Op.COS: _contiguous_f32,
    Op.SUM_ROWS: _contiguous,
    Op.SOFT_MAX: _contiguous,
    Op.GROUP_NORM: _contiguous,
    Op.RMS_NORM: _norm,
    Op.NORM: _norm,
    Op.ROPE: _rope,
    Op.IM2COL: _im2col,
    Op.POOL_2D: _f32,
    Op.UPSCALE: _f32,
    Op.PAD: _f32,
    Op.PAD_REFLECT_1D: _f32,
    Op.TIMESTEP_EMBEDDING: _f32,
    Op.ARGSORT: _f32,
    Op.LEAKY_RELU: _f32,
    Op.FLASH_ATTN_EXT: _flash_attn,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.CPY: _copy,
    Op.DUP: _copy,
    Op.CONT: _copy,
    Op.SET: _set,
    Op.DIAG_MASK_INF: _one_fourth,
    Op.GET_ROWS: _one_fourth,
}
"""The ops it ran only under a condition (ggml_metal_supports_op)."""

_ALWAYS = (
    Op.CONCAT, Op.ACC, Op.REPEAT, Op.SCALE, Op.CONV_TRANSPOSE_1D, Op.ARGMAX, Op.ARANGE, Op.SSM_CONV, Op.SSM_SCAN,
)  # fmt: skip
_UNARY = (
    UnaryOp.TANH, UnaryOp.RELU, UnaryOp.SIGMOID, UnaryOp.GELU, UnaryOp.GELU_QUICK, UnaryOp.SILU, UnaryOp.ELU,
)  # fmt: skip
RULE_KEYS = frozenset(int(op) for op in RULES if op != Op.UNARY) | {FIRST_UNARY_KEY + f for f in _UNARY}
KEYS = RULE_KEYS | frozenset(int(op) for op in _ALWAYS)

EXTRA = (ExtraBuft("Metal_Mapped", FAMILY, alignment=None, max_size=None, host=True),)
"""Memory of the host that the GPU uses where it is."""
