"""The last known state of a run, area by area, and what is otherwise now: the cells that changed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.sched import reader
from ggmltool.ggml.state import HashNodeState
from ggmltool.state.story import cells
from ggmltool.state.story.cells import GONE, Key, Value

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run


_RUN = 64
"""So many entries of a list are compared at once."""


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
        self.plain()
        self.ids()
        self.copies()
        self.splits()
        self._area("own_graph", cells.own_graph_cells(self.sched))
        for name in cells.ARRAYS:
            self._list(name, getattr(self.sched, name, ()))

    def plain(self) -> None:
        """The plain fields of the scheduler."""
        self._area("sched", cells.sched_cells(self.sched))

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
        """The copies of all tensors."""
        self._area("copies", cells.copies_cells(self.sched))

    def copies_of(self, t: Tensor) -> None:
        """The copies of one tensor, and itself: it may be one of them."""
        of = self.sched.copies[t.index]
        if of is not None:
            self._put("copies", ("copies", t.index), reader.copies_state(of))
        for also in (t, t.view_src):
            if also is not None:
                self.tensor(also)

    def splits(self) -> None:
        """All splits."""
        self._area("splits", cells.split_cells(self.sched))

    def last_splits(self) -> None:
        """The split that began last, and the one before."""
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
            self._put("own_graph", ("sched_graph", "keys"), cells.key_values(sched))

    def memory(self) -> None:
        """The reserved plan, free blocks, and buffers."""
        sched = self.sched
        self._area("planners", cells.planner_cells(sched))
        self._area("buffers", cells.buffer_cells(sched))
        allocs = sched.gallocr.node_allocs
        if allocs is not self._allocs:
            self._allocs = allocs
            self._area("allocs", cells.alloc_cells(sched))
        self._area("galloc", cells.galloc_cells(sched))

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
        hn = self.sched.gallocr.hash_nodes
        n_children, n_views, buffer_id = hn.n_children, hn.n_views, hn.buffer_id
        for i in indices:
            now = HashNodeState(
                n_children[i], n_views[i], buffer_id[i], hn.chunk[i], hn.offset[i], hn.allocated[i] != 0
            )
            if known[i] != now:
                known[i] = now
                self.found.append((("hash_node", i), now))

    def tensors(self) -> None:
        """All tensors, and the graphs they are in."""
        tensors, graphs = cells.there_are(self.run, self.sched)
        self._area("tensors", ((("tensor", t.index), reader.tensor_state(t)) for t in tensors.values()))
        self._area("cgraphs", cells.graph_cells(graphs))
        self._made = [t.index for t in self.sched.arena.made()]

    def graphs(self) -> None:
        """The graphs of the scenario that there are."""
        self._area("cgraphs", cells.graph_cells(cells.there_are(self.run, self.sched)[1]))

    def tensor(self, t: Tensor) -> None:
        """One tensor, if there is such a one."""
        key = ("tensor", t.index)
        if key in self._areas["tensors"]:
            self._put("tensors", key, reader.tensor_state(t))

    def placed(self) -> None:
        """The memory of all tensors."""
        known = self._areas["tensors"]
        for t in cells.there_are(self.run, self.sched)[0].values():
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
        """The cells of a list, whose keys are the numbers of its entries."""
        old = self._lists[name]
        if now != old:
            self.found += (((name, i), value) for i, value in _differing(now, old))
            self._lists[name] = list(now)


def _differing(now: Sequence[Any], old: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """The entries that are not as before, GONE for those behind the end."""
    for start in range(0, max(len(now), len(old)), _RUN):
        new_run, old_run = now[start : start + _RUN], old[start : start + _RUN]
        if new_run != old_run:
            for i, (new, before) in enumerate(zip_longest(new_run, old_run, fillvalue=GONE), start):
                if new != before:
                    yield i, new
