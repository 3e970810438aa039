"""The splits of a plan, and the nodes of a model's graph, as the estimator takes them."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.compiled import NONE, Compiled, CompiledTensor


class PlannedCopy(NamedTuple):
    """A tensor that a split copies, and the backend that has it."""

    id: str
    source: str


class PlannedSplit(NamedTuple):
    """A split of a plan with where its inputs come from."""

    backend: str
    i_start: int
    i_end: int
    inputs: tuple[PlannedCopy, ...]


def splits_of(plan: Plan) -> list[PlannedSplit]:
    """The splits of a plan, in order."""
    home = {n.id: n.backend or "" for n in plan.nodes} | {leaf.id: leaf.backend or "" for leaf in plan.leafs}
    return [
        PlannedSplit(s.backend, s.i_start, s.i_end, tuple(PlannedCopy(id, home.get(id, "")) for id in s.inputs))
        for s in plan.splits
    ]


def nodes_of(compiled: Compiled, name: str) -> list[Tensor]:
    """The nodes of a graph in ggml's order, without memory and before any scheduler put copies into them."""
    graph = compiled.graphs[name]
    made = [ct for tensors in compiled.contexts for ct in tensors] + graph.nodes
    table = [ct.make(i) for i, ct in enumerate(made)]
    for ct, t in zip(made, table, strict=True):
        _link(ct, t, table)
    built = CGraph(compiled.cgraph_size, len(table))
    graph.build(built, table.__getitem__)
    return built.nodes


def _link(ct: CompiledTensor, t: Tensor, table: list[Tensor]) -> None:
    t.src = [None if s == NONE else table[s] for s in ct.src]
    if ct.view_src != NONE:
        t.view_src = table[ct.view_src]
