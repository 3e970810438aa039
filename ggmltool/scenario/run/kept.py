"""A model's tensors and graphs, made once and planned again and again, with other memory and other leafs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.buffer import Buffer
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.sched.arena import Arena
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.spec import ScenarioSpec

_APART = 1 << 20
"""Bytes between the addresses of two tensors, besides their own twice: no buffer type makes them overlap."""


class Copies(NamedTuple):
    """Copies that schedulers made, by the index of what they are copies of, and their name before it is cut; and the
    dependencies of each index, several where it is copied to several backends.
    """

    by_name: dict[tuple[int, str], Tensor]
    views: dict[int, list[Tensor]]


class KeptArena(Arena):
    """A scheduler's arena that has the tensors of earlier plans again, where they are alike."""

    __slots__ = ("_copies", "_n_views")

    def __init__(self, graph_size: int, indices: IndexSpace, release: Release, copies: Copies) -> None:
        super().__init__(graph_size, indices, release)
        self._copies = copies
        self._n_views: dict[int, int] = {}

    def clear(self) -> None:
        """Begin anew."""
        super().clear()
        self.slots.clear()
        self._n_views.clear()

    def dup_layout(self, src: Tensor, before: str, after: str) -> Tensor:
        """ggml_dup_tensor_layout; the scheduler makes one copy of each name."""
        by_name = self._copies.by_name
        key = (src.index, before + src.name + after)
        t = by_name.get(key)
        if t is None:
            t = by_name[key] = super().dup_layout(src, before, after)
            return t
        self.check_room(src)
        self._next += 1
        t.flags = 0
        return t

    def view(self, src: Tensor, keeps: Sequence[Tensor] = ()) -> Tensor:
        """ggml_view_tensor, with its sources."""
        i = src.index
        views = self._copies.views.setdefault(i, [])
        n = self._n_views.get(i, 0)
        self._n_views[i] = n + 1
        if n == len(views):
            views.append(super().view(src, keeps))
            # It is made as a copy is, and is none.
            self._copies.by_name.pop((i, f"{src.name} (view)"), None)
            return views[n]
        self.check_room(src)
        self._next += 1
        t = views[n]
        t.flags = 0
        t.src = [*keeps] or [src]
        t.view_src = src.view_src or src
        return t


class KeptModel:
    """The tensors of a model's contexts, by id, and its graphs, by name.

    Whoever plans gives tensors of contexts that have memory another `buffer`; their addresses stay, and do not overlap.
    `indices` are for all tensors, those that schedulers make among them, which are kept in `copies`.
    Raises GgmlError where ggml would not build a graph.
    """

    def __init__(self, model: ScenarioSpec) -> None:
        run = ReservingRun(Compiled(model))
        sched = run.start()
        self.indices = run.indices
        self.copies = Copies({}, {})
        self._address = _APART
        self.placed: dict[str, Tensor] = {t.id: t for context in run.contexts for t in context.tensors}
        for t in self.placed.values():
            t.data = self._next_address(t) if t.view_src is None else t.view_src.data + t.view_offs
        self.graphs: dict[str, KeptGraph] = {}
        for name in model.graphs:
            # As if the graph before were in use: no tensor of another one has an index of its tensors.
            sched.is_reset = False
            graph = run.build(name)
            self.graphs[name] = KeptGraph(graph, run.newest[name][1])

    def _next_address(self, t: Tensor) -> int:
        address = self._address
        self._address += 2 * t.nbytes + _APART
        return address

    def duplicate(self, id: str, new_id: str) -> Tensor:
        """One more tensor like that of `id`, without a buffer yet."""
        t = self.placed[id].clone(self.indices.take())
        t.id = new_id
        t.data = self._next_address(t)
        return t


class Exchange(NamedTuple):
    """A source of a node that is another tensor: `node` has `now` in place of `before`."""

    node: Tensor
    before: Tensor
    now: Tensor


class Variant(NamedTuple):
    """A graph with some leafs exchanged. For its nodes: their sources; for some of them: what they are views of; for
    leafs: their names; for all that pipeline copies flag: the flags.
    """

    graph: CGraph
    sources: Sequence[list[Tensor | None]]
    views: Sequence[tuple[Tensor, Tensor]]
    names: Sequence[tuple[Tensor, str]]
    flags: Sequence[tuple[Tensor, int]]


class KeptGraph:
    """One graph. `table` has its tensors by id, those of contexts among them; `base` is the graph as it was built."""

    def __init__(self, graph: CGraph, table: Iterable[Tensor]) -> None:
        self.table = {t.id: t for t in table}
        tensors = (*graph.leafs, *graph.nodes)
        names, flags = [(t, t.name) for t in graph.leafs], [(t, t.flags) for t in tensors]
        self.base = Variant(graph, [list(n.src) for n in graph.nodes], (), names, flags)
        self._shown = self.base
        self._own_views = [(n, n.view_src) for n in graph.nodes]
        self._is_clean = True

    @property
    def tensors(self) -> list[Tensor]:
        """Leafs and nodes of the graph as it was built."""
        return [*self.base.graph.leafs, *self.base.graph.nodes]

    def exchanged(self, exchanges: Iterable[Exchange], leafs: list[Tensor], names: Mapping[int, str]) -> Variant:
        """The graph with other sources. `leafs` are those that it has then, `names` of some, by their index."""
        by_node: dict[int, dict[int, Tensor]] = {}
        for node, before, now in exchanges:
            by_node.setdefault(node.index, {})[before.index] = now
        edges: list[tuple[Tensor, Tensor]] = []
        base = self.base
        sources = list(base.sources)
        views = []
        for i, node in enumerate(base.graph.nodes):
            by = by_node.get(node.index)
            if by is None:
                continue
            edges += [(s, by[s.index]) for s in sources[i] if s is not None and s.index in by]
            sources[i] = [s if s is None else by.get(s.index, s) for s in sources[i]]
            root = self._own_views[i][1]
            if root is not None and root.index in by:
                views.append((node, by[root.index]))
        graph = base.graph.with_leafs(leafs, edges)
        told = {t.index: name for t, name in base.names} | dict(names)
        flags = {t.index: (t, kept) for t, kept in base.flags}
        for t in leafs:
            flags.setdefault(t.index, (t, t.flags))
        return Variant(graph, sources, views, [(t, told.get(t.index, t.name)) for t in leafs], list(flags.values()))

    def show(self, variant: Variant) -> None:
        """Give every node the sources that it has in this variant, whatever was planned before."""
        if variant is not self._shown:
            for node, root in self._own_views if self._shown.views else ():
                node.view_src = root
            for node, root in variant.views:
                node.view_src = root
            for t, name in variant.names:
                t.name = name
        elif self._is_clean:
            return
        for node, src in zip(variant.graph.nodes, variant.sources, strict=True):
            node.src = src[:]
        self._shown = variant
        self._is_clean = True

    def reserve(self, sched: Scheduler) -> None:
        """ggml_backend_sched_reserve of the variant that is shown. Raises GgmlError."""
        variant = self._shown
        self._is_clean = False
        try:
            sched.reserve(variant.graph.again())
        finally:
            if sched.n_copies > 1:
                for t, flags in variant.flags:
                    t.flags = flags
        self._is_clean = not any(split.inputs for split in sched.splits[: sched.n_splits])


def bind(bindings: Iterable[tuple[Tensor, Buffer]]) -> None:
    """Put tensors into buffers."""
    for t, buffer in bindings:
        t.buffer = buffer
