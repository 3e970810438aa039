"""How fast a placement is: the seconds of a request, by rates of the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.records import Estimate, Link, Rates
from ggmltool.estimate.seconds import Estimator
from ggmltool.sources.llama.needs import PlacedSplit
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.anatomy import Anatomy

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
        each = {name: self._graph(name, splits[name]) for name in {self.prompt, self.token}}
        return Seconds(*(each[name].times(1 / self.graphs[name].n_tokens) for name in (self.prompt, self.token)))

    def weight(self, graph: str) -> float:
        """How often a request computes a graph."""
        times = self.request.prompt * (graph == self.prompt) + self.request.generated * (graph == self.token)
        return times / self.graphs[graph].n_tokens

    def _graph(self, name: str, splits: Sequence[PlacedSplit]) -> Estimate:
        return self.estimators[name].seconds(splits)
