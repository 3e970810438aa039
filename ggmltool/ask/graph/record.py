"""A graph: its nodes and leafs in the graph's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import field

from ggmltool.ask.answer import Answer
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_PARAM, Dims, Tensor, op_desc
from ggmltool.show.document import ReleaseDocument, Row, StepDocument
from ggmltool.show.table import Style


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

    view = "record:graph"
    in_ggmls_words = True
    kind: Literal["graph"] = "graph"
    graph: str
    of_: Literal["scenario"] = field(default="scenario", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]


class SchedulerGraph(StepDocument, kw_only=True):
    """`graph --sched --json`: the graph that the scheduler hands to the allocator, with its copies."""

    view = "record:graph"
    in_ggmls_words = True
    kind: Literal["graph"] = "graph"
    of_: Literal["scheduler"] = field(default="scheduler", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]


_END = "=" * 40


def graph(answer: Answer[BuiltGraph | SchedulerGraph], style: Style) -> str:
    """The graph, whatever the width."""
    return graph_print(answer.facts.nodes, answer.facts.leafs)


def graph_print(nodes: Sequence[GraphTensor], leafs: Sequence[GraphTensor]) -> str:
    """ggml_graph_print of a graph without gradients, byte for byte once encoded as UTF-8 with surrogateescape."""
    lines = ["=== GRAPH ===", f"n_nodes = {len(nodes)}"]
    for i, t in enumerate(nodes):
        ne = ", ".join(f"{n:5d}" for n in t.ne[:3])
        lines.append(f" - {i:3d}: [ {ne}] {t.op:>16} {'x' if t.param else ' '}")
    lines.append(f"n_leafs = {len(leafs)}")
    for i, t in enumerate(leafs):
        ne = ", ".join(f"{n:5d}" for n in t.ne[:2])
        label = " " * (16 - len(t.name.encode("utf-8", "surrogateescape"))) + t.name  # `%16s` counts bytes
        lines.append(f" - {i:3d}: [ {ne}] {t.op:>8} {label}")
    return "\n".join([*lines, _END]) + "\n"
