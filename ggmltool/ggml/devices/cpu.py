"""The CPU device: its ops and their conditions, and the buffer types that it has besides its own.

From ggml 0.20.2, src/ggml-cpu: ggml_backend_cpu_device_supports_op (ggml-cpu.cpp), repack.cpp
(ggml_repack_get_optimal_repack_type, extra_buffer_type::supports_op), amx/amx.cpp (the same,
ggml_backend_amx_buffer_type_get_alloc_size).
"""

from __future__ import annotations

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, optional, source
from ggmltool.ggml.devices.op_rules import NO_ALIBI, same_ne
from ggmltool.ggml.devices.profile import ExtraBuft, Features, Profile
from ggmltool.ggml.dtypes import F16, F32, TYPES, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, n_dims
from ggmltool.ggml.version import TENSOR_ALIGNMENT

CAN_WRITE = r.not_types(
    RESULT, r.types("iq3_xxs iq3_s iq2_xxs iq2_xs iq2_s iq1_s iq1_m"), "to which it has no conversion from f32"
)

MUL_MAT = r.type_pairs(
    0,
    1,
    {type: frozenset((F32, TYPES[type.vec_dot_type or "f32"])) for type in TYPES.values()},
    "it multiplies {type0} by f32 or by the type that it converts f32 to, not by {type1}",
)

SOFT_MAX_BACK = r.all_of(r.f32(0, 1), NO_ALIBI)

OUT_PROD = r.all_of(
    r.present(0, 1),
    r.f32(1, RESULT),
    r.any_of(r.f32(0), r.all_of(r.types_of(0, r.QUANTIZED | {F16}), same_ne(2, 0, 1), same_ne(3, 0, 1))),
)

RULES: dict[int, r.Rule] = r.by_op(
    {
        "CPY SET_ROWS": CAN_WRITE,
        "MUL_MAT": MUL_MAT,
        "SOFT_MAX_BACK": SOFT_MAX_BACK,
        "IM2COL_BACK": r.all_of(r.f32(0), r.f32_or_f16(1)),
        "GET_ROWS_BACK": r.f32_or_f16(0),
        "OUT_PROD": OUT_PROD,
        "CONV_2D": r.contiguous(0),
        "SSM_SCAN": r.any_of(r.param(0, (1,), "it keeps several states"), r.among(3, "ne0", 1)),
    }
)
"""The ops it runs only under a condition; it runs all others."""


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
    for needed, rows, names in kernels:
        if needed <= features:
            for name in names.split():
                groups.setdefault(TYPES[name], set()).add(rows)
    return {type: frozenset(rows) for type, rows in groups.items()}


_ON_HOST_IN_F32 = r.all_of(
    r.present(1),
    r.on(1, "source 1 lies in {buft1}, which is not host memory", lambda t: t.buffer is None or t.buffer.buft.host),
    r.f32(1),
)


def _only_source_0_in(family: str) -> r.Rule:
    def test(op: Tensor) -> bool:
        w = optional(op, 0)
        return w is not None and w.buffer is not None and w.buffer.buft.family == family

    return r.holds(f"a source lies in {family} memory, and only source 0 may", test)


def repack(features: Features, kernels: Kernels = KERNELS) -> OpRule:
    """What the CPU runs of weights in CPU_REPACK: ggml_repack_get_optimal_repack_type and supports_op of the type."""
    groups = _row_groups(kernels, features)
    return r.all_of(
        r.holds("out of CPU_REPACK it runs MUL_MAT and MUL_MAT_ID, no {op}", lambda op: op.op in _DIMS),
        _only_source_0_in(REPACK),
        r.holds(
            "packed weights of MUL_MAT are a matrix, and of MUL_MAT_ID a stack of matrices",
            lambda op: n_dims(source(op, 0)) == _DIMS[op.op],
        ),
        r.types_of(0, groups.keys(), "which this CPU does not pack"),
        r.on(
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


_AMX_RULE = r.all_of(
    r.holds("out of AMX memory it runs MUL_MAT, no {op}", lambda op: op.op == Op.MUL_MAT),
    r.present(0, 1),
    _only_source_0_in(AMX),
    r.contiguous(0, 1),
    r.multiple(RESULT, "ne0", _TILE_ROWS),
    r.types_of(0, _AMX_COLUMNS.keys(), "which AMX does not multiply"),
    r.on(
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

PROFILE = Profile(
    "CPU",
    type="cpu",
    alignment=TENSOR_ALIGNMENT,
    host=True,
    any_host=True,
    rules=RULES,
    extra=EXTRA,
    features=FEATURES,
    has=frozenset({"avx2"}),
    caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
)
