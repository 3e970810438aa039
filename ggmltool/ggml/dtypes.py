"""ggml_type: block sizes, type sizes and traits of every type of ggml 0.20.2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False, repr=False)
class DType:
    """One ggml_type.

    `id` is ggml's number, `block_size` the elements in a block, `type_size` the bytes of a block. `vec_dot_type`
    names the type the CPU converts the other operand of a product to ("" where the CPU has none, which ggml reads
    as type 0, f32); `from_float` says whether the CPU can quantize to it.
    """

    id: int
    name: str
    block_size: int
    type_size: int
    quantized: bool
    vec_dot_type: str
    from_float: bool

    def __repr__(self) -> str:
        return f"<ggml_type {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """There is one object for each type: they are told apart by identity."""
        return _type_called, (self.name,)

    def row_size(self, n: int) -> int:
        """Bytes of a row of `n` elements (ggml_row_size; floors as ggml does in a release build)."""
        return self.type_size * n // self.block_size


def _type_called(name: str) -> DType:
    return TYPES[name]


_TABLE: tuple[tuple[int, str, int, int, bool, str, bool], ...] = (
    (0, "f32", 1, 4, False, "f32", True),
    (1, "f16", 1, 2, False, "f16", True),
    (2, "q4_0", 32, 18, True, "q8_0", True),
    (3, "q4_1", 32, 20, True, "q8_1", True),
    (6, "q5_0", 32, 22, True, "q8_0", True),
    (7, "q5_1", 32, 24, True, "q8_1", True),
    (8, "q8_0", 32, 34, True, "q8_0", True),
    (9, "q8_1", 32, 36, True, "q8_1", True),
    (10, "q2_K", 256, 84, True, "q8_K", True),
    (11, "q3_K", 256, 110, True, "q8_K", True),
    (12, "q4_K", 256, 144, True, "q8_K", True),
    (13, "q5_K", 256, 176, True, "q8_K", True),
    (14, "q6_K", 256, 210, True, "q8_K", True),
    (15, "q8_K", 256, 292, True, "", True),
    (16, "iq2_xxs", 256, 66, True, "q8_K", False),
    (17, "iq2_xs", 256, 74, True, "q8_K", False),
    (18, "iq3_xxs", 256, 98, True, "q8_K", False),
    (19, "iq1_s", 256, 50, True, "q8_K", False),
    (20, "iq4_nl", 32, 18, True, "q8_0", True),
    (21, "iq3_s", 256, 110, True, "q8_K", False),
    (22, "iq2_s", 256, 82, True, "q8_K", False),
    (23, "iq4_xs", 256, 136, True, "q8_K", True),
    (24, "i8", 1, 1, False, "", False),
    (25, "i16", 1, 2, False, "", False),
    (26, "i32", 1, 4, False, "", True),
    (27, "i64", 1, 8, False, "", False),
    (28, "f64", 1, 8, False, "", False),
    (29, "iq1_m", 256, 56, True, "q8_K", False),
    (30, "bf16", 1, 2, False, "bf16", True),
    (34, "tq1_0", 256, 54, True, "q8_K", True),
    (35, "tq2_0", 256, 66, True, "q8_K", True),
    (39, "mxfp4", 32, 17, True, "q8_0", True),
    (40, "nvfp4", 64, 36, True, "q8_0", True),
    (41, "q1_0", 128, 18, True, "q8_0", True),
    (42, "q2_0", 64, 18, True, "q8_0", True),
)

TYPES: dict[str, DType] = {row[1]: DType(*row) for row in _TABLE}
"""Every type by its ggml name."""

TYPES_BY_ID: dict[int, DType] = {t.id: t for t in TYPES.values()}


def _named(names: str) -> frozenset[DType]:
    return frozenset(TYPES[name] for name in names.split())


NO_TO_FLOAT = _named("f32 i8 i16 i32 i64 f64 q8_1 q8_K")
"""ggml_type_traits has no to_float for these (and f32 needs none)."""

NO_FROM_FLOAT_REF = _named("f32 i8 i16 i32 i64 f64 q8_K iq2_xxs iq2_xs iq1_s iq1_m")
"""ggml_type_traits has no from_float_ref for these."""

NO_VEC_DOT = _named("i8 i16 i32 i64 f64 q8_1 q8_K")
"""ggml_type_traits_cpu has no vec_dot for these."""

F32 = TYPES["f32"]
F16 = TYPES["f16"]
BF16 = TYPES["bf16"]
F64 = TYPES["f64"]
I8 = TYPES["i8"]
I16 = TYPES["i16"]
I32 = TYPES["i32"]
I64 = TYPES["i64"]
