"""A graph cut into layers: which nodes run where their layer lies, and what one needs at once of a compute buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ggmltool.estimate.forecast import nodes_of
from ggmltool.estimate.records import Estimate, Link, PlacedSplit, Rates, SplitCopy
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.ggml.device import SEEN_BEHIND, Device, SplitNodes
from ggmltool.ggml.op import INPLACE_OPS
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.scenario.run.compiled import Compiled
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


class LayerSeconds(NamedTuple):
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

    def seconds(self, splits: Mapping[str, Sequence[PlacedSplit]]) -> LayerSeconds:
        """The seconds of a plan."""
        each = {name: self.estimators[name].seconds(splits[name]) for name in {self.prompt, self.token}}
        return LayerSeconds(*(each[name].times(1 / self.graphs[name].n_tokens) for name in (self.prompt, self.token)))

    def weight(self, graph: str) -> float:
        """How often a request computes a graph."""
        times = self.request.prompt * (graph == self.prompt) + self.request.generated * (graph == self.token)
        return times / self.graphs[graph].n_tokens


class LayerPeak(NamedTuple):
    """Bytes that a layer's inner nodes need at once on a GPU; `before_next` if the next layer is on that GPU, too;
    `single` are those of the largest of their results, which need one buffer."""

    alone: int
    before_next: int
    single: int = 0


Leafs = Sequence[Mapping[str, int]]
"""By layer: graph inputs, and weights of the CPU's, that inner nodes on a GPU read, with the last node that does."""


class Peaks:
    """The peaks of one GPU in one graph, planned to these splits.

    When a node is computed on the GPU, three kinds of tensors are in its compute buffer. What inner nodes of the layer
    made there before, and this node or a later one reads. What was made elsewhere, or copied there, and this node or a
    later one of its split reads: splits copy before they begin (and do not end where no other layer comes between).
    And what inner nodes of the layer read before and such of the next layer read again: the scheduler copies a tensor
    once to each backend. The node's own result comes to that, unless it may be computed in place of a source. The
    allocator gives no two of them the same memory.

    A device that computes a split in an order of its own has only a node's own sources and result at once for certain.
    """

    def __init__(self, a: Anatomy, splits: Sequence[PlacedSplit], device: Device) -> None:
        self.a = a
        self.buft = device.buft
        self.split_of = [k for k, split in enumerate(splits) for _ in range(split.i_start, split.i_end)]
        mine = [split for split in splits if split.backend == device.name]
        self.copied = {c.id for split in mine for c in split.inputs}
        # A view lies where its root does, and is not computed.
        self.inner: dict[int, list[int]] = {}
        for split in mine:
            for i in range(split.i_start, split.i_end):
                il = a.layers[i]
                if il is not None and il >= 0 and not a.border[i] and not a.nodes[i].is_view_op:
                    self.inner.setdefault(il, []).append(i)
        self._made = {i for nodes in self.inner.values() for i in nodes}
        self._in_order = not any(_reorders(a, split, device) for split in mine)

    def leafs(self, n: int) -> Leafs:
        """The leafs that the inner nodes of each of `n` layers read."""
        return [
            {id: i for i in self.inner.get(il, ()) for id, s in self.outside(i, il).items() if self.is_leaf(s)}
            for il in range(n)
        ]

    def of(self, n: int, leafs: Leafs) -> list[LayerPeak]:
        """The peak of each of `n` layers; `leafs` are what each reads at least, however many units spill."""
        return [self._peak(il, leafs[il + 1] if il + 1 < n else {}) for il in range(n)]

    def _peak(self, il: int, next_leafs: Mapping[str, int]) -> LayerPeak:
        nodes = self.inner.get(il, [])
        coming = self._coming(il, nodes)
        alive: dict[int, int] = {}
        read: dict[str, int] = {}
        alone = before_next = single = 0
        for i in nodes:
            alive = {j: size for j, size in alive.items() if self.a.last_use[j] >= i}
            node = self.a.nodes[i]
            own = 0 if node.view_src is not None else self.size(node)
            single = single if node.op in INPLACE_OPS else max(single, own)
            kept = alive
            if not self._in_order:
                read_now = {self.a.index.get(id(root_of(s))) for s in node.src if s is not None}
                kept = {j: size for j, size in alive.items() if j in read_now}
            here = sum(kept.values()) + sum(coming[i].values()) + (0 if node.op in INPLACE_OPS else own)
            alone = max(alone, here)
            if self._in_order:
                here += sum(size for id, size in read.items() if id not in coming[i] and next_leafs[id] > i)
            before_next = max(before_next, here)
            if own:
                alive[i] = own
            read.update({id: self.size(s) for id, s in self.outside(i, il).items() if id in next_leafs})
        return LayerPeak(alone, before_next, single)

    def _coming(self, il: int, nodes: Sequence[int]) -> dict[int, Mapping[str, int]]:
        """For each node: what comes from outside the layer to it and to later ones of its split."""
        out: dict[int, Mapping[str, int]] = {}
        later: dict[str, int] = {}
        split = (-1, -1)
        for i in reversed(nodes):
            if (self.split_of[i], self.a.runs[i]) != split or not self._in_order:
                later, split = {}, (self.split_of[i], self.a.runs[i])
            now = {id: self.size(s) for id, s in self.outside(i, il).items()}
            later = later | {id: max(size, later.get(id, 0)) for id, size in now.items()}
            out[i] = later
        return out

    def outside(self, i: int, il: int) -> dict[str, Tensor]:
        """The sources of a node that other layers or backends made, or that are copied to the GPU, by their root."""
        out: dict[str, Tensor] = {}
        for s in self.a.nodes[i].src:
            if s is None:
                continue
            root = root_of(s)
            at = self.a.index.get(id(root))
            mine = at is not None and at in self._made and self.a.layers[at] == il
            if not mine and (s.id in self.copied or at is not None):
                out[root.id] = s
        return out

    def is_leaf(self, s: Tensor) -> bool:
        """Whether no node made a tensor."""
        return id(root_of(s)) not in self.a.index

    def size(self, t: Tensor) -> int:
        """What a tensor takes in the buffer."""
        size, alignment = self.buft.get_alloc_size(t), self.buft.alignment
        return -(-size // alignment) * alignment


def _reorders(a: Anatomy, split: PlacedSplit, device: Device) -> bool:
    """Whether a device computes the nodes of a split in another order."""
    if device.graph_optimize is None:
        return False
    key = (device.graph_optimize, split.i_start, split.i_end)
    if key not in a.reordered:
        nodes = SplitNodes(a.nodes[split.i_start : split.i_end], a.nodes[split.i_end : split.i_end + SEEN_BEHIND])
        ordered = device.graph_optimize(nodes, lambda t: a.uses.get(id(t), 0), lambda t, until: None)
        a.reordered[key] = ordered != nodes
    return a.reordered[key]


class Layer(NamedTuple):
    """A layer's share: likely seconds, bytes at once in a GPU's compute buffer (more `before_next`, a layer on the same
    GPU), those of a `single` tensor there, changes from one backend to another. Each is the least that any placement
    has in which the layer's weights lie as in the one that was measured.
    """

    seconds: float
    compute: int
    before_next: int
    single: int
    changes: int


def layer_shares(
    a: Anatomy,
    splits: Sequence[PlacedSplit],
    estimator: Estimator,
    gpus: Sequence[str],
    peaks: Sequence[LayerPeak],
    on_cpu: bool,
) -> list[Layer]:
    """The shares of all layers in a graph that was planned to these splits; those of the input's nodes are left out.

    Anchors run where their weights lie, and the nodes between two anchors of a layer by where these run: so the layer's
    inner nodes run on the same backends in every placement with its weights there. What comes after the last anchor
    runs on some GPU if it does here, for the next layer is on a GPU, too; after a layer that is `on_cpu` it may run
    anywhere.
    """
    where = [split.backend for split in splits for _ in range(split.i_start, split.i_end)]
    n = len(peaks)
    seconds, changes = [0.0] * n, [0] * n
    sums = {backend: estimator.sums(backend)[1] for backend in estimator.rates}
    on_gpus = [sums[gpu] for gpu in gpus]
    for i, il in enumerate(a.layers[: len(where)]):
        if il is None or il < 0:
            continue
        if not a.border[i]:
            backends = [sums[where[i]]]
        else:
            backends = list(sums.values()) if on_cpu or where[i] not in gpus else on_gpus
        seconds[il] += min(before[i + 1] - before[i] for before in backends)
        if i and a.layers[i - 1] == il and not a.border[i] and where[i] != where[i - 1]:
            changes[il] += 1
    for il, cost in _copies(a, splits, estimator, gpus):
        seconds[il] += cost
    return [Layer(seconds[il], *peaks[il], changes[il]) for il in range(n)]


def input_seconds(a: Anatomy, splits: Sequence[PlacedSplit], estimator: Estimator) -> float:
    """The seconds of the input's own nodes, whose weights are always on the CPU."""
    where = [split.backend for split in splits for _ in range(split.i_start, split.i_end)]
    nodes = [i for i, il in enumerate(a.layers[: len(where)]) if il == -1 and not a.border[i]]
    sums = {backend: estimator.sums(backend)[1] for backend in set(where)}
    return sum(sums[where[i]][i + 1] - sums[where[i]][i] for i in nodes)


def arrivals(a: Anatomy, peaks: Peaks, estimator: Estimator, gpu: str, n: int) -> list[float]:
    """The seconds of copies without which the first layer of a GPU cannot begin, for each layer that this may be.

    The graph's inputs that its inner nodes read are copied to the GPU, and at least one tensor computed before.
    """
    out = []
    for il in range(n):
        leafs: dict[str, float] = {}
        made: list[float] = []
        for i in peaks.inner.get(il, ()):
            for s in peaks.outside(i, il).values():
                seconds = min(
                    estimator.copy(SplitCopy(s.id, b, s.nbytes), PlacedSplit(gpu, i, i, ())).mid
                    for b in estimator.rates
                    if b != gpu
                )
                if not peaks.is_leaf(s):
                    made.append(seconds)
                elif s.id not in a.weights:
                    leafs[s.id] = seconds
        out.append(sum(leafs.values()) + min(made, default=0.0))
    return out


def _copies(
    a: Anatomy, splits: Sequence[PlacedSplit], estimator: Estimator, gpus: Sequence[str]
) -> list[tuple[int, float]]:
    """The seconds of copies that a layer has wherever others are: of its weights, and of what its own nodes made."""
    at = {n.id: i for i, n in enumerate(a.nodes)}
    out = []
    for split in splits:
        readers: dict[str, int] = {}
        for i in range(split.i_start, split.i_end):
            for s in a.nodes[i].src:
                if s is not None:
                    readers.setdefault(s.id, i)
        for copied in split.inputs:
            reader, made = readers.get(copied.id), at.get(copied.id)
            il = None if reader is None else a.layers[reader]
            if reader is None or il is None or il < 0:
                continue
            inner = not a.border[reader]
            if made is None and not (inner and copied.id in a.weights):
                continue
            if made is not None and (a.layers[made] != il or a.border[made]):
                continue
            backends = [split.backend] if inner else gpus
            out.append((il, min(estimator.copy(copied, split._replace(backend=b)).mid for b in backends)))
    return out
