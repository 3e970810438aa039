"""Kernels of ggml's CPU that go through the rows of all planes by one stride, as if planes had no gaps.

For a view with gaps between its planes, or a permuted one, they touch other rows than the tensor's own.
"""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.ops.registry import Arrays
from ggmltool.ggml.tensor import Dims, Tensor


def shadow(t: Tensor, type: DType, ne: Dims, nb: Dims, offset: int = 0) -> Tensor:
    """The memory of `t`, from `offset` bytes on, seen as another tensor."""
    other = Tensor(type, ne, nb, name=t.name, id=t.id)
    other.buffer, other.data = t.buffer, t.data + offset
    return other


def flat(x: Arrays, t: Tensor, dim: int = 1) -> Tensor:
    """`t` as such a kernel sees it: packed rows, and the strides above dimension `dim` follow from that one's.

    It is `t` itself where they do anyway, or where the rows would lie beyond the buffer (what ggml finds there is
    nobody's data).
    """
    ne, nb = t.ne, [t.type.type_size, *t.nb[1:]]
    for i in range(dim + 1, 4):
        nb[i] = nb[i - 1] * ne[i - 1]
    if all(n <= 1 or a == b for n, a, b in zip(ne, nb, t.nb, strict=True)):
        return t
    other = shadow(t, t.type, ne, (nb[0], nb[1], nb[2], nb[3]))
    try:
        x.raw(other)
    except NotComputable:
        return t
    return other


def memory(x: Arrays, t: Tensor, type: DType, n: int) -> Any:
    """The `n` elements of `type` from where `t` starts, whatever its own type and strides are."""
    size = n * type.type_size
    return x.raw(shadow(t, type, (n, 1, 1, 1), (type.type_size, size, size, size)))[0, 0, 0]


def flat_operand(x: Arrays, dst: Tensor, i: int = 0, dim: int = 1) -> Any:
    """Source `i` of `dst` as float32, as such a kernel reads it."""
    t = dst.src[i]
    if t is None:
        raise ValueError(f"{dst!r} lacks source {i}")
    return x.f32(flat(x, t, dim))


def packed_operand(x: Arrays, dst: Tensor) -> Any:
    """The only operand as float32, as kernels read it that take the elements of a row to lie side by side."""
    return flat_operand(x, dst, dim=3)
