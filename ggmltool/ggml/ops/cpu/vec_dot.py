"""What the CPU does to the second operand of a product: rounds it to the type its dot product with a weight takes.

Each type of weight has one (`DType.vec_dot_type`): f16 is multiplied with f16, q4_0 with q8_0, q4_K with q8_K. The
result differs from the exact one by that rounding, so the kernels round as well.

Weights with a minimum per block (q4_1, q5_1) meet q8_1, whose blocks also hold their sum, rounded to half precision:
the minimum is multiplied with that. It is done here by one more column per block, the minimum in the weights and the
error of the sum in the other operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.dtypes import F16, TYPES, DType
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.ops.registry import Arrays
from ggmltool.ggml.tensor import Tensor


def _q8(xp: Any, blocks: Any) -> tuple[Any, Any]:
    """The whole numbers and the scale, not yet rounded, of blocks of 32 values, as processors with AVX make them."""
    largest = xp.abs(blocks).max(axis=-1, keepdims=True)
    inverse = xp.where(largest != 0, xp.float32(127) / largest, xp.float32(0))
    return xp.rint(blocks * inverse), largest / xp.float32(127)


def _half(values: Any) -> Any:
    return values.astype("float16").astype("float32")


def _q8_0(xp: Any, blocks: Any) -> Any:
    """quantize_row_q8_0 and _q8_1, read back: 8 bits and a half-precision scale per 32 values."""
    numbers, scale = _q8(xp, blocks)
    return numbers * _half(scale)


def _q8_1_sum_errors(xp: Any, blocks: Any) -> Any:
    """quantize_row_q8_1: by how much the sum that a block holds differs from that of its values."""
    numbers, scale = _q8(xp, blocks)
    total = numbers.sum(axis=-1, keepdims=True)
    return (_half(scale * total) - _half(scale) * total)[..., 0]


def _q8_k(xp: Any, blocks: Any) -> Any:
    """quantize_row_q8_K, read back: 8 bits and a float scale per 256 values; the largest value becomes -127."""
    largest = xp.take_along_axis(blocks, xp.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    zero = xp.float32(0)
    inverse = xp.where(largest != 0, xp.float32(-127) / largest, zero)
    scale = xp.where(inverse != 0, 1 / inverse, zero)
    return xp.minimum(xp.rint(blocks * inverse), 127) * scale


_ROUND: dict[str, Callable[[Any, Any], Any]] = {"q8_0": _q8_0, "q8_1": _q8_0, "q8_K": _q8_k}


def _in_blocks(values: Any, size: int) -> Any:
    n = values.shape[-1]
    if n % size:
        raise NotComputable(
            "ggml_graph_compute",
            f"rows of {n} elements are multiplied in blocks of {size}",
            explanation="ggml does not look and reads beyond the rows",
        )
    return values.reshape(*values.shape[:-1], n // size, size)


def as_dotted(x: Arrays, values: Any, vec_dot_type: str) -> Any:
    """float32 values (last axis: a row) after a trip through `vec_dot_type`."""
    if vec_dot_type == "f32":
        return values
    type = TYPES[vec_dot_type]
    rounding = _ROUND.get(vec_dot_type)
    if rounding is None:
        return x.decode(x.encode(values, type), type)
    return rounding(x.xp, _in_blocks(values, type.block_size)).reshape(values.shape)


def other_operand(x: Arrays, b: Tensor, type: DType, exact: bool = False) -> Any:
    """b in float32, as it is multiplied with weights of `type`; with a column per block for q4_1 and q5_1.

    A GPU multiplies f16 with f16, unless the product is to be `exact`, and everything else in float32.
    """
    if not x.on_host and type is F16 and not exact:
        return x.raw(b) if b.type is F16 else x.f32(b).astype("float16")
    values = x.f32(b)
    if not x.on_host:
        return values
    if b.type.name == type.vec_dot_type:
        return values
    rounded = as_dotted(x, values, type.vec_dot_type or "f32")
    if type.vec_dot_type != "q8_1":
        return rounded
    return x.xp.concatenate((rounded, _q8_1_sum_errors(x.xp, _in_blocks(values, type.block_size))), axis=-1)


def weights(x: Arrays, data: Any, type: DType, exact: bool = False) -> Any:
    """Rows of weights in float32, to be multiplied with `other_operand`; on a GPU f16 as it is, unless `exact`."""
    if not x.on_host and type is F16 and not exact:
        return data
    values = x.decode(data, type)
    if type.vec_dot_type != "q8_1" or not x.on_host:
        return values
    blocks = x.xp.ascontiguousarray(_in_blocks(data, type.type_size)[..., 2:4])
    return x.xp.concatenate((values, blocks.view("float16")[..., 0].astype("float32")), axis=-1)
