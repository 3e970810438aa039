"""The devices of ggml in January 2024: the CPU, CUDA (and ROCm) and Metal.

From that ggml: ggml_backend_cuda_supports_op (ggml-cuda.cu), ggml_metal_supports_op (ggml-metal.m). Its scheduler asks
no device whether it supports an op; these rules say what a graph that is given to one may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ggmltool.ggml.buffer import AllocSize, row_padding_of
from ggmltool.ggml.devices import cpu, profiles
from ggmltool.ggml.devices.combinators import ALWAYS, F32_OR_F16, Rule, among, by_op, not_types, types
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.devices.op_rules import copies, same_ne, takes_rows_of
from ggmltool.ggml.devices.profile import ExtraBuft, Profile, SizeFacts, pinned
from ggmltool.ggml.devices.unsupported import asserts_at
from ggmltool.ggml.dtypes import F16, F32, I16, I32
from ggmltool.ggml.releases.january_2024 import RELEASE
from ggmltool.ggml.tensor import Tensor, nrows

CPU_SLACK = RELEASE.tensor_alignment
"""Bytes that a CPU buffer is larger than asked for, since malloc's address may not be aligned."""


def whole_rows(memory: SizeFacts) -> AllocSize:
    """ggml_backend_cuda_buffer_type_get_alloc_size: rows without gaps between them, the last quantized one padded."""

    def size(t: Tensor) -> int:
        padding = row_padding_of(t, memory.row_padding)
        return nrows(t) * t.type.row_size(t.ne[0]) + padding

    return size


_TO_QUANTIZED = types("q8_0 q4_0 q4_1")
_BOTH: dict[int, Rule] = by_op(
    {
        "GELU SILU RELU GELU_QUICK TANH NORM ADD MUL DIV RMS_NORM SCALE SQR SOFT_MAX ROPE IM2COL SUM_ROWS ARGSORT ACC "
        "GROUP_NORM UPSCALE PAD LEAKY_RELU MUL_MAT MUL_MAT_ID GET_ROWS CPY DUP CONT CONCAT DIAG_MASK_INF": ALWAYS
    }
)

CUDA_RULES: dict[int, Rule] = _BOTH | by_op(
    {
        "CLAMP": ALWAYS,
        "MUL_MAT MUL_MAT_ID": same_ne(3, 0, 1),
        "GET_ROWS": takes_rows_of(types("f16 f32 q4_0 q4_1 q5_0 q5_1 q8_0")),
        "CPY": copies({F32: F32_OR_F16 | _TO_QUANTIZED, F16: types("f16")}, to=1),
        "DUP REPEAT CONCAT": not_types(0, (I32, I16)),
    }
)
"""All that CUDA ran."""

METAL_RULES: dict[int, Rule] = _BOTH | by_op(
    {
        "CPY DUP CONT": copies({F32: F32_OR_F16 | _TO_QUANTIZED, F16: F32_OR_F16}),
        "DIAG_MASK_INF GET_ROWS": among(RESULT, "ne3", 1),
    }
)
"""All that Metal ran."""


def _cuda(name: str) -> Profile:
    return replace(
        profiles.PROFILES[name],
        ggml=RELEASE.name,
        others=False,
        rules=CUDA_RULES,
        check=None,
        alloc_size=whole_rows,
        offload_min_batch=None,
        events=False,
        extra=(pinned(f"{name}_Host", alignment=RELEASE.tensor_alignment),),
        features=(),
        has=frozenset(),
        caps=frozenset(("async", "host_buffer")),
        alloc_more="without the gaps between rows",
        unsupported=asserts_at("ggml_backend_cuda_graph_compute", "ggml-cuda.cu", 10761),
    )


PROFILES: Mapping[str, Profile] = {
    "custom": replace(profiles.PROFILES["custom"], ggml=RELEASE.name),
    "CPU": replace(
        profiles.PROFILES["CPU"],
        ggml=RELEASE.name,
        alignment=RELEASE.tensor_alignment,
        slack=CPU_SLACK,
        rules=by_op({"MUL_MAT": cpu.MUL_MAT}),
        extra=(ExtraBuft("CPU_HBM", "CPU", RELEASE.tensor_alignment, host=True),),
        features=(),
        has=frozenset(),
        caps=frozenset(("buffer_from_host_ptr",)),
    ),
    "CUDA": _cuda("CUDA"),
    "ROCm": _cuda("ROCm"),
    "Metal": replace(
        profiles.PROFILES["Metal"],
        ggml=RELEASE.name,
        host=True,
        others=False,
        rules=METAL_RULES,
        check=None,
        alloc_size=None,
        offload_min_batch=None,
        events=False,
        copies_async=False,
        graph_optimize=None,
        extra=(),
        features=(),
        has=frozenset(),
        caps=frozenset(("buffer_from_host_ptr",)),
        alloc_more="",
        unsupported=asserts_at(
            "ggml_metal_graph_compute",
            "ggml-metal.m",
            1082,
            '!"unsupported op"',
            "{function}: error: unsupported op '{desc}'",
            "refused",
        ),
    ),
}
"""The profiles of January 2024 by their names."""
