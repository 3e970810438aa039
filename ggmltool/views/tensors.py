"""What views need to know of a tensor and the plan does not say: its bytes, where it comes from, its own sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ggmltool.ggml.tensor import Dims
from ggmltool.views.text import dims, size_between


class TensorInfo(NamedTuple):
    """A tensor of the scenario.

    `nbytes` is ggml_nbytes, `op` ggml_op_desc (the function's name for UNARY and GLU), `symbol` ggml's sign for the
    op in drawings, `flags` the bits of ggml_tensor_flag.
    `src` are the ids of its sources as written, before the scheduler put copies in their place; `address` is where
    the tensor's struct lies (simulated), `has_data` whether it has memory before the graph is allocated.

    A log knows less: there `type` is "", and `nbytes` can be `slack` bytes too small, since ggml prints whole K and M.
    """

    id: str
    name: str
    type: str
    ne: Dims
    nbytes: int
    op: str = "NONE"
    symbol: str = "none"
    flags: int = 0
    src: tuple[str | None, ...] = ()
    view_src: str | None = None
    address: int = 0
    has_data: bool = False
    slack: int = 0

    @property
    def shape(self) -> str:
        """`f32[4, 3]`; "" where it is not known."""
        return f"{self.type}{dims(self.ne)}" if self.type else ""


Tensors = Mapping[str, TensorInfo]
"""The tensors of a graph and of the contexts, by id."""


def bytes_of(infos: Iterable[TensorInfo]) -> str:
    """How many bytes some tensors have together, for people: a number, or between which two it lies."""
    low = high = 0
    for info in infos:
        low += info.nbytes
        high += info.nbytes + info.slack
    return size_between(low, high)


def bytes_json(infos: Iterable[TensorInfo]) -> dict[str, Any]:
    """The same for programs: `nbytes`, and `nbytes_max` where it is not exact."""
    there = list(infos)
    nbytes, slack = sum(info.nbytes for info in there), sum(info.slack for info in there)
    return {"nbytes": nbytes} | ({"nbytes_max": nbytes + slack} if slack else {})
