"""A graph cut into layers: which nodes run where their layer lies, and which depend on the layer after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ggmltool.estimate.forecast import nodes_of
from ggmltool.estimate.records import Estimate, Link, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.sources.llama.place.needs import PlacedSplit
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placer


class Anatomy:
    """One graph of a captured model, `nodes` in ggml's order.

    A node that uses a weight or writes a cache is an anchor: ggml_backend_sched chooses its device by where that lies,
    whatever the rest of the graph does, and nodes between two anchors of a layer go by these. `layers` has for every
    node the layer of the last anchor before it, or its own; None before the first. `border` says of each whether it
    comes after an anchor of its layer and before one of another, which has a say in where it runs. `runs` numbers the
    stretches of one layer's nodes, of which a layer may have several. `index` finds a node by its identity, `weights`
    are ids. `last_use` is the last node that reads a node or a view of it, `uses` how often each tensor is read, by
    identity. `reordered` is for those who ask what devices do to splits.
    """

    def __init__(self, placer: Placer, graph: str, nodes: Sequence[Tensor], cached: int | None) -> None:
        self.name = graph
        self.nodes = nodes
        self.n_tokens = placer.parts.n_tokens(placer.parts.graphs[graph])
        self.work = GraphWork(nodes, cached)
        n_layer = placer.parts.n_layer
        anchors = _anchors(placer, nodes, n_layer)
        self.layers: list[int | None] = []
        self.border = [False] * len(nodes)
        here: int | None = None
        last = -1
        for i, il in enumerate(anchors):
            if il is not None:
                if il != here:
                    self.border[last + 1 : i] = [True] * (i - last - 1)
                here, last = il, i
            self.layers.append(here)
        self.border[last + 1 :] = [True] * (len(nodes) - last - 1)
        changes = (i > 0 and il != self.layers[i - 1] for i, il in enumerate(self.layers))
        self.runs = list(accumulate(changes, initial=0))[1:]
        self.weights = set(placer.parts.roles)
        self.index = index = {id(n): i for i, n in enumerate(nodes)}
        self.last_use = list(range(len(nodes)))
        self.reordered: dict[tuple[object, int, int], bool] = {}
        self.uses: dict[int, int] = {}
        for i, n in enumerate(nodes):
            for s in n.src:
                if s is not None:
                    self.uses[id(s)] = self.uses.get(id(s), 0) + 1
                    at = index.get(id(root_of(s)))
                    if at is not None:
                        self.last_use[at] = i


def anatomies(placer: Placer, cached: int | None = None) -> list[Anatomy]:
    """Every graph of a captured model; `cached` is how many tokens the caches hold, as in `work_of`."""
    model = placer.place(PlaceOptions(n_gpu_layers=0, parallel=False)).model
    compiled = Compiled(model)
    return [Anatomy(placer, name, nodes_of(compiled, name), cached) for name in model.graphs]


def _anchors(placer: Placer, nodes: Sequence[Tensor], n_layer: int) -> list[int | None]:
    """The layer of the weight or cache that a node uses, the output's being the last; -1 is the input's."""
    parts = placer.parts
    role_of = {
        (weight, node): -1 if role.kind == "input" else n_layer if role.kind == "output" else role.il
        for weight, roles in parts.roles.items()
        for role in roles
        for node in role.nodes
    }
    caches = {spec.id: -1 if il is None else min(il, n_layer - 1) for spec, il in parts.caches}
    out: list[int | None] = []
    for n in nodes:
        found = caches.get(root_of(n).id)
        for s in n.src:
            if s is not None and s.id in parts.roles:
                found = role_of.get((s.id, n.id), found)
        out.append(found)
    return out


_GPU = Rates("a GPU", 600e9, 25e12, 80e12, 80e12, 160e12, to_device=Link(20e9, 8e9), from_device=Link(20e9, 8e9))
_CPU = Rates("a CPU", 60e9, 1e12, 1e12, 1e12, 2e12, launch=2e-6)

TYPICAL: Mapping[str, Rates] = {
    "gpu": _GPU,
    "igpu": Rates("an integrated GPU", 90e9, 3e12, 6e12, 6e12, 6e12),
    "accel": Rates("an accelerator", 60e9, 2e12, 4e12, 4e12, 8e12),
    "cpu": _CPU,
}
"""Rates of a device whose own are not known, by its type: good enough to order placements, not to be shown."""


class Request(NamedTuple):
    """What is to be fast: so many tokens of a prompt, then so many generated, with `cached` in the cache before."""

    prompt: int = 512
    generated: int = 128
    cached: int = 4096


class Seconds(NamedTuple):
    """Estimates for one prompt token in a whole batch and for one generated token of each sequence."""

    prompt: Estimate
    token: Estimate

    def of(self, request: Request) -> float:
        """The likely seconds of a request."""
        return request.prompt * self.prompt.mid + request.generated * self.token.mid


class Speed:
    """The seconds of placements of one captured model. A graph of few tokens is that of a generated token."""

    def __init__(self, placer: Placer, graphs: Sequence[Anatomy], rates: Mapping[str, Rates], request: Request) -> None:
        devices = (*placer.gpus, *placer.accels, placer.cpu)
        types = {d.name: d.type or placer.profile(d).type for d in devices}
        self.rates = {name: rates.get(name) or TYPICAL.get(type, _CPU) for name, type in types.items()}
        self.graphs = {a.name: a for a in graphs}
        self.rated = all(name in rates for name in types)
        self.estimators = {a.name: Estimator(a.work, self.rates) for a in graphs}
        self.request = request
        fewest = min(graphs, key=lambda a: a.n_tokens)
        most = max(graphs, key=lambda a: a.n_tokens)
        self.token, self.prompt = fewest.name, most.name

    def seconds(self, splits: Mapping[str, Sequence[PlacedSplit]]) -> Seconds:
        """The seconds of a plan."""
        each = {name: self.estimators[name].seconds(splits[name]) for name in {self.prompt, self.token}}
        return Seconds(*(each[name].times(1 / self.graphs[name].n_tokens) for name in (self.prompt, self.token)))

    def weight(self, graph: str) -> float:
        """How often a request computes a graph."""
        times = self.request.prompt * (graph == self.prompt) + self.request.generated * (graph == self.token)
        return times / self.graphs[graph].n_tokens
