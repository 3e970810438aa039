"""The devices of ggml in January 2024: the CPU, CUDA (and ROCm) and Metal. The scheduler of then asked none of them
whether it runs an op; their own rules say what a graph that is given to one may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.device import EMPTY_OPS, OpRule
from ggmltool.ggml.devices import cpu, cuda, profiles
from ggmltool.ggml.devices.extra import ExtraBuft, Memory, pinned
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.dtypes import F16, F32, I16, I32, TYPES
from ggmltool.ggml.op import FIRST_UNARY_KEY, Op, UnaryOp
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor, nrows

_RELEASE = RELEASES["2024-01"]
CPU_SLACK = _RELEASE.tensor_alignment
"""Bytes that a CPU buffer is larger than asked for, since malloc's address may not be aligned."""


def whole_rows(memory: Memory) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows without gaps between them, the last quantized one padded."""

    def size(t: Tensor) -> int:
        rest = t.ne[0] % memory.row_padding if t.type.quantized else 0
        padding = t.type.row_size(memory.row_padding - rest) if rest else 0
        return nrows(t) * t.type.row_size(t.ne[0]) + padding

    return size


_GET_ROWS = frozenset(TYPES[name] for name in ("f16", "f32", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"))
_TO_QUANTIZED = frozenset(TYPES[name] for name in ("q8_0", "q4_0", "q4_1"))


def _mul_mat(op: Tensor) -> str | None:
    same = cuda.src(op, 0).ne[3] == cuda.src(op, 1).ne[3]
    return None if same else "ne[3] of the sources is {ne0[3]} and {ne1[3]}"


def _get_rows(op: Tensor) -> str | None:
    return None if cuda.src(op, 0).type in _GET_ROWS else "source 0 is {type0}, of which it takes no rows"


def _copy(op: Tensor) -> str | None:
    a, b = cuda.src(op, 0).type, cuda.src(op, 1).type
    fine = (a is F32 and (b in (F32, F16) or b in _TO_QUANTIZED)) or (a is F16 and b is F16)
    return None if fine else "it does not copy {type0} to {type1}"


def _no_integers(op: Tensor) -> str | None:
    return "source 0 is {type0}" if cuda.src(op, 0).type in (I32, I16) else None


def _one_fourth(op: Tensor) -> str | None:
    return None if op.ne[3] == 1 else "ne[3] of the result is {ne[3]}, not 1"


def _metal_copy(op: Tensor) -> str | None:
    a, b = cuda.src(op, 0).type, op.type
    fine = (a is F32 and (b in (F32, F16) or b in _TO_QUANTIZED)) or (a is F16 and b in (F32, F16))
    return None if fine else "it does not copy {type0} to {type}"


_UNARY = frozenset(
    FIRST_UNARY_KEY + int(f) for f in (UnaryOp.GELU, UnaryOp.SILU, UnaryOp.RELU, UnaryOp.GELU_QUICK, UnaryOp.TANH)
)
_BOTH = frozenset(
    int(op)
    for op in (
        Op.NORM, Op.ADD, Op.MUL, Op.DIV, Op.RMS_NORM, Op.SCALE, Op.SQR, Op.SOFT_MAX, Op.ROPE, Op.IM2COL, Op.SUM_ROWS,
        Op.ARGSORT, Op.ACC, Op.GROUP_NORM, Op.UPSCALE, Op.PAD, Op.LEAKY_RELU, Op.MUL_MAT, Op.MUL_MAT_ID, Op.GET_ROWS,
        Op.CPY, Op.DUP, Op.CONT, Op.CONCAT, Op.DIAG_MASK_INF, *EMPTY_OPS,
    )
)  # fmt: skip

CUDA_RULES: dict[int, OpRule] = {
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.GET_ROWS: _get_rows,
    Op.CPY: _copy,
    Op.DUP: _no_integers,
    Op.REPEAT: _no_integers,
    Op.CONCAT: _no_integers,
}
"""ggml_backend_cuda_supports_op."""

METAL_RULES: dict[int, OpRule] = {
    Op.CPY: _metal_copy,
    Op.DUP: _metal_copy,
    Op.CONT: _metal_copy,
    Op.DIAG_MASK_INF: _one_fourth,
    Op.GET_ROWS: _one_fourth,
}
"""ggml_metal_supports_op."""


def _cuda(name: str) -> Profile:
    return replace(
        profiles.PROFILES[name],
        ggml=_RELEASE.name,
        only=_BOTH | _UNARY | {int(Op.REPEAT), int(Op.CLAMP)},
        never=frozenset(),
        rules=CUDA_RULES,
        rule_keys=None,
        check=None,
        alloc_size=whole_rows,
        offload_min_batch=None,
        events=False,
        extra=(pinned(f"{name}_Host", alignment=_RELEASE.tensor_alignment),),
        features=(),
        has=frozenset(),
        leaves_out="matrices whose rows are split among devices",
        caps=frozenset(("async", "host_buffer")),
        alloc_more="without the gaps between rows",
    )


PROFILES: Mapping[str, Profile] = {
    "custom": replace(profiles.PROFILES["custom"], ggml=_RELEASE.name),
    "CPU": replace(
        profiles.PROFILES["CPU"],
        ggml=_RELEASE.name,
        alignment=_RELEASE.tensor_alignment,
        slack=CPU_SLACK,
        rules={Op.MUL_MAT: cpu.RULES[Op.MUL_MAT]},
        extra=(ExtraBuft("CPU_HBM", "CPU", _RELEASE.tensor_alignment, host=True),),
        features=(),
        has=frozenset(),
        leaves_out="whether this machine has memory of high bandwidth",
        caps=frozenset(("buffer_from_host_ptr",)),
    ),
    "CUDA": _cuda("CUDA"),
    "ROCm": _cuda("ROCm"),
    "Metal": replace(
        profiles.PROFILES["Metal"],
        ggml=_RELEASE.name,
        host=True,
        only=_BOTH | _UNARY,
        rules=METAL_RULES,
        rule_keys=None,
        check=None,
        alloc_size=None,
        offload_min_batch=None,
        events=False,
        copies_async=False,
        graph_optimize=None,
        extra=(),
        features=(),
        has=frozenset(),
        leaves_out="the device's maxBufferLength; buffers rounded up to whole pages",
        caps=frozenset(("buffer_from_host_ptr",)),
        alloc_more="",
    ),
}
"""The profiles of then by their names."""
