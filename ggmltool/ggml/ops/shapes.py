"""Extents: those given as parameters, those that came out negative, and those that a kernel takes for granted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.ops.explain import show
from ggmltool.ggml.ops.registry import Raw
from ggmltool.ggml.tensor import Dims, Tensor, op_desc
from ggmltool.ggml.version import SIZE_MAX


def target_shape(function: str, b: Tensor | None, ne: list[int] | tuple[int, ...] | None) -> Dims:
    """The extents of repeat and repeat_back: those of the shape giver b, or `ne`."""
    if b is not None:
        return b.ne
    if ne is None:
        raise ValueError(f"{function} needs the tensor whose shape the result gets, or ne")
    dims = [*list(ne), 1, 1, 1]
    return (dims[0], dims[1], dims[2], dims[3])


def read_ne(raw: Raw) -> dict[str, Any]:
    """The parameter `ne` of a captured node."""
    return {"ne": raw.ne}


def new_tensor(ctx: Context, type: DType, ne: Sequence[int]) -> Tensor:
    """A tensor whose extents were computed and may be negative, which ggml lets pass: its strides wrap as size_t do."""
    result = ctx.new_tensor(type, ne)
    if min(ne) < 0:
        a, b, c, d = (nb & SIZE_MAX for nb in result.nb)
        result.set_layout(result.ne, (a, b, c, d))
    return result


def require_same(dst: Tensor, *tensors: Tensor) -> None:
    """What a constructor does not ask and a kernel takes for granted: that the tensors have the same extents."""
    for t in tensors[1:]:
        if t.ne != tensors[0].ne:
            raise not_computable(dst, f"{show(t)} has not the extents of {show(tensors[0])}")


def require_elements(dst: Tensor, *tensors: Tensor) -> None:
    """That there is something to read, where the result has elements of its own."""
    for t in tensors:
        if 0 in t.ne:
            raise not_computable(dst, f"{show(t)} has no elements")


def require_stride(dst: Tensor, stride: int) -> None:
    """That what a transposed convolution adds goes forward."""
    if stride < 1:
        raise not_computable(dst, f"its stride is {stride}")


def not_computable(dst: Tensor, why: str) -> NotComputable:
    """What to raise where the constructor of `dst` asks nothing, and its kernel does not look."""
    return NotComputable(
        "ggml_graph_compute",
        f"{dst.label} ({op_desc(dst)}) cannot be computed: {why}",
        explanation="ggml's constructor does not ask, and its kernels do not look and read or write elsewhere",
    )
