"""A part of a graph: what is near a tensor, or what belongs to a split."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.plan import Plan, SplitPlan
from ggmltool.ggml.printable import printable
from ggmltool.scenario.errors import did_you_mean
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.state.errors import InspectError


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


def of_split(split: SplitPlan, ids: Iterable[str], tensors: Tensors) -> frozenset[str]:
    """The nodes of a split (`ids`), their sources, and what is copied for it."""
    nodes = list(ids)
    return frozenset([*nodes, *split.inputs, *(src for id in nodes for src in tensors[id].src if src is not None)])


def part_of(plan: Plan, tensors: Tensors, centre: str | None, radius: int, split: int | None) -> frozenset[str] | None:
    """What is near `centre`, or in split number `split` of a plan; None for all of it.

    Raises InspectError for a part that is not there.
    """
    if split is None:
        return near([*(n.id for n in plan.nodes), *(leaf.id for leaf in plan.leafs)], tensors, centre, radius)
    if split >= len(plan.splits):
        raise InspectError(f"there is no split {split}; the last one is {len(plan.splits) - 1}")
    chosen = plan.splits[split]
    return of_split(chosen, [n.id for n in plan.nodes[chosen.i_start : chosen.i_end]], tensors)


def near(ids: list[str], tensors: Tensors, centre: str | None, radius: int) -> frozenset[str] | None:
    """The part of the graph that is drawn; None for all of it. Raises InspectError for a name that is not there."""
    if centre is None:
        return None
    if centre not in ids:
        hint = did_you_mean(centre, ids)
        raise InspectError(f"the graph has no tensor {printable(centre)}" + (f"; {hint}" if hint else ""))
    return around(ids, tensors, centre, radius)
