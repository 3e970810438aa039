"""The last known state of a run, area by area, and what is otherwise now: the cells that changed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.sched import reader
from ggmltool.ggml.state import State
from ggmltool.state.story.points import GONE, Cells, Key, Value

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run

Items = Iterator[tuple[Key, Value]]

_RUN = 64
"""So many entries of a list are compared at once."""

_PLAIN = ("n_splits", "n_copies", "cur_copy", "next_copy", "is_reset", "is_alloc", "op_offload", "hash_size")
_ARRAYS = ("node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids")


def cells_of(run: Run) -> Cells:
    """The whole state of a run now; before it has a scheduler, the tensors of its contexts."""
    if run.sched is None:
        return dict(context_cells(run.persistent))
    shadow = Shadow(run, run.sched)
    shadow.all()
    return dict(shadow.found)


def context_cells(tensors: Iterable[Tensor | None]) -> Items:
    """Tensors of contexts that have memory of their own."""
    return ((("tensor", t.index), reader.tensor_state(t)) for t in tensors if t is not None)


def run_state(run: Run, graph: str) -> State | None:
    """The State of a run now, with a graph of which it has a build; None before it has a scheduler."""
    if run.sched is None:
        return None
    tensors, _ = _there_are(run, run.sched)
    return reader.state_of(run.sched, run.newest[graph][0], tensors.values(), run.buffers)


def _there_are(run: Run, sched: AnyScheduler) -> tuple[dict[int, Tensor], dict[str, CGraph]]:
    """Each tensor there is, by its index: those of contexts that keep them, of the newest builds, and what the
    scheduler made; and the graphs of those builds.

    A build is gone when one of its tensors is: after a reset, others may be made in its place.
    """
    tensors = {t.index: t for t in (*run.persistent, *sched.arena.made()) if t is not None}
    graphs: dict[str, CGraph] = {}
    for name, (graph, table) in reversed(run.newest.items()):
        if all(tensors.get(t.index, t) is t for t in table):
            tensors.update((t.index, t) for t in table)
            graphs[name] = graph
    return tensors, graphs


class Shadow:
    """What is known of the state of a run; each method looks at a part of it and notes in `found` what is new."""

    def __init__(self, run: Run, sched: AnyScheduler) -> None:
        self.run = run
        self.sched: Any = sched
        self.found: list[tuple[Key, Value]] = []
        self._areas: defaultdict[str, dict[Key, Value]] = defaultdict(dict)
        self._lists: defaultdict[str, list[Any]] = defaultdict(list)
        self._allocs: object = None
        self._made: list[int] = []
        self._n_keys: tuple[int, int, int] | None = None
        names = [buft.name for buft in sched.gallocr.bufts]
        self._planners = {name: [b for b, other in enumerate(names) if other == name] for name in names}

    def all(self) -> None:
        """Everything."""
        self.state()
        self.memory()
        self.hash_nodes()
        self.tensors()

    def state(self) -> None:
        """All of the scheduler but its tensors."""
        sched = self.sched
        self.plain()
        self.ids()
        self.copies()
        splits = sched.splits[: max(sched.n_splits, sched.n_begun)]
        self._area("splits", ((("split", i), reader.split_state(split)) for i, split in enumerate(splits)))
        own = {"nodes": sched.nodes, "leafs": sched.leafs, "inputs": sched.graph_inputs}
        cells = {("sched_graph", name): reader.indices(tensors) for name, tensors in own.items()}
        self._area("own_graph", {**cells, ("sched_graph", "keys"): self._key_values()}.items())
        for name in _ARRAYS:
            self._list(name, getattr(sched, name, ()))

    def plain(self) -> None:
        """The plain fields of the scheduler."""
        sched = self.sched
        fields = {name: value for name in _PLAIN if (value := getattr(sched, name, None)) is not None} | {
            "graph.size": sched.own_size,
            "splits_capacity": len(sched.splits),
            "graph_inputs_capacity": getattr(sched, "graph_inputs_capacity", 0),
            "context_buffer_size": sched.arena.size,
        }
        self._area("sched", ((("sched", name), value) for name, value in fields.items()))

    def ids(self) -> None:
        """The backends of all tensors, with their causes."""
        self._list("id", self.sched.ids)
        self._list("cause", self.sched.causes)

    def id_of(self, t: Tensor) -> None:
        """The backend of one tensor."""
        i = t.index
        for name, values in (("id", self.sched.ids), ("cause", self.sched.causes)):
            known = self._lists[name]
            if known[i] != values[i]:
                known[i] = values[i]
                self.found.append(((name, i), values[i]))

    def copies(self) -> None:
        """The copies of the tensors that have any."""
        copies = enumerate(self.sched.copies)
        self._area("copies", ((("copies", t), reader.copies_state(of)) for t, of in copies if of is not None))

    def copies_of(self, t: Tensor) -> None:
        """The copies of one tensor, and itself: it may be one of them."""
        of = self.sched.copies[t.index]
        if of is not None:
            self._put("copies", ("copies", t.index), reader.copies_state(of))
        for also in (t, t.view_src):
            if also is not None:
                self.tensor(also)

    def last_splits(self) -> None:
        """The split that begins last, and the one before."""
        n = self.sched.n_begun
        for i in range(max(n - 2, 0), n):
            self._put("splits", ("split", i), reader.split_state(self.sched.splits[i]))
        self._put("own_graph", ("sched_graph", "inputs"), reader.indices(self.sched.graph_inputs))

    def keys(self) -> None:
        """The scheduler's hash set, where a look-up added a tensor."""
        sched = self.sched
        n_made = 0 if sched.release.reserves else len(sched.arena.made())
        n_keys = len(sched.seen_graphs), len(getattr(sched, "extra_keys", ())), n_made
        if n_keys != self._n_keys:
            self._n_keys = n_keys
            self._put("own_graph", ("sched_graph", "keys"), self._key_values())

    def _key_values(self) -> tuple[int, ...]:
        """The tensors in the scheduler's hash set: leafs, which ggml looks up first, then nodes and others."""
        leafs = dict.fromkeys(t.index for graph in self.sched.seen_graphs for t in graph.leafs)
        return (*leafs, *sorted(self.sched.hash_keys() - leafs.keys()))

    def memory(self) -> None:
        """The reserved plan, free blocks, and buffers."""
        gallocr = self.sched.gallocr
        self._area("planners", self._planner_cells())
        self._area("buffers", self._buffer_cells())
        if gallocr.node_allocs is not self._allocs:
            self._allocs = gallocr.node_allocs
            places = (("node_alloc", gallocr.node_allocs), ("leaf_alloc", gallocr.leaf_allocs))
            self._area("allocs", (((name, i), at) for name, of in places for i, at in enumerate(of)))
        counts = {
            "hash_set.size": gallocr.hash_size, "n_nodes": len(gallocr.node_allocs), "n_leafs": len(gallocr.leaf_allocs)
        }  # fmt: skip
        self._area("galloc", ((("galloc", name), n) for name, n in counts.items()))

    def _planner_cells(self) -> Items:
        """Free blocks, and the highest byte that was ever used."""
        for b, planner in enumerate(reader.planners(self.sched)):
            for c, chunk in enumerate(planner.chunks):
                yield ("free", b, c), reader.free_blocks(chunk)
                yield ("max_size", b, c), chunk.max_size

    def _buffer_cells(self) -> Items:
        """The buffers that graphs are allocated in."""
        for b, tallocr in enumerate(getattr(self.sched, "tallocs", ())):
            yield ("buffer", b), ((tallocr.buffer.base, tallocr.buffer.size),)
        for b, buffer in enumerate(self.sched.gallocr.buffers):
            yield ("buffer", b), None if buffer is None else tuple((part.base, part.size) for part in buffer.chunks)

    def blocks(self, name: str, chunk: int) -> None:
        """The free blocks of a chunk of the memory that is called so."""
        planners = reader.planners(self.sched)
        for b in self._planners[name]:
            of = planners[b].chunks[chunk]
            self._put("planners", ("free", b, chunk), reader.free_blocks(of))
            self._put("planners", ("max_size", b, chunk), of.max_size)

    def hash_nodes(self) -> None:
        """What the allocator knows of all tensors."""
        self._list("hash_node", reader.hash_nodes(self.sched.gallocr))

    def hash_nodes_of(self, indices: Iterable[int]) -> None:
        """What it knows of these tensors."""
        known = self._lists["hash_node"]
        for i in indices:
            now = reader.hash_node(self.sched.gallocr, i)
            if known[i] != now:
                known[i] = now
                self.found.append((("hash_node", i), now))

    def tensors(self) -> None:
        """All tensors, and the graphs they are in."""
        self._area("tensors", context_cells(_there_are(self.run, self.sched)[0].values()))
        self.graphs()
        self._made = [t.index for t in self.sched.arena.made()]

    def graphs(self) -> None:
        """The graphs of the scenario that there are."""
        self._area("cgraphs", self._graph_cells())

    def _graph_cells(self) -> Items:
        for name, graph in _there_are(self.run, self.sched)[1].items():
            yield ("cgraph", name, "nodes"), reader.indices(graph.nodes)
            yield ("cgraph", name, "leafs"), reader.indices(graph.leafs)
            yield ("cgraph", name, "visited"), reader.indices(graph.visited)
            yield ("cgraph", name, "uses"), tuple([graph.use_count(t) for t in graph.visited])

    def tensor(self, t: Tensor) -> None:
        """One tensor, if there is such a one."""
        key = ("tensor", t.index)
        if key in self._areas["tensors"]:
            self._put("tensors", key, reader.tensor_state(t))

    def placed(self) -> None:
        """The memory of all tensors."""
        known = self._areas["tensors"]
        for t in _there_are(self.run, self.sched)[0].values():
            old = known.get(("tensor", t.index))
            if old is None or old.data != t.data or old.buffer != (None if t.buffer is None else t.buffer.base):
                self._put("tensors", ("tensor", t.index), reader.tensor_state(t))

    def unmade(self) -> None:
        """The scheduler's context was cleared."""
        known = self._areas["tensors"]
        for i in self._made:
            if known.pop(("tensor", i), None) is not None:
                self.found.append((("tensor", i), GONE))
        self._made = []

    def made(self, again: bool = False) -> None:
        """What was made in the scheduler's context since it was looked at last, or all of it `again`."""
        made: list[Tensor] = self.sched.arena.made()
        for t in made if again else made[len(self._made) :]:
            self._put("tensors", ("tensor", t.index), reader.tensor_state(t))
        self._made += [t.index for t in made[len(self._made) :]]

    def _put(self, area: str, key: Key, value: Value) -> None:
        old = self._areas[area]
        if old.get(key, GONE) != value:
            old[key] = value
            self.found.append((key, value))

    def _area(self, name: str, now: Iterable[tuple[Key, Value]]) -> None:
        """All cells of an area."""
        new = dict(now)
        old = self._areas[name]
        if new != old:
            self.found += ((key, GONE) for key in old if key not in new)
            self.found += ((key, value) for key, value in new.items() if old.get(key, GONE) != value)
            self._areas[name] = new

    def _list(self, name: str, now: Sequence[Any]) -> None:
        """The cells of a list, whose keys are the numbers of its entries: those that changed, GONE behind the end."""
        old = self._lists[name]
        if now == old:
            return
        for start in range(0, max(len(now), len(old)), _RUN):
            new_run, old_run = now[start : start + _RUN], old[start : start + _RUN]
            if new_run != old_run:
                entries = enumerate(zip_longest(new_run, old_run, fillvalue=GONE), start)
                self.found += (((name, i), new) for i, (new, before) in entries if new != before)
        self._lists[name] = list(now)
