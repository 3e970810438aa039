"""What views need to know of a tensor and the plan does not say: its bytes, where it comes from, its own sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.ggml.tensor import Dims


class TensorInfo(NamedTuple):
    """A tensor of the scenario.

    `nbytes` is ggml_nbytes, `op` ggml_op_desc (the function's name for UNARY and GLU), `symbol` ggml's sign for the
    op in drawings, `flags` the bits of ggml_tensor_flag.
    `src` are the ids of its sources as written, before the scheduler put copies in their place; `address` is where
    the tensor's struct lies (simulated), `has_data` whether it has memory before the graph is allocated.
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


Tensors = Mapping[str, TensorInfo]
"""The tensors of a graph and of the contexts, by id."""
