"""Quantized rows to float32 and back: through the gguf library, and two types of one and two bits that it lacks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import NotComputable

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE = 1 << 17
"""Elements converted at a time: what a piece needs meanwhile stays in the processor's caches."""


def dequantize(data: NDArray[np.uint8], type: DType) -> NDArray[np.float32]:
    """The float32 values of quantized rows: shape [..., row bytes] to [..., elements].

    Raises NotComputable for q8_1 and q8_K, which hold what is multiplied with weights, and are never read back.
    """
    n = data.shape[-1] // type.type_size * type.block_size
    if not data.size:
        return np.empty((*data.shape[:-1], n), dtype=np.float32)
    rows = data.reshape(-1, data.shape[-1])
    out = np.empty((len(rows), n), dtype=np.float32)
    step = max(1, PIECE // n)
    bits = _BITS.get(type.name)
    quant: Any = None if bits is not None else _gguf_type(type)
    with np.errstate(all="ignore"):
        for i in range(0, len(rows), step):
            piece = np.ascontiguousarray(rows[i : i + step])
            if bits is not None:
                out[i : i + step] = _unpack(piece, type, bits)
                continue
            try:
                out[i : i + step] = quant.dequantize_rows(piece)
            except (AttributeError, NotImplementedError, ValueError):
                raise _no_conversion(type, "read") from None
    return out.reshape(*data.shape[:-1], n)


def quantize(values: NDArray[np.float32], type: DType) -> NDArray[np.uint8]:
    """The bytes of quantized rows: shape [..., elements] to [..., row bytes].

    Raises NotComputable for the types that have no quantization in the gguf library (the k-quants, the iq types).
    """
    if values.shape[-1] % type.block_size:
        raise part_of_a_block(type, values.shape[-1])
    with np.errstate(all="ignore"):
        bits = _BITS.get(type.name)
        if bits is not None:
            return _pack(values, type, bits)
        import gguf

        try:
            data = gguf.quants.quantize(np.ascontiguousarray(values), gguf.GGMLQuantizationType(type.id))
        except (NotImplementedError, ValueError):
            raise _no_conversion(type, "written") from None
    return np.asarray(data).view(np.uint8)


def part_of_a_block(type: DType, n: int) -> NotComputable:
    """What to raise for a quantized row whose last block is not whole."""
    return NotComputable(
        "ggml_row_size",
        f"rows of {n} elements cannot be {type.name}",
        explanation=f"{type.name} is made of blocks of {type.block_size} elements. A release build of ggml does not "
        "check, and its kernels read and write beyond the row",
    )


@cache
def _gguf_type(type: DType) -> Any:
    """The gguf library's class of a type, its grid made; None if it has none."""
    import gguf

    quant = getattr(gguf.quants, type.name.upper(), None)
    if quant is not None:
        quant.init_grid()
    return quant


def _no_conversion(type: DType, verb: str) -> NotComputable:
    return NotComputable(
        "ggml_get_type_traits",
        f"values of type {type.name} cannot be {verb} here",
        explanation=f"the gguf library has no conversion for {type.name}; planning is possible, computing is not",
    )


_BITS = {"q1_0": 1, "q2_0": 2}
"""Types whose blocks are a half-precision scale and after it so many bits for each element, the lowest first."""


def _unpack(rows: NDArray[np.uint8], type: DType, bits: int) -> Any:
    """dequantize_row_q1_0: -1 or 1 times the scale; dequantize_row_q2_0: -1 to 2 times the scale."""
    blocks = rows.reshape(-1, type.type_size)
    scale = blocks[:, :2].view(np.float16).astype(np.float32)
    codes = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    numbers = codes.reshape(len(blocks), -1).astype(np.float32)
    return ((2 * numbers - 1 if bits == 1 else numbers - 1) * scale).reshape(len(rows), -1)


def _round_away(values: NDArray[np.float32]) -> Any:
    """C's roundf: to the nearest whole number, halves away from zero."""
    whole = np.trunc(values)
    return whole + np.copysign(np.abs(values - whole) >= 0.5, values)


def _pack(values: NDArray[np.float32], type: DType, bits: int) -> NDArray[np.uint8]:
    """quantize_row_q1_0_ref: the signs, by the mean size; quantize_row_q2_0_ref: the nearest, by the largest."""
    blocks = values.reshape(-1, type.block_size)
    size = np.abs(blocks)
    if bits == 1:
        # One after the other, as C adds them up.
        scale = np.cumsum(size, axis=1, dtype=np.float32)[:, -1:] / np.float32(type.block_size)
        codes = blocks >= 0
    else:
        scale = size.max(axis=1, keepdims=True)
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
        codes = np.clip(_round_away(blocks * inverse) + 1, 0, 3)
    places = codes.astype(np.uint8).reshape(len(blocks), -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    packed = np.bitwise_or.reduce(places, axis=2)
    half = scale.astype(np.float16).view(np.uint8)
    return np.concatenate((half, packed), axis=1).reshape(*values.shape[:-1], -1)
