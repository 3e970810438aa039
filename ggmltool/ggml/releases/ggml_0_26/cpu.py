"""The CPU device of ggml 0.26: what it multiplies, and what it packs.

From llama.cpp b11549, ggml/src/ggml-cpu/ggml-cpu.cpp: ggml_backend_cpu_device_supports_op; repack.cpp:
ggml_repack_get_optimal_repack_type.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ggmltool.ggml.devices import cpu
from ggmltool.ggml.devices.combinators import Rule, all_of, any_of, by_op, f32, f32_or_f16, holds, param, type_pairs
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.dtypes import BF16, F32, TYPES

_HINT_HADAMARD = 1

_TRANSFORM = all_of(param(1, (_HINT_HADAMARD,), "source 0 is no Hadamard matrix"), f32(0, RESULT))

_OPERANDS = {
    type: frozenset((F32, TYPES[type.vec_dot_type or "f32"]))
    | ({BF16} if (type.vec_dot_type or "f32") == "f32" else set())
    for type in TYPES.values()
}
"""By the type of source 0. One without a dot product has that of f32 in ggml's table, whose number is 0."""

_PRODUCT = type_pairs(
    0, 1, _OPERANDS, "it multiplies {type0} by f32 or by the type that it converts f32 to, not by {type1}"
)

_NO_TRANSFORM = holds("a Hadamard matrix it multiplies by f32 or f16", lambda op: _TRANSFORM.ask(op) is not None)

RULES: dict[int, Rule] = cpu.RULES | by_op(
    {"MUL_MAT": any_of(all_of(_NO_TRANSFORM, _PRODUCT), all_of(_TRANSFORM, f32_or_f16(1)))}
)
"""The ops it runs only under a condition."""

FEATURES = (*cpu.FEATURES, "vxe")
"""Instruction sets that decide what CPU_REPACK packs."""

_KERNELS: cpu.Kernels = (
    *cpu.KERNELS,
    (frozenset({"vxe"}), 4, "q4_0"),
    (frozenset({"neon", "i8mm"}), 4, "q1_0"),
    (frozenset({"neon", "dotprod"}), 4, "q1_0"),
)

EXTRA = tuple(
    replace(extra, rule=partial(cpu.repack, kernels=_KERNELS)) if extra.family == cpu.REPACK else extra
    for extra in cpu.EXTRA
)
"""The buffer types that it has besides its own."""
