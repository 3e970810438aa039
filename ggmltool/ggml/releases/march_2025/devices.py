"""The devices of ggml in March 2025: what CPU, BLAS and CUDA ran, and under which conditions, and the profiles.

From ggml ffed2f04: ggml_backend_cpu_device_supports_op (src/ggml-cpu/ggml-cpu.cpp),
ggml_backend_cuda_device_supports_op (src/ggml-cuda/ggml-cuda.cu). What is not said here is as it is today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import blas, cpu, cuda, profiles
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, word
from ggmltool.ggml.devices.metal import FAMILY
from ggmltool.ggml.devices.op_rules import F16_BY_F16, NO_ALIBI, copies, multiplies, takes_rows_of, unit_stride
from ggmltool.ggml.devices.profile import CAPS, ExtraBuft, Hardware, Profile
from ggmltool.ggml.devices.unsupported import aborts, asserts
from ggmltool.ggml.dtypes import BF16, F16, F32, I16, I32
from ggmltool.ggml.op import EMPTY_OPS
from ggmltool.ggml.tensor import MAX_SRC, Tensor

METAL_FEATURES = ("bfloat",)
"""What a build may have: GGML_METAL_USE_BF16, on a GPU that knows the type."""

_MROPE = 8


def no_bfloat(_: BufferType, hardware: Hardware) -> OpRule | None:
    """A build without bfloat runs nothing, not even a view, that has a bf16 source among the first three."""
    return None if "bfloat" in hardware.features else r.not_types((0, 1, 2), BF16, "and the build has no bfloat").ask


_TO_FLOAT = r.types("f32 f16")
_METAL_COPIES = {
    F32: r.types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl"),
    F16: _TO_FLOAT,
    BF16: r.types("f32 bf16"),
} | dict.fromkeys(r.types("q4_0 q4_1 q5_0 q5_1 q8_0"), _TO_FLOAT)

METAL_RULES: dict[int, r.Rule] = r.by_op(
    {
        "TANH RELU SIGMOID GELU GELU_QUICK SILU ELU SQR SQRT SIN COS": r.all_of(r.contiguous(0), r.f32(0)),
        "ADD SUB MUL DIV CLAMP POOL_2D UPSCALE PAD PAD_REFLECT_1D TIMESTEP_EMBEDDING ARGSORT LEAKY_RELU": r.f32(0),
        "SUM_ROWS SOFT_MAX GROUP_NORM": r.contiguous(0),
        "RMS_NORM NORM": r.all_of(r.multiple(RESULT, "ne0", 4), r.contiguous(0, kind="from 1")),
        "ROPE": r.holds("it has no rope of several sections", lambda op: not word(op, 2) & _MROPE),
        "IM2COL": r.types_of(0, F16),
        "FLASH_ATTN_EXT": r.same_type(1, 2),
        "MUL_MAT MUL_MAT_ID": r.unless(r.not_types(0, F32), r.f32(1)),
        "CPY DUP CONT": copies(_METAL_COPIES),
        "SET": r.types_of(0, (F32, I32)),
        "DIAG_MASK_INF GET_ROWS": r.among(RESULT, "ne3", 1),
        "CONCAT ACC REPEAT SCALE CONV_TRANSPOSE_1D ARGMAX ARANGE SSM_CONV SSM_SCAN": r.ALWAYS,
    }
)
"""All that it ran."""

METAL_EXTRA = (ExtraBuft("Metal_Mapped", FAMILY, alignment=None, max_size=None, host=True),)
"""Memory of the host that the GPU uses where it is."""


_NOT_HOST = tuple(f"source {i} lies in {{buft{i}}}, which is not host memory" for i in range(MAX_SRC))


def host_sources(_: BufferType, __: Hardware) -> OpRule:
    """The CPU supports no op with a source allocated in memory other than the host's; views are not looked at."""

    def check(op: Tensor) -> str | None:
        if op.op not in EMPTY_OPS:
            for i, s in enumerate(op.src):
                if s is not None and s.buffer is not None and not s.buffer.buft.host:
                    return _NOT_HOST[i]
        return None

    return check


CPU_RULES: dict[int, r.Rule] = r.by_op(
    {
        "CPY": cpu.CAN_WRITE,
        "MUL_MAT": cpu.MUL_MAT,
        "SOFT_MAX_BACK": cpu.SOFT_MAX_BACK,
        "IM2COL_BACK": r.f32(0, 1),
        "OUT_PROD": r.all_of(r.not_types(0, F16), cpu.OUT_PROD),
    }
)
"""The ops the CPU ran only under a condition."""

_MUL_MAT_TYPES = r.types(
    "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K q8_K iq1_m iq1_s iq2_s iq2_xs iq2_xxs iq3_s "
    "iq3_xxs iq4_nl iq4_xs"
)
_COPIES = {
    F32: r.types("f32 f16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl"),
    F16: r.F32_OR_F16,
    **dict.fromkeys(r.types("q8_0 q4_0 q4_1 q5_0 q5_1"), r.types("f32")),
}


def _is_whole_to_3(t: Tensor) -> bool:
    return t.nb[3] == t.ne[0] * t.ne[1] * t.ne[2] * t.type.type_size


def _flash_attn(*, tensor_cores: bool) -> r.Rule:
    """Without tensor cores keys and values of f16 have kernels for some heads only."""
    halves = r.all_of(r.types_of((1, 2), F16), *([] if tensor_cores else [_HEADS_OF_256]))
    return r.all_of(
        r.not_types((1, 2), BF16),
        r.any_of(r.all_of(r.among(0, "ne0", 64), r.types_of(1, F16)), r.among(0, "ne0", 128), halves),
    )


_HEADS_OF_256 = r.saying("heads of {ne0[0]} want tensor cores, which the build does not use", r.among(0, "ne0", 256))

CUDA_RULES: dict[int, r.Rule] = r.by_op(
    {
        "ABS SGN NEG STEP GELU SILU RELU SIGMOID HARDSIGMOID HARDSWISH GELU_QUICK TANH EXP GROUP_NORM": r.contiguous(0),
        "MUL_MAT MUL_MAT_ID": r.all_of(F16_BY_F16, multiplies(_MUL_MAT_TYPES)),
        "OUT_PROD": r.f32(0, 1, RESULT),
        "GET_ROWS": takes_rows_of(r.types("f16 f32 q4_0 q4_1 q5_0 q5_1 q8_0")),
        "GET_ROWS_BACK": cuda.GET_ROWS_BACK,
        "CPY": r.any_of(copies(_COPIES, to=1), r.all_of(r.same_type(0, 1), r.contiguous(0, 1))),
        "DUP REPEAT CONCAT": r.not_types(0, (I32, I16)),
        "REPEAT_BACK": cuda.REPEAT_BACK,
        "CONV_TRANSPOSE_1D": r.f32(0, 1),
        "SILU_BACK": r.all_of(r.contiguous(0), r.f32(0)),
        "RMS_NORM_BACK": r.all_of(r.contiguous(0), r.multiple(RESULT, "ne0", 32)),
        "CONT": r.not_types(0, BF16),
        "SOFT_MAX_BACK": NO_ALIBI,
        "ROPE ROPE_BACK": r.all_of(
            unit_stride(0), r.on(0, "source 0 has gaps before dimension 3 (nb[3] = {nb0[3]})", _is_whole_to_3)
        ),
        "FLASH_ATTN_EXT": _flash_attn(tensor_cores=True),
        "ARGMAX COUNT_EQUAL NORM RMS_NORM ADD ADD1 SUB MUL DIV SCALE SQR SQRT SIN COS CLAMP LOG DIAG_MASK_INF SOFT_MAX "
        "IM2COL POOL_2D SUM SUM_ROWS ARGSORT ACC UPSCALE PAD ARANGE TIMESTEP_EMBEDDING LEAKY_RELU RWKV_WKV6 "
        "GATED_LINEAR_ATTN CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK OPT_STEP_ADAMW": r.ALWAYS,
    }
)
"""All that CUDA ran."""


def _cuda(profile: Profile, rules: Mapping[int, r.Rule]) -> Profile:
    """The profile of a build of ggml-cuda."""
    return replace(
        profile,
        others=False,
        rules=rules,
        alloc_size=None,
        alloc_more="",
        features=(),
        has=frozenset(),
        unsupported=asserts("evaluate_and_capture_cuda_graph"),
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
    ),
    "BLAS": replace(_then("BLAS"), rules=blas.RULES | r.by_op({"MUL_MAT": blas.LARGE_PRODUCT})),
    "CUDA": _cuda(_then("CUDA"), CUDA_RULES),
    "ROCm": _cuda(_then("ROCm"), CUDA_RULES | r.by_op({"FLASH_ATTN_EXT": _flash_attn(tensor_cores=False)})),
    "Metal": replace(
        _then("Metal"),
        host=True,
        others=False,
        rules=METAL_RULES,
        check=no_bfloat,
        alloc_size=None,
        alloc_more="",
        offload_min_batch=None,
        events=False,
        copies_async=False,
        graph_optimize=None,
        extra=METAL_EXTRA,
        features=METAL_FEATURES,
        has=frozenset(),
        unsupported=aborts("ggml_metal_encode_node", "unsupported op", "refused"),
    ),
    "RPC": _then("RPC"),
}
"""The profiles by name. Those of other devices then are not known here."""
