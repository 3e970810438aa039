"""Extents given as parameters: those of a shape giver or `ne`, and those that came out negative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.ops.registry import Raw
from ggmltool.ggml.tensor import Dims, Tensor
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
