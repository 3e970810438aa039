"""Tensors and rates for tests of estimates, made in a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ggmltool.estimate.records import Efficiency, Rates, ShareRange
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, Dims, Tensor

_ONE = ShareRange(1.0, 1.0, 1.0)
WHOLE = Efficiency(*[_ONE] * len(Efficiency._fields))
"""All of every rate is reached."""

PLAIN = Rates("plain", 1e9, 1e12, 1e12, 1e12, 1e12, launch=0.0, efficiency=WHOLE)


def rates(**changes: Any) -> Rates:
    """A device of 1 GB/s and 1 Top/s that launches in no time, but for what is said."""
    return replace(PLAIN, **changes)


def shape(*ne: int) -> Dims:
    """Extents, with ones behind."""
    a, b, c, d = (*ne, 1, 1, 1, 1)[:4]
    return a, b, c, d


def leaf(type: str, *ne: int, id: str = "", user: bool = False) -> Tensor:
    """A weight, a cache, or with `user` an input."""
    return Tensor(TYPES[type], shape(*ne), flags=FLAG_INPUT if user else 0, id=id)


def node(
    op: Op, *src: Tensor, ne: tuple[int, ...], type: str = "f32", id: str = "", params: tuple[int, ...] = ()
) -> Tensor:
    """A node of an op."""
    return Tensor(TYPES[type], shape(*ne), op=op, src=list(src), id=id, op_params=params)


def view(of: Tensor, *ne: int, id: str = "") -> Tensor:
    """The first elements of a tensor."""
    return Tensor(of.type, shape(*ne), of.nb, op=Op.VIEW, src=[of], view_src=of, id=id)
