"""The devices of ggml in March 2025: what CPU, BLAS and CUDA ran then, and under which conditions, and the profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import EMPTY_OPS, OpRule
from ggmltool.ggml.devices import blas, cpu, cuda, profiles
from ggmltool.ggml.devices.cuda import NOT_CONTIGUOUS
from ggmltool.ggml.devices.extra import ExtraBuft
from ggmltool.ggml.devices.profile import CAPS, Hardware, Profile
from ggmltool.ggml.dtypes import BF16, F16, F32, I16, I32, TYPES, DType
from ggmltool.ggml.op import FIRST_UNARY_KEY, Op, UnaryOp
from ggmltool.ggml.releases.march_2025 import metal as march_2025_metal
from ggmltool.ggml.tensor import MAX_SRC, Tensor, is_contiguous

_NOT_HOST = tuple(f"source {i} lies in {{buft{i}}}, which is not host memory" for i in range(MAX_SRC))


def host_sources(_: BufferType, __: Hardware) -> OpRule:
    """The CPU runs no op that has a source with memory of its own, which views have not, elsewhere than on the host."""

    def check(op: Tensor) -> str | None:
        if op.op not in EMPTY_OPS:
            for i, s in enumerate(op.src):
                if s is not None and s.buffer is not None and not s.buffer.buft.host:
                    return _NOT_HOST[i]
        return None

    return check


def _im2col_back(op: Tensor) -> str | None:
    both = cuda.src(op, 0).type is F32 and cuda.src(op, 1).type is F32
    return None if both else "the sources are {type0} and {type1}, not both f32"


def _out_prod(op: Tensor) -> str | None:
    if cuda.src(op, 0).type is F16:
        return "source 0 is {type0}, neither f32 nor quantized"
    return cpu.RULES[Op.OUT_PROD](op)


CPU_RULES: dict[int, OpRule] = {
    Op.CPY: cpu.RULES[Op.CPY],
    Op.MUL_MAT: cpu.RULES[Op.MUL_MAT],
    Op.SOFT_MAX_BACK: cpu.RULES[Op.SOFT_MAX_BACK],
    Op.IM2COL_BACK: _im2col_back,
    Op.OUT_PROD: _out_prod,
}
"""The ops the CPU ran only under a condition (ggml_backend_cpu_device_supports_op)."""


def _types(names: str) -> frozenset[DType]:
    return frozenset(TYPES[name] for name in names.split())


_MUL_MAT_TYPES = _types(
    "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K q8_K iq1_m iq1_s iq2_s iq2_xs iq2_xxs iq3_s "
    "iq3_xxs iq4_nl iq4_xs"
)
_GET_ROWS_TYPES = _types("f16 f32 q4_0 q4_1 q5_0 q5_1 q8_0")
_COPIES = {
    *((F32, TYPES[name]) for name in ("f32", "f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")),
    *((TYPES[name], F32) for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "f16")),
    (F16, F16),
}


def _mul_mat(op: Tensor) -> str | None:
    a, b = cuda.src(op, 0), cuda.src(op, 1)
    if b.type is F16 and a.type is not F16:
        return "source 1 is f16, and source 0 is {type0}, not f16 too"
    return None if a.type in _MUL_MAT_TYPES else "source 0 is {type0}, which it cannot multiply"


def _all_f32(op: Tensor) -> str | None:
    f32 = op.type is F32 and cuda.src(op, 0).type is F32 and cuda.src(op, 1).type is F32
    return None if f32 else "{type0} and {type1} to {type}: not all are f32"


def _get_rows(op: Tensor) -> str | None:
    return None if cuda.src(op, 0).type in _GET_ROWS_TYPES else "source 0 is {type0}, of which it takes no rows"


def _cpy(op: Tensor) -> str | None:
    a, b = cuda.src(op, 0), cuda.src(op, 1)
    if (a.type, b.type) in _COPIES:
        return None
    if a.type is not b.type:
        return "it copies no {type0} to {type1}"
    return None if is_contiguous(a) and is_contiguous(b) else "it copies {type0} only where both are contiguous"


def _no_small_integers(op: Tensor) -> str | None:
    return "source 0 is {type0}" if cuda.src(op, 0).type in (I32, I16) else None


def _not_bf16(op: Tensor) -> str | None:
    return "source 0 is bf16" if cuda.src(op, 0).type is BF16 else None


def _both_f32(op: Tensor) -> str | None:
    both = cuda.src(op, 0).type is F32 and cuda.src(op, 1).type is F32
    return None if both else "the sources are {type0} and {type1}, not both f32"


def _silu_back(op: Tensor) -> str | None:
    if not is_contiguous(cuda.src(op, 0)):
        return NOT_CONTIGUOUS[0]
    return None if cuda.src(op, 0).type is F32 else "source 0 is {type0}, not f32"


def _rms_norm_back(op: Tensor) -> str | None:
    if not is_contiguous(cuda.src(op, 0)):
        return NOT_CONTIGUOUS[0]
    return "rows are {ne[0]} long, no multiple of 32" if op.ne[0] % _WARP_SIZE else None


_WARP_SIZE = 32


def _contiguous(op: Tensor) -> str | None:
    return None if is_contiguous(cuda.src(op, 0)) else NOT_CONTIGUOUS[0]


def _rope(op: Tensor) -> str | None:
    a = cuda.src(op, 0)
    if a.nb[0] != a.type.type_size:
        return "rows of source 0 have gaps (nb[0] = {nb0[0]})"
    whole = a.nb[3] == a.ne[0] * a.ne[1] * a.ne[2] * a.type.type_size
    return None if whole else "source 0 has gaps before dimension 3 (nb[3] = {nb0[3]})"


def _flash_attn(tensor_cores: bool) -> OpRule:
    def rule(op: Tensor) -> str | None:
        q, k, v = (cuda.src(op, i) for i in range(3))
        if BF16 in (k.type, v.type):
            return "the keys are {type1} and the values {type2}: one is bf16"
        if (q.ne[0] == 64 and k.type is F16) or q.ne[0] == 128:
            return None
        halves = k.type is F16 and v.type is F16
        if halves and (q.ne[0] == 256 or tensor_cores):
            return None
        if halves:
            return "heads of {ne0[0]} want tensor cores, which the build does not use"
        return "heads of {ne0[0]} want keys and values of f16, not {type1} and {type2}"

    return rule


_UNARY = (
    UnaryOp.ABS, UnaryOp.SGN, UnaryOp.NEG, UnaryOp.STEP, UnaryOp.GELU, UnaryOp.SILU, UnaryOp.RELU, UnaryOp.SIGMOID,
    UnaryOp.HARDSIGMOID, UnaryOp.HARDSWISH, UnaryOp.GELU_QUICK, UnaryOp.TANH, UnaryOp.EXP,
)  # fmt: skip
_UNARY_KEYS = frozenset(FIRST_UNARY_KEY + function for function in _UNARY)

CUDA_RULES: dict[int, OpRule] = {
    Op.UNARY: _contiguous,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat,
    Op.OUT_PROD: _all_f32,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: cuda.RULES[Op.GET_ROWS_BACK],
    Op.CPY: _cpy,
    Op.DUP: _no_small_integers,
    Op.REPEAT: _no_small_integers,
    Op.REPEAT_BACK: cuda.RULES[Op.REPEAT_BACK],
    Op.CONCAT: _no_small_integers,
    Op.CONV_TRANSPOSE_1D: _both_f32,
    Op.SILU_BACK: _silu_back,
    Op.RMS_NORM_BACK: _rms_norm_back,
    Op.CONT: _not_bf16,
    Op.SOFT_MAX_BACK: cuda.RULES[Op.SOFT_MAX_BACK],
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    Op.GROUP_NORM: _contiguous,
    Op.FLASH_ATTN_EXT: _flash_attn(tensor_cores=True),
}
"""The ops CUDA ran only under a condition (ggml_backend_cuda_device_supports_op)."""

_CUDA_ALWAYS = (
    Op.ARGMAX, Op.COUNT_EQUAL, Op.NORM, Op.RMS_NORM, Op.ADD, Op.ADD1, Op.SUB, Op.MUL, Op.DIV, Op.SCALE, Op.SQR,
    Op.SQRT, Op.SIN, Op.COS, Op.CLAMP, Op.LOG, Op.DIAG_MASK_INF, Op.SOFT_MAX, Op.IM2COL, Op.POOL_2D, Op.SUM,
    Op.SUM_ROWS, Op.ARGSORT, Op.ACC, Op.UPSCALE, Op.PAD, Op.ARANGE, Op.TIMESTEP_EMBEDDING, Op.LEAKY_RELU,
    Op.RWKV_WKV6, Op.GATED_LINEAR_ATTN, Op.CROSS_ENTROPY_LOSS, Op.CROSS_ENTROPY_LOSS_BACK, Op.OPT_STEP_ADAMW,
)  # fmt: skip

CUDA_RULE_KEYS = frozenset(int(op) for op in CUDA_RULES if op != Op.UNARY) | _UNARY_KEYS
CUDA_KEYS = CUDA_RULE_KEYS | frozenset(int(op) for op in _CUDA_ALWAYS)


def _cuda(profile: Profile, rules: Mapping[int, OpRule]) -> Profile:
    """The profile of a build of ggml-cuda."""
    return replace(
        profile,
        only=CUDA_KEYS,
        never=frozenset(),
        rules=rules,
        rule_keys=CUDA_RULE_KEYS,
        alloc_size=None,
        alloc_more="",
        features=(),
        has=frozenset(),
        description=profile.description.partition(";")[0],
        leaves_out="split buffers, MUSA; that of FLASH_ATTN_EXT the old architectures have less",
    )


_CAPS = frozenset(CAPS) - {"mmap_support"}


def _then(name: str) -> Profile:
    """What a profile had then as now: the name, memory, batches, events."""
    today = profiles.PROFILES[name]
    return replace(today, caps=today.caps & _CAPS, known_caps=_CAPS, ggml="2025-03")


PROFILES: dict[str, Profile] = {
    "custom": _then("custom"),
    "CPU": replace(
        _then("CPU"),
        rules=CPU_RULES,
        check=host_sources,
        extra=(ExtraBuft("CPU_Mapped", "CPU", host=True), ExtraBuft("CPU_HBM", "CPU", host=True)),
        features=(),
        has=frozenset(),
        leaves_out="the buffer types of weights repacked for ARM and AMX",
    ),
    "BLAS": replace(_then("BLAS"), rules={**blas.RULES, Op.MUL_MAT: blas.large_product}),
    "CUDA": _cuda(_then("CUDA"), CUDA_RULES),
    "ROCm": _cuda(_then("ROCm"), {**CUDA_RULES, Op.FLASH_ATTN_EXT: _flash_attn(tensor_cores=False)}),
    "Metal": replace(
        _then("Metal"),
        host=True,
        only=march_2025_metal.KEYS,
        rules=march_2025_metal.RULES,
        rule_keys=march_2025_metal.RULE_KEYS,
        check=march_2025_metal.no_bfloat,
        alloc_size=None,
        alloc_more="",
        offload_min_batch=None,
        events=False,
        copies_async=False,
        graph_optimize=None,
        extra=march_2025_metal.EXTRA,
        features=march_2025_metal.FEATURES,
        has=frozenset(),
        leaves_out="the device's maxBufferLength (give max_size); buffers rounded up to whole pages; GPUs before M1",
    ),
    "RPC": _then("RPC"),
}
"""The profiles by name. Those of other devices then are not known here."""
