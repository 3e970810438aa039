"""A graph as ggml_graph_print writes it."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ask.answer import Answer
from ggmltool.ask.graph.record import BuiltGraph, GraphTensor, SchedulerGraph
from ggmltool.show.table import Style

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
