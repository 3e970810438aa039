"""The tables of values that ggml's CPU backend keeps, and those of earlier releases, entry by entry as bits.

A table has an entry for every f16 (or for every byte): its index are the bits of the argument. NaN entries are those of
processors without instructions for f16, as the packaged library has them; others keep some of a NaN's low bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.ops.cpu import mathfn

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUIET = 0x400000
_NAN = 0x7E00


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table: ggml's name for it ("" where 0.20.2 has none), the bits of an index, and the type of its values.

    An index of 16 bits is an f16, one of 8 bits is a byte of the format that the table decodes. `text` says what a
    value is, `note` what has become of the table.
    """

    name: str
    symbol: str
    index_bits: int
    type: str
    text: str
    note: str = ""

    def __len__(self) -> int:
        return 1 << self.index_bits


TABLES: dict[str, LookupTable] = {
    table.name: table
    for table in (
        LookupTable(
            "fp16", "ggml_table_f32_f16", 16, "f32", "the f16 as f32", "Earlier releases call it table_f32_f16."
        ),
        LookupTable(
            "gelu",
            "ggml_table_gelu_f16",
            16,
            "f16",
            "GELU by its tanh approximation",
            "Of f32 tensors ggml looks up x rounded to f16, within (-10, 10).",
        ),
        LookupTable(
            "gelu_quick",
            "ggml_table_gelu_quick_f16",
            16,
            "f16",
            "x / (1 + exp(-1.702 x))",
            "Of f32 tensors ggml looks up x rounded to f16.",
        ),
        LookupTable(
            "silu",
            "",
            16,
            "f16",
            "x / (1 + exp(-x))",
            "ggml 0.20.2 has no such table: of an f16 tensor it computes every element, and gets these values; earlier "
            "releases kept them as table_silu_f16.",
        ),
        LookupTable(
            "exp",
            "",
            16,
            "f16",
            "exp(x)",
            "ggml 0.20.2 has no such table: of an f16 tensor it computes every element, and gets these values; earlier "
            "releases kept them as table_exp_f16.",
        ),
        LookupTable("e8m0", "ggml_table_f32_e8m0_half", 8, "f32", "half the scale of an mxfp4 block, 2^(byte - 128)"),
        LookupTable(
            "ue4m3",
            "ggml_table_f32_ue4m3",
            8,
            "f32",
            "half the scale of an nvfp4 block: 4 bits of exponent, 3 of mantissa",
        ),
    )
}
"""The tables by the names that ggmltool gives them."""


@cache
def table_bits(name: str) -> NDArray[Any]:
    """The entries of a table as bits: uint16 where they are f16, uint32 where they are f32."""
    import numpy as np

    with np.errstate(all="ignore"):
        if TABLES[name].index_bits == 8:
            entries: NDArray[Any] = _BYTES[name]().view(np.uint32)
            return entries
        halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
        x = halves.astype(np.float32)
        if name == "fp16":
            bits = x.view(np.uint32)
            return np.where(np.isnan(x), bits | np.uint32(_QUIET), bits)
        values = _half(name, x)
        half_bits: NDArray[Any] = values.view(np.uint16)
        return np.where(np.isnan(values), half_bits & np.uint16(0x8000) | np.uint16(_NAN), half_bits)


def _half(name: str, x: Any) -> Any:
    """The values of a table of f16."""
    import numpy as np

    if name in ("gelu", "gelu_quick"):
        return mathfn.half_table(np, name == "gelu_quick")
    values = mathfn.exp(np, x) if name == "exp" else x / (1 + mathfn.exp(np, -x))
    return values.astype(np.float16)


def _e8m0_half() -> Any:
    """ggml_e8m0_to_fp32_half of every byte."""
    import numpy as np

    return np.ldexp(np.float32(1), np.arange(256, dtype=np.int32) - 128).astype(np.float32)


def _ue4m3() -> Any:
    """ggml_ue4m3_to_fp32 of every byte: the sign bit is not looked at, 0x7f is zero."""
    import numpy as np

    byte = np.arange(256, dtype=np.int32)
    exponent, mantissa = byte >> 3 & 0xF, (byte & 7).astype(np.float32)
    small = np.ldexp(mantissa, -9)
    large = np.ldexp(1 + mantissa / 8, exponent - 7)
    values = np.where(exponent == 0, small, large) / 2
    return np.where(byte == 0x7F, 0, values).astype(np.float32)


_BYTES = {"e8m0": _e8m0_half, "ue4m3": _ue4m3}
