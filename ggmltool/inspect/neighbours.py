"""A part of a graph: what is near a tensor, or what belongs to a split."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.plan import SplitPlan
from ggmltool.scenario.tensor_info import Tensors


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
