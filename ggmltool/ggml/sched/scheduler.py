"""ggml_backend_sched: the scheduler's state and its calls: reserve, alloc, reset, synchronize."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend, GraphOrder
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, advice
from ggmltool.ggml.events import Assigned, Entered, IdsChanged, Left, Listener, Logged, Reordered, Synchronized
from ggmltool.ggml.gallocr import Gallocr
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.sched.arena import Arena, Copies, Split
from ggmltool.ggml.sched.debug import SchedDebug, debug_of
from ggmltool.ggml.sched.eval_callback import EvalCallback
from ggmltool.ggml.sched.passes import PASSES
from ggmltool.ggml.sched.split import run_passes
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor, op_desc
from ggmltool.ggml.version import (
    DEFAULT,
    DEFAULT_GRAPH_SIZE,
    SCHED_INITIAL_SPLITS,
    SCHED_MAX_BACKENDS,
    SCHED_MAX_COPIES,
    hash_size,
)


class Scheduler:
    """A ggml_backend_sched over `backends`, highest priority first; the last one must be a CPU device.

    `graph_size` bounds nodes and leafs together, `parallel` makes 4 pipeline copies of every input, `op_offload`
    lets devices ask for ops whose weights lie on the host. `indices` are those of all tensors it will see.

    State lists are indexed by a tensor's index: `ids` its backend (-1 none), `causes` why, `copies` its copies.
    `assigned` and `assigned_causes` keep the two lists of the last split, which `reserve` clears at its end.
    `on_pass` is called after every pass with its number and the scheduler. `release` is the ggml that it decides as,
    `passes` say what its passes do, by their numbers.
    """

    release = DEFAULT
    debug_lines: list[str] | None = None
    """What a debug build has logged since this was last cleared; None for a ggml of which that is not kept."""
    passes: tuple[str, ...] = PASSES
    gallocr_class = Gallocr
    own_size = 0
    """sched->graph.size: how many nodes, and how many leafs, its own graph has room for by now."""

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        addresses: AddressSpace,
        all_bufts: Iterable[BufferType] = (),
        graph_size: int = DEFAULT_GRAPH_SIZE,
        parallel: bool = False,
        op_offload: bool = True,
        events: Listener | None = None,
    ) -> None:
        _check_backends(backends)
        self.backends = backends
        self.names = [b.name for b in backends]
        self.indices = indices
        self.events = events
        self.bufts = [b.device.buft for b in backends]
        bufts = {*self.bufts, *all_bufts}
        self.usable_bufts = [frozenset(t for t in bufts if b.device.supports_buft(t)) for b in backends]
        for b, buft in enumerate(self.bufts):
            if buft not in self.usable_bufts[b]:
                raise GgmlAssert(
                    "ggml_backend_sched_new",
                    "ggml_backend_supports_buft(backends[b], sched->bufts[b])",
                    f"{self.names[b]} cannot use its own default buffer type {buft.name}; {advice('own_buft')}",
                )
        self.graph_size = graph_size
        self.hash_size = hash_size(graph_size)
        self.n_copies = SCHED_MAX_COPIES if parallel else 1
        self.op_offload = op_offload
        self.has_events = [parallel and b.device.events for b in backends]
        self.gallocr = self.gallocr_class(self.bufts, addresses, events)
        self.arena = Arena(graph_size, indices, self.release)
        self.splits: list[Split] = [self.new_split() for _ in range(SCHED_INITIAL_SPLITS)]
        self.n_splits = 0
        self.graph_inputs: list[Tensor] = []
        self.graph_inputs_capacity = self.release.max_split_inputs
        self.cur_copy = 0
        self.next_copy = 0
        self.is_reset = True
        self.is_alloc = False
        self.ids: list[int] = []
        self.causes: list[str | None] = []
        self.copies: list[Copies | None] = []
        self.assigned = self.ids
        self.assigned_causes = self.causes
        self.made_copies = self.copies
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self.node_ids: list[int] = []
        self.leaf_ids: list[int] = []
        self.prev_node_ids: list[int] = []
        self.prev_leaf_ids: list[int] = []
        self.seen_graphs: list[CGraph] = []
        self.extra_keys: set[int] = set()
        self.log_lines: list[str] = []
        self.debug = False
        self.debug_record: SchedDebug = ()
        self.on_pass: Callable[[int, Scheduler], None] | None = None
        self.callback_eval: EvalCallback | None = None

    def log(self, level: str, text: str) -> None:
        """A line that a release build of ggml logs."""
        self.log_lines.append(text)
        if self.events:
            self.events(Logged(level, text))

    def grow_state(self) -> None:
        """Make the state lists as long as there are tensors."""
        missing = self.indices.top - len(self.ids)
        if missing > 0:
            self.ids.extend([-1] * missing)
            self.causes.extend([None] * missing)
            self.copies.extend([None] * missing)

    def set_tensor_backend(self, tensor: Tensor, backend_id: int) -> None:
        """ggml_backend_sched_set_tensor_backend: the user's choice, honoured whatever the device supports."""
        self.grow_state()
        self.touch(tensor.index)
        self.ids[tensor.index] = backend_id
        self.causes[tensor.index] = "usr"
        self.is_reset = False
        if self.events:
            self.events(Assigned(tensor.id, self.names[backend_id], 0, "usr", "assigned by the user"))

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """ggml_backend_sched_set_eval_callback: who is asked about every node when a graph is computed (None: nobody).

        Nodes are then computed in batches, each up to one that is wanted, and waited for.
        """
        self.callback_eval = callback

    def split_graph(self, graph: CGraph) -> None:
        """ggml_backend_sched_split_graph: assign a backend to every node and find the tensors to copy.

        Rewrites the sources of the graph's nodes to the copies, and builds `nodes` and `leafs`, the scheduler's own
        graph with copies and dependencies, with `node_ids` and `leaf_ids`, for the allocator.
        """
        if self.events:
            self.events(Entered("ggml_backend_sched_split_graph"))
        self.is_reset = False
        self.arena.clear()
        self.seen_graphs.append(graph)
        self.grow_state()
        if graph.was_split:
            self._touch_sources(graph)
        self.check_hash_set()
        run_passes(self, graph)
        graph.was_split = True
        if self.debug:
            self._touch_sources(graph)
            self.debug_record = debug_of(self, graph)
        self.node_ids, self.prev_node_ids = self.prev_node_ids, self.node_ids
        self.leaf_ids, self.prev_leaf_ids = self.prev_leaf_ids, self.leaf_ids
        self.own_size = max(self.own_size, self.own_graph_size(graph))
        self._build_graph_copy(graph)
        self.assigned = self.ids
        self.assigned_causes = self.causes
        self.made_copies = self.copies
        if self.events:
            self.events(Left("ggml_backend_sched_split_graph"))

    def _touch_sources(self, graph: CGraph) -> None:
        """Sources that are copies are looked up by the debug print, and when a graph is split a second time."""
        for n in graph.nodes:
            if not n.is_view_op:
                for t in n.src:
                    if t is not None and not graph.contains(t):
                        self.touch(t.index)

    def _build_graph_copy(self, graph: CGraph) -> None:
        """The graph the allocator sees: before each split, for every input, a dependency on it and then its copy."""
        ids = self.ids
        copies = self.copies
        view = self.arena.view
        cur_copy = self.cur_copy
        nodes: list[Tensor] = []
        node_ids: list[int] = []
        for split in self.splits[: self.n_splits]:
            b = split.backend_id
            optimize = self.backends[b].device.graph_optimize
            if optimize is not None:
                self._reorder(graph, split, optimize)
            split.nodes = graph.nodes[split.i_start : split.i_end]
            for t in split.inputs:
                nodes.append(view(t))
                node_ids.append(ids[t.index])
                nodes.append(_copy_of(copies, t, b, cur_copy))
                node_ids.append(b)
            nodes += split.nodes
            node_ids += [ids[n.index] for n in split.nodes]
        leafs: list[Tensor] = []
        leaf_ids: list[int] = []
        if self.n_copies > 1:
            wanted = [(t, ids[t.index]) for t in self.graph_inputs]
            wanted += [(t, s.backend_id) for s in self.splits[: self.n_splits] for t in s.inputs]
            for t, b in wanted:
                for c in range(self.n_copies):
                    leafs.append(_copy_of(copies, t, b, c))
                    leaf_ids.append(b)
        leafs += graph.leafs
        leaf_ids += [ids[t.index] for t in graph.leafs]
        self.nodes = nodes
        self.leafs = leafs
        # What is beyond the end of an array stays there from earlier graphs, as in ggml.
        self.node_ids[: len(node_ids)] = node_ids
        self.leaf_ids[: len(leaf_ids)] = leaf_ids

    def _reorder(self, graph: CGraph, split: Split, optimize: GraphOrder) -> None:
        """ggml_backend_graph_optimize: the device puts a split's nodes into its own order, in the caller's graph."""
        nodes = graph.nodes[split.i_start : split.i_end]
        ordered = optimize(nodes, graph.use_count)
        if ordered != nodes:
            graph.nodes[split.i_start : split.i_end] = ordered
            if self.events:
                names = tuple(n.id for n in ordered)
                self.events(Reordered(self.names[split.backend_id], split.i_start, names))

    def touch(self, index: int) -> None:
        """Note a look-up of a tensor that may be neither node nor leaf: it takes a slot of ggml's hash set."""
        if index not in self.extra_keys:
            self.extra_keys.add(index)
            self.check_hash_set()

    def check_hash_set(self) -> None:
        """Abort where the scheduler's hash set would be full (ggml_hash_find_or_insert)."""
        graphs = self.seen_graphs
        if sum(len(g.nodes) + len(g.leafs) for g in graphs) + len(self.extra_keys) <= self.hash_size:
            return
        n = len(self.hash_keys())
        if n > self.hash_size:
            tensors = {t.index for g in graphs for t in (*g.leafs, *g.nodes)}
            several = f" of {len(graphs)} graphs (`reset` between them empties it)" if len(graphs) > 1 else ""
            others = (
                f" and {n - len(tensors)} that are only looked up, as roots of views are" if n > len(tensors) else ""
            )
            raise GgmlAbort(
                "ggml_hash_find_or_insert",
                "fatal error",
                None,
                f"the scheduler's hash set has {self.hash_size} slots and would need {n}, for {len(tensors)} nodes and "
                f"leafs{several}{others}; a graph_size above {self.hash_size} makes it larger",
            ).of("sched_slots", n)

    def hash_keys(self) -> set[int]:
        """The tensors (by index) in ggml's hash set: those of the graphs since the last reset, and others looked up."""
        return self.extra_keys.union(t.index for g in self.seen_graphs for t in (*g.leafs, *g.nodes))

    def own_graph_size(self, graph: CGraph) -> int:
        """The room that the scheduler's own graph needs for `graph`, which was just split, with its copies."""
        inputs = sum(len(split.inputs) for split in self.splits[: self.n_splits])
        if self.n_copies > 1:
            inputs += len(self.graph_inputs)
        return max(graph.n_nodes, graph.n_leafs) + inputs * 2 * self.n_copies

    def _check_size(self, function: str, graph: CGraph) -> None:
        n = graph.n_nodes + graph.n_leafs
        if self.hash_size < n:
            what = "measure_graph" if function == "ggml_backend_sched_reserve" else "graph"
            raise GgmlAssert(
                function,
                f"(int)sched->hash_set.size >= {what}->n_nodes + {what}->n_leafs",
                f"the graph has {graph.n_nodes} nodes and {graph.n_leafs} leafs, the scheduler's hash set "
                f"{self.hash_size} slots for a graph_size of {self.graph_size}; give a graph_size of {n}",
            ).of("sched_tensors", n)

    def reserve(self, graph: CGraph) -> bool:
        """ggml_backend_sched_reserve: split a graph and make the compute buffers large enough for it.

        The graph is used up: its nodes' sources point to copies that the next split replaces.
        """
        function = "ggml_backend_sched_reserve"
        if self.events:
            self.events(Entered(function))
        self._check_size(function, graph)
        self.synchronize()
        self.split_graph(graph)
        self.gallocr.reserve_n(self.nodes, self.leafs, self.node_ids, self.leaf_ids, self.indices.top)
        self.reset()
        if self.events:
            self.events(Left(function))
        return True

    def alloc_graph(self, graph: CGraph) -> bool:
        """ggml_backend_sched_alloc_graph: split a graph and give its tensors memory.

        Raises GgmlAssert when a graph is allocated already and was not reset.
        """
        function = "ggml_backend_sched_alloc_graph"
        if self.events:
            self.events(Entered(function))
        self._check_size(function, graph)
        if self.is_alloc:
            raise GgmlAssert(
                function, "!sched->is_alloc", f"the scheduler holds an allocated graph; {advice('is_alloc')}"
            )
        self.cur_copy = self.next_copy
        self.next_copy = (self.next_copy + 1) % self.n_copies
        self.split_graph(graph)
        if not self._alloc_splits():
            return False
        self.is_alloc = True
        if self.events:
            self.events(Left(function))
        return True

    def alloc_to_compute(self, graph: CGraph) -> bool:
        """The first half of ggml_backend_sched_graph_compute_async: allocate `graph` unless one is allocated."""
        if self.is_alloc:
            return True
        if not self.is_reset:
            self.reset()
        return self.alloc_graph(graph)

    def _alloc_splits(self) -> bool:
        """ggml_backend_sched_alloc_splits: allocate by the reserved plan, or reserve again where it does not serve."""
        changed = self._ids_changed(False) or self._ids_changed(True)
        top = self.indices.top
        if not changed and self.gallocr.alloc_graph(self.nodes, self.leafs, top):
            return True
        for b in range(len(self.backends)):
            self.synchronize_backend(b)
        self.gallocr.reserve_n(self.nodes, self.leafs, self.node_ids, self.leaf_ids, top)
        if not self.gallocr.alloc_graph(self.nodes, self.leafs, top):
            self.log("error", "ggml_backend_sched_alloc_splits: failed to allocate graph")
            return False
        return True

    def _ids_changed(self, is_leaf: bool) -> bool:
        """Whether some node (or leaf) has another buffer type than at the same index in the graph before."""
        tensors = self.leafs if is_leaf else self.nodes
        ids, prev = (self.leaf_ids, self.prev_leaf_ids) if is_leaf else (self.node_ids, self.prev_node_ids)
        n = len(tensors)
        if ids[:n] == prev[:n]:
            return False
        for i in range(n):
            old = prev[i] if i < len(prev) else 0
            new = ids[i]
            if new != old and self._buft_of(new) is not self._buft_of(old):
                if self.events:
                    t = tensors[i]
                    names = [*self.names, "none"]
                    self.events(IdsChanged(i, t.label, is_leaf, names[old], names[new]))
                return True
        return False

    def _buft_of(self, backend_id: int) -> BufferType | None:
        """The buffer type of an id. ggml reads one before its array for a leaf without backend, where no type is."""
        return self.bufts[backend_id] if backend_id >= 0 else None

    def reset(self) -> None:
        """ggml_backend_sched_reset: forget assignments and copies, keep buffers and the reserved plan."""
        if not self.is_reset:
            n = self.indices.top
            self.ids = [-1] * n
            self.causes = [None] * n
            self.copies = [None] * n
            self.seen_graphs = []
            self.extra_keys = set()
            self.is_reset = True
        self.is_alloc = False

    def synchronize(self) -> None:
        """ggml_backend_sched_synchronize: wait for all backends; without an allocated graph copy 0 is next."""
        for b in range(len(self.backends)):
            self.synchronize_backend(b)
        if not self.is_alloc:
            self.next_copy = 0

    def synchronize_backend(self, b: int) -> None:
        """ggml_backend_synchronize."""
        if self.events:
            self.events(Synchronized(self.names[b]))
        queue = self.backends[b].queue
        if queue is not None:
            queue.synchronize()

    def new_split(self) -> Split:
        """A split for whatever place, without room for inputs yet."""
        return Split()

    def no_backend_for_weight(self, tensor: Tensor, buffer: Buffer) -> None:
        """No backend can use the memory of `tensor` and run the op that has it; a debug build warns of it."""

    def left_over(self, n: Tensor) -> None:
        """A node that passes 1 to 3 gave no backend, since no neighbour and no source has one: the first that can."""
        for b, backend in enumerate(self.backends):
            if backend.device.supports_op(n):
                self.ids[n.index] = b
                self.causes[n.index] = "2.sup"
                if self.events:
                    self.events(Assigned(n.label, self.names[b], 4, "2.sup", "the first backend that can run it"))
                return
        raise GgmlAssert(
            "ggml_backend_sched_split_graph",
            "*cur_backend_id != -1",
            f"no backend can run {n.name or n.id} ({op_desc(n)}); {advice('no_backend_for_node')}",
        )

    def check_assigned(self, n: Tensor) -> None:
        """Refuse a node that still has no backend when the graph is cut; the pass before has left none."""

    def no_backend_for_source(self, t: Tensor, n: Tensor) -> GgmlError:
        """The refusal of a node `n` with a source `t` that has no backend when the graph is cut."""
        explanation = f"{t.label}, a source of {n.label}, has no backend; {how_to_get_a_backend(t)}"
        return GgmlAssert("ggml_backend_sched_split_graph", "src_backend_id != -1", explanation)

    def grow_graph_inputs(self) -> None:
        """ggml_backend_sched_graph_inputs_grow: room for twice as many, with a warning."""
        old = self.graph_inputs_capacity
        new = 2 * old
        function = "ggml_backend_sched_graph_inputs_grow"
        self.log("warn", f"{function}: increasing graph inputs capacity from {old} to {new}")
        self.graph_inputs_capacity = new

    def grow_split_inputs(self, split: Split) -> None:
        """ggml_backend_sched_split_inputs_grow: 30 at first, then twice as many, with a warning."""
        old = split.inputs_capacity
        new = 2 * old if old else self.release.max_split_inputs
        function = "ggml_backend_sched_split_inputs_grow"
        if old:
            self.log("warn", f"{function}: increasing split inputs capacity from {old} to {new}")
        split.inputs_capacity = new

    def set_output(self, t: Tensor) -> None:
        """ggml_set_output: of a view its root is an output too."""
        up: Tensor | None = t
        while up is not None:
            up.flags |= FLAG_OUTPUT
            up = up.view_src

    def computed(self) -> None:
        """The splits of the allocated graph have been computed."""

    def copy_of(self, t: Tensor, backend_id: int) -> Tensor:
        """The copy of a tensor on a backend that the current graph uses."""
        return _copy_of(self.copies, t, backend_id, self.cur_copy)

    def copy_name(self, backend_id: int, t: Tensor, copy: int) -> str:
        """What a copy is called, before ggml cuts the name."""
        return f"{self.names[backend_id]}#{t.name}#{copy}"

    def counted(self, graph: CGraph) -> tuple[tuple[str, int], ...]:
        """What of a graph has to have slots in the hash set, as ggml counts it before it begins."""
        return (("nodes", graph.n_nodes), ("leafs", graph.n_leafs))

    def compute_buffers(self) -> list[Buffer]:
        """The buffers that graphs are allocated in, each once."""
        return list(dict.fromkeys(b for v in self.gallocr.buffers if v is not None for b in v.chunks))

    def measured_memory(self) -> list[tuple[str, int, int]]:
        """Where memory was measured and never grows: of each backend its name, the bytes in use at most, its bytes."""
        return []

    def get_buffer_size(self, backend_id: int) -> int:
        """ggml_backend_sched_get_buffer_size: bytes; 0 where an earlier backend reports the shared buffer."""
        return self.gallocr.get_buffer_size(backend_id)


def _copy_of(copies: list[Copies | None], t: Tensor, backend_id: int, copy: int) -> Tensor:
    of = copies[t.index]
    made = of[backend_id] if of is not None else None
    if made is None:
        raise GgmlAbort("ggml_backend_sched_split_graph", f"no copy of {t.name} for backend {backend_id}")
    return made[copy]


def how_to_get_a_backend(t: Tensor) -> str:
    """What would give a source of a node a backend."""
    root = t.view_src
    if root is not None:
        return f"it is a view of {root.label}, which has no memory: give its context a buft, or put the view beside it"
    return advice("no_backend_for_source")


def _check_backends(backends: list[Backend]) -> None:
    function = "ggml_backend_sched_new"
    if not backends:
        raise GgmlAssert(function, "n_backends > 0", f"there is no backend; {advice('n_backends')}")
    if len(backends) > SCHED_MAX_BACKENDS:
        raise GgmlAssert(
            function,
            "n_backends <= GGML_SCHED_MAX_BACKENDS",
            f"there are {len(backends)} backends; leave out all but {SCHED_MAX_BACKENDS}",
        ).of("backends", len(backends))
    if backends[-1].device.type != "cpu":
        raise GgmlAssert(
            function,
            "ggml_backend_dev_type(ggml_backend_get_device(backends[n_backends - 1])) == GGML_BACKEND_DEVICE_TYPE_CPU",
            f"the last backend is {backends[-1].name}, which is no CPU; {advice('last_is_cpu')}",
        )
