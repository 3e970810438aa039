"""A graph as ggml_build_forward_expand leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.scenario.tensor_info import TensorInfo


def built_graph(
    scenario: Scenario, graph: str, infos: Mapping[str, TensorInfo]
) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """The nodes and the leafs of a graph as ggml_build_forward_expand leaves it: in its order, with its names."""
    built = scenario.start().build(graph)
    nodes, leafs = (
        [infos[t.id]._replace(name=t.name, has_data=t.data != 0) for t in tensors]
        for tensors in (built.nodes, built.leafs)
    )
    return nodes, leafs


def graph_numbers(scenario: Scenario, graph: str | None) -> dict[str, int]:
    """The number of each node in the graph as it was built, as ggml prints it: before a device orders its nodes."""
    return {t.id: i for i, t in enumerate(scenario.start().build(graph or "").nodes)}


def output_ids(scenario: Scenario, graph: str) -> list[str]:
    """The nodes of a graph that are flagged output, else the last node."""
    from ggmltool.ggml.tensor import FLAG_OUTPUT

    nodes = scenario.start().build(graph).nodes
    return [t.id for t in nodes if t.flags & FLAG_OUTPUT] or [t.id for t in nodes[-1:]]
