"""The CPU's buffer types for packed weights: which products run out of them, and what a tensor takes.

From ggml 0.20.2, src/ggml-cpu: repack.cpp (ggml_repack_get_optimal_repack_type, extra_buffer_type::supports_op),
amx/amx.cpp (the same, ggml_backend_amx_buffer_type_get_alloc_size).
"""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.combinators import (
    Rule,
    all_of,
    contiguous,
    f32,
    holds,
    multiple,
    on,
    present,
    types_of,
)
from ggmltool.ggml.devices.extra import ExtraBuft, Features
from ggmltool.ggml.devices.operands import RESULT, optional, source
from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, n_dims

REPACK = "CPU_REPACK"
AMX = "AMX"

FEATURES = ("avx2", "avx512", "neon", "dotprod", "i8mm", "sve256", "rvv256")
"""Instruction sets that decide what CPU_REPACK packs; `sve256`, `rvv256`: SVE and RVV with vectors of 256 bits."""

Kernels = tuple[tuple[Features, int, str], ...]
"""With all of these features, rows come in groups of so many, for these types."""

KERNELS: Kernels = (
    (frozenset({"avx2"}), 8, "q4_0 q4_K iq4_nl mxfp4"),
    (frozenset({"avx512"}), 8, "q2_K"),
    (frozenset({"sve256", "i8mm"}), 8, "q4_0"),
    (frozenset({"neon", "i8mm"}), 4, "q4_0 q8_0"),
    (frozenset({"neon", "i8mm"}), 8, "q4_K q5_K q6_K"),
    (frozenset({"neon", "dotprod"}), 4, "q4_0 q8_0 iq4_nl mxfp4"),
    (frozenset({"neon", "dotprod"}), 8, "q4_K q5_K q6_K"),
    (frozenset({"rvv256"}), 16, "q4_0 q4_K q2_K iq4_nl q8_0"),
)
"""What CPU_REPACK packs."""


def _row_groups(kernels: Kernels, features: Features) -> dict[DType, frozenset[int]]:
    groups: dict[DType, set[int]] = {}
    for needed, rows, types in kernels:
        if needed <= features:
            for name in types.split():
                groups.setdefault(TYPES[name], set()).add(rows)
    return {type: frozenset(rows) for type, rows in groups.items()}


_ON_HOST_IN_F32 = all_of(
    present(1),
    on(1, "source 1 lies in {buft1}, which is not host memory", lambda t: t.buffer is None or t.buffer.buft.host),
    f32(1),
)


def _only_source_0_in(family: str) -> Rule:
    def test(op: Tensor) -> bool:
        w = optional(op, 0)
        return w is not None and w.buffer is not None and w.buffer.buft.family == family

    return holds(f"a source lies in {family} memory, and only source 0 may", test)


def repack(features: Features, kernels: Kernels = KERNELS) -> OpRule:
    """What the CPU runs of weights in CPU_REPACK: ggml_repack_get_optimal_repack_type and supports_op of the type."""
    groups = _row_groups(kernels, features)
    return all_of(
        holds("out of CPU_REPACK it runs MUL_MAT and MUL_MAT_ID, no {op}", lambda op: op.op in _DIMS),
        _only_source_0_in(REPACK),
        holds(
            "packed weights of MUL_MAT are a matrix, and of MUL_MAT_ID a stack of matrices",
            lambda op: n_dims(source(op, 0)) == _DIMS[op.op],
        ),
        types_of(0, groups.keys(), "which this CPU does not pack"),
        on(
            0,
            "packed {type0} needs whole groups of rows, and source 0 has {ne0[1]} rows",
            lambda w: any(w.ne[1] % n == 0 for n in groups[w.type]),
        ),
        _ON_HOST_IN_F32,
    ).ask


_DIMS: dict[int, int] = {Op.MUL_MAT: 2, Op.MUL_MAT_ID: 3}

_TILE_ROWS = 32
_AMX_COLUMNS = {
    TYPES[name]: columns
    for names, columns in (("q4_0 q4_1 q8_0", 32), ("q4_K q5_K q6_K iq4_xs", 256), ("f16", 16))
    for name in names.split()
}
_AMX_EXTRA = {TYPES["q8_0"]: 4, TYPES["q4_K"]: 4, TYPES["q5_K"]: 4, TYPES["iq4_xs"]: 2}
_AMX_PACKED = frozenset(type for type in _AMX_COLUMNS if type.quantized)


_AMX_RULE = all_of(
    holds("out of AMX memory it runs MUL_MAT, no {op}", lambda op: op.op == Op.MUL_MAT),
    present(0, 1),
    _only_source_0_in(AMX),
    contiguous(0, 1),
    multiple(RESULT, "ne0", _TILE_ROWS),
    types_of(0, _AMX_COLUMNS.keys(), "which AMX does not multiply"),
    on(
        0,
        "rows of {type0} are {ne0[0]} long, not a whole number of tiles",
        lambda w: w.ne[0] % _AMX_COLUMNS[w.type] == 0,
    ),
    _ON_HOST_IN_F32,
)


def amx(_: Features) -> OpRule:
    """What the CPU runs of weights in AMX memory."""
    return _AMX_RULE.ask


def amx_nbytes(t: Tensor) -> int:
    """ggml_backend_amx_get_alloc_size: packed rows with their compensation; of one matrix, whatever ne[2] and ne[3]."""
    if t.type not in _AMX_PACKED:
        return t.nbytes
    blocks = t.ne[0] // t.type.block_size
    return t.ne[1] * blocks * (t.type.type_size + _AMX_EXTRA.get(t.type, 0))


EXTRA = (
    ExtraBuft(REPACK, REPACK, rule=repack),
    ExtraBuft(AMX, AMX, rule=amx, alloc_size=amx_nbytes, alloc_more="packed quantized rows with compensation"),
    ExtraBuft("CPU_Mapped", "CPU", host=True),
    ExtraBuft("CPU_HBM", "CPU", host=True),
)
