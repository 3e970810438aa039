"""A model with its names turned into numbers: what every build of its graphs starts from."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ggmltool.ggml.graph import BuildOrder, CGraph, build_order
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Tensor, cut_name, nbytes_of_empty
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE
from ggmltool.scenario.spec import GraphSpec, ScenarioSpec, TensorSpec

NONE = -1
"""No tensor, no backend."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Loading and planning make many objects and next to no cycles: the collector would walk them all, again and again.

    What is gone when the pause ends is never walked.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(slots=True)
class CompiledTensor:
    """A tensor as it is made anew for every graph: `proto` with its sources as numbers into the graph's table.

    A node's `sources` and `root` are those numbers' own `proto`s.
    """

    proto: Tensor
    src: tuple[int, ...]
    view_src: int
    backend: int
    flags: int
    name: str
    sources: list[Tensor | None] = field(default_factory=list)
    root: Tensor | None = None

    def make(self, index: int) -> Tensor:
        """The tensor anew, without sources."""
        t = self.proto.clone(index)
        t.flags = self.flags
        t.name = self.name
        return t

    def lend(self, index: int) -> Tensor:
        """The one object that there is to lend, a node with its sources: what it was before is of no use any more."""
        t = self.proto
        t.flags = self.flags
        t.name = self.name
        t.buffer = None
        t.data = 0
        t.src = self.sources[:]
        t.view_src = self.root
        t.index = index
        return t


@dataclass(slots=True)
class CompiledGraph:
    """A graph's nodes in the order written. `assigned` are the user's (tensor, backend) pairs, contexts' first.

    `order` is what every build of it comes to (None: that has to be seen each time). `placed` are nodes that the
    program gave memory: tensor, context, bytes from the start of that one's buffer.
    """

    name: str
    nodes: list[CompiledTensor]
    expand: list[int]
    ids: dict[str, int]
    assigned: list[tuple[int, int]]
    uncomputed: frozenset[int]
    order: BuildOrder | None
    placed: list[tuple[int, int, int]]

    def build(self, graph: CGraph, tensor_of: Callable[[int], Tensor]) -> None:
        """Add the graph's nodes to a cgraph, as the program does that builds it."""
        if self.order is not None:
            graph.build_in_order(self.order, tensor_of)
            return
        for e in self.expand:
            if e in self.uncomputed:
                graph.build_forward_order(tensor_of(e))
            else:
                graph.build_forward_expand(tensor_of(e))


class Compiled:
    """A model with its names turned into numbers, made once and used by every run.

    The table of tensors begins with those of the contexts in the order of the file; a graph's nodes follow. Its own
    tensors are lent to one run at a time, for one build of one graph; others make theirs of them.
    """

    def __init__(self, model: ScenarioSpec) -> None:
        self.model = model
        self._to_lend = [True]
        self.ids: dict[str, int] = {}
        for t in model.tensors():
            self.ids[t.id] = len(self.ids)
        backends = {b.name: i for i, b in enumerate(model.backends)}
        self.contexts = [[_compile(t, self.ids, backends, model.release) for t in c.tensors] for c in model.contexts]
        self.graphs = {name: self._graph(g, backends) for name, g in model.graphs.items()}
        self.graph_size = self._graph_size()
        self.cgraph_size = max([self.graph_size, *(len(g.nodes) + len(self.ids) for g in self.graphs.values())])

    def __reduce__(self) -> tuple[type[Compiled], tuple[ScenarioSpec]]:
        return Compiled, (self.model,)

    def borrow(self) -> bool:
        """Whether its tensors can be lent now, and are: until `give_back`. For several threads."""
        try:
            return self._to_lend.pop()
        except IndexError:
            return False

    def give_back(self) -> None:
        """Nobody has its tensors any more."""
        self._to_lend.append(True)

    def _graph(self, g: GraphSpec, backends: dict[str, int]) -> CompiledGraph:
        ids = dict(self.ids)
        for node in g.nodes:
            ids[node.id] = len(ids)
        nodes = [_compile(node, ids, backends, self.model.release) for node in g.nodes]
        everything = [t for c in self.contexts for t in c] + nodes
        # The last one is that of NONE.
        protos = [*(ct.proto for ct in everything), None]
        for ct in nodes:
            ct.sources = [protos[s] for s in ct.src]
            ct.root = protos[ct.view_src]
        assigned = [(i, t.backend) for i, t in enumerate(everything) if t.backend != NONE]
        uncomputed = frozenset(ids[e] for e in g.uncomputed)
        expand = [ids[e] for e in g.expand]
        # What building it comes to; tensors that are there before it may have been given other sources.
        allocated = (c for c, spec in zip(self.contexts, self.model.contexts, strict=True) if spec.buft is not None)
        order: BuildOrder | None = None
        if not any(ct.src for c in allocated for ct in c):
            roots = [(e, e not in uncomputed) for e in expand]
            order = build_order(roots, [ct.proto for ct in everything], [ct.src for ct in everything])
        contexts = {c.name: i for i, c in enumerate(self.model.contexts)}
        placed = [(ids[n.id], contexts[n.within], n.at or 0) for n in g.nodes if n.within is not None]
        return CompiledGraph(g.name, nodes, expand, ids, assigned, uncomputed, order, placed)

    def _graph_size(self) -> int:
        """The scheduler's graph_size: as given, else 2048 raised to the nodes and leafs of the largest graph."""
        given = self.model.scheduler.graph_size
        if given is not None:
            return given
        size = DEFAULT_GRAPH_SIZE
        for g in self.graphs.values():
            if len(g.nodes) + len(self.ids) > size:
                size = max(size, _nodes_and_leafs(g))
        return size


def _nodes_and_leafs(g: CompiledGraph) -> int:
    if g.order is not None:
        return len(g.order.visited)
    n_context = len(g.ids) - len(g.nodes)
    seen: set[int] = set()
    todo = list(g.expand)
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if i >= n_context:
            todo.extend(s for s in g.nodes[i - n_context].src if s != NONE)
    return len(seen)


def _compile(t: TensorSpec, ids: dict[str, int], backends: dict[str, int], release: Release) -> CompiledTensor:
    name = cut_name(t.name)
    proto = Tensor(t.type, t.ne, t.nb, t.op, t.op_params, t.flags, None, None, t.view_offs, name, t.id)
    if release.counts_empty and 0 in t.ne:
        proto.nbytes = nbytes_of_empty(t.type, t.ne, t.nb)
    return CompiledTensor(
        proto,
        tuple(NONE if s is None else ids[s] for s in t.src),
        NONE if t.view_src is None else ids[t.view_src],
        NONE if t.backend is None else backends[t.backend],
        t.flags,
        proto.name,
    )
