"""A graph as ggml_build_forward_expand leaves it, and a part of it: what is near a tensor, or belongs to a split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ggmltool.ggml.plan import Plan
from ggmltool.ggml.printable import printable
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.scenario.scenario import LoadedScenario
    from ggmltool.scenario.tensor_info import TensorInfo


def built_graph(
    scenario: LoadedScenario, graph: str, infos: Mapping[str, TensorInfo]
) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """The nodes and the leafs of a graph as ggml_build_forward_expand leaves it: in its order, with its names."""
    built = scenario.start().build(graph)
    nodes, leafs = (
        [infos[t.id]._replace(name=t.name, has_data=t.data != 0) for t in tensors]
        for tensors in (built.nodes, built.leafs)
    )
    return nodes, leafs


def graph_numbers(scenario: LoadedScenario, graph: str | None) -> dict[str, int]:
    """The number of each node in the graph as it was built, as ggml prints it: before a device orders its nodes."""
    return {t.id: i for i, t in enumerate(scenario.start().build(graph or "").nodes)}


def output_ids(scenario: LoadedScenario, graph: str) -> list[str]:
    """The nodes of a graph that are flagged output, else the last node."""
    from ggmltool.ggml.tensor import FLAG_OUTPUT

    nodes = scenario.start().build(graph).nodes
    return [t.id for t in nodes if t.flags & FLAG_OUTPUT] or [t.id for t in nodes[-1:]]


def no_tensor(graph: str, name: str, there: Iterable[str]) -> InspectError:
    """What to say of a name that is none of those that are there."""
    hint = did_you_mean(name, there)
    return InspectError(f"graph {graph} has no tensor {quoted(name)}" + (f"; {hint}" if hint else ""))


def around(ids: Iterable[str], tensors: Tensors, centre: str, radius: int) -> frozenset[str]:
    """The tensors of `ids` that are at most `radius` edges from `centre`, along and against the data's way."""
    beside: dict[str, set[str]] = {id: set() for id in ids}
    for id in beside:
        for src in tensors[id].src:
            if src in beside:
                beside[id].add(src)
                beside[src].add(id)
    seen = {centre}
    edge = {centre}
    for _ in range(radius):
        edge = {other for id in edge for other in beside[id]} - seen
        if not edge:
            break
        seen |= edge
    return frozenset(seen)


def part_of(plan: Plan, tensors: Tensors, centre: str | None, radius: int, split: int | None) -> frozenset[str] | None:
    """What is near `centre`, or in split number `split` of a plan (its nodes, their sources, and what is copied for
    it); None for all of it. Raises InspectError for a part that is not there.
    """
    if split is None:
        return near([*(n.id for n in plan.nodes), *(leaf.id for leaf in plan.leafs)], tensors, centre, radius)
    if split >= len(plan.splits):
        raise InspectError(f"there is no split {split}; the last one is {len(plan.splits) - 1}")
    chosen = plan.splits[split]
    nodes = [n.id for n in plan.nodes[chosen.i_start : chosen.i_end]]
    return frozenset([*nodes, *chosen.inputs, *(src for id in nodes for src in tensors[id].src if src is not None)])


def near(ids: list[str], tensors: Tensors, centre: str | None, radius: int) -> frozenset[str] | None:
    """The part of the graph that is drawn; None for all of it. Raises InspectError for a name that is not there."""
    if centre is None:
        return None
    if centre not in ids:
        hint = did_you_mean(centre, ids)
        raise InspectError(f"the graph has no tensor {printable(centre)}" + (f"; {hint}" if hint else ""))
    return around(ids, tensors, centre, radius)
