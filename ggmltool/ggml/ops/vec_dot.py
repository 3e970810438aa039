"""What the CPU does to the second operand of a product: rounds it to the type its dot product with a weight takes.

Each type of weight has one (`DType.vec_dot_type`): f16 is multiplied with f16, q4_0 with q8_0, q4_K with q8_K. The
result differs from the exact one by that rounding, so the kernels round as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.ops.registry import Arrays


def _round_half_away(xp: Any, values: Any) -> Any:
    return xp.copysign(xp.floor(xp.abs(values) + xp.float32(0.5)), values)


def _q8_0(xp: Any, blocks: Any) -> Any:
    """quantize_row_q8_0 and _q8_1, read back: 8 bits and a half-precision scale per 32 values."""
    scale = xp.abs(blocks).max(axis=-1, keepdims=True) / xp.float32(127)
    inverse = xp.where(scale != 0, 1 / xp.where(scale != 0, scale, 1), 0).astype("float32")
    return _round_half_away(xp, blocks * inverse) * scale.astype("float16").astype("float32")


def _q8_k(xp: Any, blocks: Any) -> Any:
    """quantize_row_q8_K, read back: 8 bits and a float scale per 256 values; the largest value becomes -127."""
    largest = xp.take_along_axis(blocks, xp.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    inverse = xp.where(largest != 0, xp.float32(-127) / xp.where(largest != 0, largest, 1), 0).astype("float32")
    scale = xp.where(inverse != 0, 1 / xp.where(inverse != 0, inverse, 1), 0).astype("float32")
    return xp.minimum(xp.rint(blocks * inverse), 127) * scale


_ROUND: dict[str, Callable[[Any, Any], Any]] = {"q8_0": _q8_0, "q8_1": _q8_0, "q8_K": _q8_k}


def as_dotted(x: Arrays, values: Any, vec_dot_type: str) -> Any:
    """float32 values (last axis: a row) after a trip through `vec_dot_type`."""
    if vec_dot_type == "f32":
        return values
    type = TYPES[vec_dot_type]
    rounding = _ROUND.get(vec_dot_type)
    if rounding is None:
        return x.decode(x.encode(values, type), type)
    blocks = values.reshape(*values.shape[:-1], values.shape[-1] // type.block_size, type.block_size)
    return rounding(x.xp, blocks).reshape(values.shape)
