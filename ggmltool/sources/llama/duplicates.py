"""Weights with several roles, such as tied embeddings: which duplicates there are, and the graphs with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.kept import Exchange, KeptModel, Variant
from ggmltool.scenario.spec import TensorSpec
from ggmltool.sources.llama.bundles import Setup
from ggmltool.sources.llama.choices import Choices
from ggmltool.sources.llama.parts import Parts

_KEPT = 64
"""Variants of a graph that are kept; a search goes through as many as layers."""

Lies = tuple[tuple[str, ...], ...]
"""For every weight of several roles, the buffer type that it has in each."""


class Duplicated(NamedTuple):
    """The weights of several roles where they lie, and how many tensors they are."""

    bindings: list[tuple[Tensor, Buffer]]
    sizes: dict[str, int]
    n_tensors: int


class Duplicates:
    """The weights of a captured model that have several roles, with every duplicate that was ever made of them."""

    def __init__(self, parts: Parts, kept: KeptModel) -> None:
        self.parts = parts
        self.kept = kept
        self.specs: list[TensorSpec] = [w for w in parts.weights if w.view_src is None and len(parts.roles[w.id]) > 1]
        self._unnamed = {t.id for c in parts.inputs for t in c.tensors if not t.name}
        self._made: dict[tuple[str, str], Tensor] = {}
        self._variants: dict[Lies, dict[str, Variant]] = {}

    def lie(self, choices: Choices) -> Lies:
        """Where they lie by these options. Raises PlaceError."""
        roles = self.parts.roles
        return tuple(tuple(choices.weight(spec, role)[0] for role in roles[spec.id]) for spec in self.specs)

    def placed(self, setup: Setup, lies: Lies) -> Duplicated:
        """The tensors that they are there."""
        bindings: list[tuple[Tensor, Buffer]] = []
        sizes: dict[str, int] = {}
        n = 0
        for spec, bufts in zip(self.specs, lies, strict=True):
            for buft in dict.fromkeys(bufts):
                setup.put(bindings, sizes, self._tensor(spec, bufts, buft), buft, USAGE_WEIGHTS)
                n += 1
        return Duplicated(bindings, sizes, n)

    def _tensor(self, spec: TensorSpec, bufts: tuple[str, ...], buft: str) -> Tensor:
        """The weight itself where it lies in its first role, else its duplicate for a buffer type."""
        if buft == bufts[0]:
            return self.kept.placed[spec.id]
        key = (spec.id, buft)
        if key not in self._made:
            self._made[key] = self.kept.duplicate(spec.id, self.parts.unique(f"{spec.id}~{buft}"))
        return self._made[key]

    def variants(self, lies: Lies) -> Mapping[str, Variant]:
        """Every graph as it is then."""
        found = self._variants.get(lies)
        if found is None:
            if len(self._variants) >= _KEPT:
                self._variants.clear()
            found = self._variants[lies] = self._new_variants(lies)
        return found

    def _new_variants(self, lies: Lies) -> dict[str, Variant]:
        moved = self._moved(lies)
        graphs = self.kept.graphs
        if not moved:
            return {name: graph.base for name, graph in graphs.items()}
        out: dict[str, Variant] = {}
        orders = {name: self._leafs(name, moved) for name in graphs}
        named: dict[str, str] = {}
        for name, ids in orders.items():
            at = {id: i for i, id in enumerate(ids)}
            named |= {id: f"leaf_{at[id]}" for id in self.parts.numbered(name)}
        for name, graph in graphs.items():
            duplicates = {t.id: t for by in moved.values() for t in by.values()}
            leafs = [duplicates.get(id) or graph.table[id] for id in orders[name]]
            told = named | {id: f"leaf_{i}" for i, id in enumerate(orders[name]) if id in self._unnamed}
            names = {graph.table[id].index: text for id, text in told.items() if id in graph.table}
            exchanges = [
                Exchange(graph.table[node], graph.table[id], t)
                for node, by in moved.items()
                if node in self.parts.nodes(name)
                for id, t in by.items()
            ]
            out[name] = graph.exchanged(exchanges, leafs, names)
        return out

    def _moved(self, lies: Lies) -> dict[str, dict[str, Tensor]]:
        """For the nodes that use a duplicate: which source is which."""
        moved: dict[str, dict[str, Tensor]] = {}
        for spec, bufts in zip(self.specs, lies, strict=True):
            for role, buft in zip(self.parts.roles[spec.id], bufts, strict=True):
                for node in role.nodes if buft != bufts[0] else ():
                    moved.setdefault(node, {})[spec.id] = self._tensor(spec, bufts, buft)
        return moved

    def _leafs(self, graph: str, moved: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
        nodes = self.parts.nodes(graph)
        changed = {
            node: [by[s].id if s is not None and s in by else s for s in nodes[node].src]
            for node, by in moved.items()
            if node in nodes
        }
        return self.parts.leaf_order(graph).of(changed) if changed else self.parts.leafs(graph)
