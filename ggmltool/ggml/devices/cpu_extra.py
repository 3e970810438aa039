"""The CPU's buffer types for packed weights in ggml 0.20.2: which products run out of them, and what a tensor takes."""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.extra import ExtraBuft, Features
from ggmltool.ggml.dtypes import F32, TYPES, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, n_dims

REPACK = "CPU_REPACK"
AMX = "AMX"

FEATURES = ("avx2", "avx512", "neon", "dotprod", "i8mm", "sve256", "rvv256")
"""Instruction sets that decide what CPU_REPACK packs; `sve256`, `rvv256`: SVE and RVV with vectors of 256 bits."""

_KERNELS: tuple[tuple[Features, int, str], ...] = (
    (frozenset({"avx2"}), 8, "q4_0 q4_K iq4_nl mxfp4"),
    (frozenset({"avx512"}), 8, "q2_K"),
    (frozenset({"sve256", "i8mm"}), 8, "q4_0"),
    (frozenset({"neon", "i8mm"}), 4, "q4_0 q8_0"),
    (frozenset({"neon", "i8mm"}), 8, "q4_K q5_K q6_K"),
    (frozenset({"neon", "dotprod"}), 4, "q4_0 q8_0 iq4_nl mxfp4"),
    (frozenset({"neon", "dotprod"}), 8, "q4_K q5_K q6_K"),
    (frozenset({"rvv256"}), 16, "q4_0 q4_K q2_K iq4_nl q8_0"),
)
"""With all of these features, rows come in groups of so many, for these types."""


def _row_groups(features: Features) -> dict[DType, frozenset[int]]:
    groups: dict[DType, set[int]] = {}
    for needed, rows, types in _KERNELS:
        if needed <= features:
            for name in types.split():
                groups.setdefault(TYPES[name], set()).add(rows)
    return {type: frozenset(rows) for type, rows in groups.items()}


def _host_f32(t: Tensor | None) -> str | None:
    if t is None:
        return "source 1 is missing"
    if t.buffer is not None and not t.buffer.buft.host:
        return "source 1 lies in {buft1}, which is not host memory"
    return None if t.type is F32 else "source 1 is {type1}, not f32"


def repack(features: Features) -> OpRule:
    """What the CPU runs of weights in CPU_REPACK (ggml_repack_get_optimal_repack_type and supports_op of the type)."""
    groups = _row_groups(features)

    def rule(op: Tensor) -> str | None:
        w = op.src[0]
        if op.op not in (Op.MUL_MAT, Op.MUL_MAT_ID):
            return "out of CPU_REPACK it runs MUL_MAT and MUL_MAT_ID, no {op}"
        if w is None or w.buffer is None or w.buffer.buft.family != REPACK:
            return "a source lies in CPU_REPACK, and only source 0 may"
        if n_dims(w) != (2 if op.op == Op.MUL_MAT else 3):
            return "packed weights of {op} have to be " + ("a matrix" if op.op == Op.MUL_MAT else "a stack of matrices")
        rows = groups.get(w.type)
        if rows is None:
            return "this CPU has no kernel for packed {type0}"
        if all(w.ne[1] % n for n in rows):
            return "packed {type0} needs whole groups of rows, and source 0 has {ne0[1]} rows"
        return _host_f32(op.src[1])

    return rule


_TILE_ROWS = 32
_AMX_COLUMNS = {
    TYPES[name]: columns
    for names, columns in (("q4_0 q4_1 q8_0", 32), ("q4_K q5_K q6_K iq4_xs", 256), ("f16", 16))
    for name in names.split()
}
_AMX_EXTRA = {TYPES["q8_0"]: 4, TYPES["q4_K"]: 4, TYPES["q5_K"]: 4, TYPES["iq4_xs"]: 2}
_AMX_PACKED = frozenset(type for type in _AMX_COLUMNS if type.quantized)


def amx(_: Features) -> OpRule:
    """What the CPU runs of weights in AMX memory."""

    def rule(op: Tensor) -> str | None:
        if op.op != Op.MUL_MAT:
            return "out of AMX memory it runs MUL_MAT, no {op}"
        w, x = (*op.src, None, None)[:2]
        if w is None or x is None:
            return "a source is missing"
        if w.buffer is None or w.buffer.buft.family != AMX:
            return "a source lies in AMX memory, and only source 0 may"
        if not is_contiguous(w) or not is_contiguous(x):
            return "a source is not contiguous"
        if op.ne[0] % _TILE_ROWS:
            return "ne[0] of the result is {ne[0]}, no multiple of 32"
        columns = _AMX_COLUMNS.get(w.type)
        if columns is None:
            return "AMX has no kernel for {type0}"
        if w.ne[0] % columns:
            return "rows of {type0} are {ne0[0]} long, not a whole number of tiles"
        return _host_f32(x)

    return rule


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
