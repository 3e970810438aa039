"""A graph: its nodes and leafs in the graph's order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import field

from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_PARAM, Dims, Tensor, op_desc
from ggmltool.show.document import ReleaseDocument, Row, StepDocument


class GraphTensor(Row):
    """A node or leaf: extents `ne`, strides in bytes `nb`, the names of its sources; `id` None for the scheduler's
    own."""

    index: int
    id: str | None
    name: str
    op: str
    op_desc: str
    type: str
    ne: Dims
    nb: Dims
    param: bool
    src: list[str | None]

    @classmethod
    def all(cls, tensors: Iterable[Tensor]) -> list[GraphTensor]:
        """Tensors in the graph's order."""
        out = []
        for i, t in enumerate(tensors):
            src, param = [None if s is None else s.label for s in t.src], bool(t.flags & FLAG_PARAM)
            out.append(cls(i, t.id or None, t.name, Op(t.op).name, op_desc(t), t.type.name, t.ne, t.nb, param, src))
        return out


class BuiltGraph(ReleaseDocument, kw_only=True):
    """`graph --json`: nodes and leafs in the graph's order, as the scenario builds it or as the scheduler allocates it.

    `of` says whose graph it is.
    """

    view = "graph"
    in_ggmls_words = True
    kind: Literal["graph"] = "graph"
    graph: str
    of_: Literal["scenario"] = field(default="scenario", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]


class SchedulerGraph(StepDocument, kw_only=True):
    """`graph --sched --json`: the graph that the scheduler hands to the allocator, with its copies."""

    view = "graph"
    in_ggmls_words = True
    kind: Literal["graph"] = "graph"
    of_: Literal["scheduler"] = field(default="scheduler", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]
