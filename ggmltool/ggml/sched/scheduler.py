"""ggml_backend_sched: the scheduler's calls: split, reserve, alloc, reset, synchronize."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggmltool.ggml.buffer import USAGE_NAMES, Buffer
from ggmltool.ggml.device import SEEN_BEHIND, GraphOrder, SplitNodes
from ggmltool.ggml.errors import GgmlAssert, advice
from ggmltool.ggml.events import Assigned, IdsChanged, KeptUntil, Reordered, Synchronized, announced
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.assign import assign_from_buffers, assign_sources, choose_or_upgrade, expand
from ggmltool.ggml.sched.callbacks import CopyCallback, EvalCallback
from ggmltool.ggml.sched.common import Fields, Place, Places, n_keepers
from ggmltool.ggml.sched.plans import debug_of
from ggmltool.ggml.sched.split import Cut
from ggmltool.ggml.sched.state import SchedulerState
from ggmltool.ggml.tensor import MAX_SRC, Tensor
from ggmltool.ggml.why import Why

_OverTensors = Callable[[SchedulerState, Sequence[Tensor]], None]
_SILENT = (assign_from_buffers, expand, choose_or_upgrade, assign_sources)
"""Passes 1 to 4."""


class Scheduler(SchedulerState):
    """The calls of a ggml_backend_sched, and the steps of them that another ggml takes in another way."""

    def set_tensor_backend(self, tensor: Tensor, backend_id: int) -> None:
        """ggml_backend_sched_set_tensor_backend: the user's choice, honoured whatever the device supports."""
        self.grow_state()
        self.touch(tensor.index)
        self.ids[tensor.index] = backend_id
        self.causes[tensor.index] = "usr"
        self.is_reset = False
        if self.events:
            self.events(Assigned(tensor.id, self.names[backend_id], 0, "usr", Why.USER))

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """ggml_backend_sched_set_eval_callback: who is asked about every node when a graph is computed (None: nobody).

        Nodes are then computed in batches, each up to one that is wanted, and waited for.
        """
        self.callback_eval = callback

    def set_copy_callback(self, callback: CopyCallback | None) -> None:
        """ggml_backend_sched_set_copy_callback: who is asked to copy weights in host memory (None: nobody)."""
        self.callback_copy = callback

    @announced("ggml_backend_sched_split_graph")
    def split_graph(self, graph: CGraph) -> None:
        """ggml_backend_sched_split_graph: assign a backend to every node and find the tensors to copy.

        Rewrites the sources of the graph's nodes to the copies, and builds `nodes` and `leafs`, the scheduler's own
        graph with copies and dependencies, with `node_ids` and `leaf_ids`, for the allocator.
        """
        self.n_splits = self.n_begun = 0
        self.graph_inputs = []
        self.is_reset = False
        self.gallocr.settle()
        self.arena.clear()
        self.see(graph)
        self.grow_state()
        if graph.was_split:
            self._touch_sources(graph)
        self.check_hash_set()
        self.debug_logged = []
        self._run_passes(graph)
        graph.was_split = True
        if self.debug:
            self._touch_sources(graph)
            self.debug_record = (*self.debug_logged, *debug_of(self, graph))
            self.debug_logged = []
        if self.rules.copies_leafs_last:
            if self.n_copies > 1:
                self._cut().copy_leafs(graph)
            if self.on_pass:
                self.on_pass(6, self)
        if self.debug:
            self.debug_record += tuple(self.debug_logged)
            if self.on_debug is not None:
                self.on_debug(self.debug_record, self.release)
        self.node_ids, self.prev_node_ids = self.prev_node_ids, self.node_ids
        self.leaf_ids, self.prev_leaf_ids = self.prev_leaf_ids, self.leaf_ids
        self._optimize(graph)
        self.own_size = max(self.own_size, self.own_graph_size(graph))
        self._build_graph_copy(graph)
        self.assigned = self.ids
        self.assigned_causes = self.causes
        self.made_copies = self.copies

    def _run_passes(self, graph: CGraph) -> None:
        """Assign backends (passes 1 to 4), cut the graph (pass 5); where somebody listens, by passes that tell of it.

        View ops are invisible to passes 2 and 3, which are not given them.
        """
        passes: tuple[_OverTensors, ...] = _SILENT
        if self.events:
            from ggmltool.ggml.sched.telling import TELLING

            passes = TELLING
        real = [n for n in graph.nodes if not n.is_view_op]
        tensors = ([*graph.leafs, *graph.nodes], real, real, graph.nodes)
        for number, (assign, given) in enumerate(zip(passes, tensors, strict=True), 1):
            assign(self, given)
            if self.on_pass:
                self.on_pass(number, self)
        self._cut().cut(graph)
        if self.on_pass:
            self.on_pass(5, self)

    def _cut(self) -> Cut:
        if self.events is None:
            return Cut(self)
        from ggmltool.ggml.sched.telling import TellingCut

        return TellingCut(self, self.events)

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
        view = self.arena.view
        nodes: list[Tensor] = []
        node_ids: list[int] = []
        for split in self.splits[: self.n_splits]:
            b = split.backend_id
            for t in split.inputs:
                nodes.append(view(t))
                node_ids.append(ids[t.index])
                nodes.append(self.copy_of(t, b))
                node_ids.append(b)
            if self.kept:
                self._add_kept(split, nodes, node_ids)
            else:
                nodes += split.nodes
                node_ids += [ids[n.index] for n in split.nodes]
        leafs: list[Tensor] = []
        leaf_ids: list[int] = []
        if self.n_copies > 1:
            wanted = [(t, ids[t.index]) for t in self.graph_inputs]
            wanted += [(t, s.backend_id) for s in self.splits[: self.n_splits] for t in s.inputs]
            for t, b in wanted:
                for c in range(self.n_copies):
                    leafs.append(self.copy_of(t, b, c))
                    leaf_ids.append(b)
        leafs += graph.leafs
        leaf_ids += [ids[t.index] for t in graph.leafs]
        self.nodes = nodes
        self.leafs = leafs
        # What is beyond the end of an array stays there from earlier graphs, as in ggml.
        self.node_ids[: len(node_ids)] = node_ids
        self.leaf_ids[: len(leaf_ids)] = leaf_ids

    def _add_kept(self, split: Split, nodes: list[Tensor], node_ids: list[int]) -> None:
        """A split's nodes, each with what keeps tensors until then behind it: nodes that have them as sources."""
        for n in split.nodes:
            nodes.append(n)
            node_ids.append(self.ids[n.index])
            kept = self.kept.get(n.index, ())
            for k in range(0, len(kept), MAX_SRC):
                nodes.append(self.arena.view(kept[k], kept[k : k + MAX_SRC]))
                node_ids.append(split.backend_id)

    def _optimize(self, graph: CGraph) -> None:
        """ggml_backend_graph_optimize of every split: its nodes in their order, and what is to be kept until when.

        Raises GgmlAssert where something is to be kept until a tensor that is no node.
        """
        self.kept = {}
        for split in self.splits[: self.n_splits]:
            optimize = self.backends[split.backend_id].device.graph_optimize
            if optimize is not None:
                self._reorder(graph, split, optimize)
            split.nodes = graph.nodes[split.i_start : split.i_end]
        if self.kept and self.kept.keys() - {n.index for n in graph.nodes}:
            raise GgmlAssert(
                "ggml_backend_sched_split_graph",
                "n_dep_nodes_added == n_dep_nodes",
                "a device keeps tensors until one has been computed that is no node of the graph",
            )

    def _reorder(self, graph: CGraph, split: Split, optimize: GraphOrder) -> None:
        """ggml_backend_graph_optimize: the device puts a split's nodes into its own order, in the caller's graph."""
        end = split.i_end
        nodes = SplitNodes(graph.nodes[split.i_start : end], graph.nodes[end : end + SEEN_BEHIND])

        def keep(tensor: Tensor, until: Tensor) -> None:
            """add_alloc_dep of the params that graph_optimize gets."""
            if not self.rules.keeps_for_devices:
                return
            kept = self.kept.setdefault(until.index, [])
            if tensor not in kept:
                kept.append(tensor)
                if self.events:
                    self.events(KeptUntil(self.names[split.backend_id], tensor.id, until.id))

        ordered = optimize(nodes, graph.use_count, keep)
        if ordered != nodes:
            graph.nodes[split.i_start : end] = ordered
            if self.events:
                names = tuple(n.id for n in ordered)
                self.events(Reordered(self.names[split.backend_id], split.i_start, names))

    def own_graph_size(self, graph: CGraph) -> int:
        """The room that the scheduler's own graph needs for `graph`, which was just split, with its copies."""
        if self.rules.counts_room:
            inputs = self.n_splits * self.rules.max_split_inputs
        else:
            inputs = sum(len(split.inputs) for split in self.splits[: self.n_splits])
            if self.n_copies > 1:
                inputs += len(self.graph_inputs)
        keepers = sum(n_keepers(kept) for kept in self.kept.values())
        return max(graph.n_nodes, graph.n_leafs) + inputs * 2 * self.n_copies + keepers

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

    @announced("ggml_backend_sched_reserve")
    def reserve(self, graph: CGraph) -> bool:
        """ggml_backend_sched_reserve: split a graph and make the compute buffers large enough for it.

        The graph is used up: its nodes' sources point to copies that the next split replaces.
        """
        function = "ggml_backend_sched_reserve"
        self._check_size(function, graph)
        if self.rules.reserve_waits_first:
            self.synchronize()
            self.split_graph(graph)
        else:
            self.split_graph(graph)
            self.synchronize()
        self.gallocr.reserve_n(self.nodes, self.leafs, self.node_ids, self.leaf_ids, self.indices.top)
        self.reset()
        return True

    @announced("ggml_backend_sched_alloc_graph")
    def alloc_graph(self, graph: CGraph) -> bool:
        """ggml_backend_sched_alloc_graph: split a graph and give its tensors memory.

        Raises GgmlAssert when a graph is allocated already and was not reset, in a ggml that looks.
        """
        function = "ggml_backend_sched_alloc_graph"
        self._check_size(function, graph)
        if self.is_alloc and self.rules.refuses_second_graph:
            raise GgmlAssert(
                function, "!sched->is_alloc", f"the scheduler holds an allocated graph; {advice('is_alloc')}"
            )
        if self.rules.copies_turn_at_alloc:
            self.cur_copy = self.next_copy
            self.next_copy = (self.next_copy + 1) % self.n_copies
        self.split_graph(graph)
        if not self._alloc_splits():
            return False
        self.is_alloc = True
        return True

    def alloc_to_compute(self, graph: CGraph) -> bool:
        """The first half of ggml_backend_sched_graph_compute_async: allocate `graph` unless one is allocated."""
        if self.is_alloc:
            return True
        if not self.is_reset:
            self.reset()
        return self.alloc_graph(graph)

    def _alloc_splits(self) -> bool:
        """ggml_backend_sched_alloc_splits: allocate by the reserved plan, or reserve again if it does not serve."""
        changed = self._ids_changed(False) or self._ids_changed(True)
        top = self.indices.top
        if not changed and self.gallocr.alloc_graph(self.nodes, self.leafs, top):
            return True
        for b in range(len(self.backends)):
            self.synchronize_backend(b)
        why = f"(backend_ids_changed = {int(changed)})"
        self.gallocr.say(f"ggml_backend_sched_alloc_splits: failed to allocate graph, reserving {why}")
        self.gallocr.reserve_n(self.nodes, self.leafs, self.node_ids, self.leaf_ids, top)
        self.gallocr.alloc_reserved(self.nodes, self.leafs)
        return True

    def _ids_changed(self, is_leaf: bool) -> bool:
        """Whether some node (or leaf) has another buffer type than at the same index in the graph before.

        ggml reads one before its array for a leaf without backend, where no type is.
        """
        bufts = [*self.bufts, None]
        tensors = self.leafs if is_leaf else self.nodes
        ids, prev = (self.leaf_ids, self.prev_leaf_ids) if is_leaf else (self.node_ids, self.prev_node_ids)
        n = len(tensors)
        if ids[:n] == prev[:n]:
            return False
        for i in range(n):
            old = prev[i] if i < len(prev) else 0
            new = ids[i]
            if new != old and bufts[new] is not bufts[old]:
                if self.events:
                    t = tensors[i]
                    names = [*self.names, "none"]
                    self.events(IdsChanged(i, t.label, is_leaf, names[old], names[new]))
                return True
        return False

    @announced("ggml_backend_sched_reset")
    def reset(self) -> None:
        """ggml_backend_sched_reset: forget assignments and copies, keep buffers and the reserved plan."""
        if not self.is_reset:
            self.clear_state()
            self.is_reset = True
        self.is_alloc = False

    def synchronize(self) -> None:
        """ggml_backend_sched_synchronize: wait for all backends; without an allocated graph copy 0 is next.

        Where copies turn when a graph was computed, none is next.
        """
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

    def computed(self) -> None:
        """The splits of the allocated graph have been computed."""
        if not self.rules.copies_turn_at_alloc:
            self.cur_copy = (self.cur_copy + 1) % self.n_copies

    def counted(self, graph: CGraph) -> tuple[tuple[str, int], ...]:
        return (("nodes", graph.n_nodes), ("leafs", graph.n_leafs))

    def compute_buffers(self) -> list[Buffer]:
        return list(dict.fromkeys(b for v in self.gallocr.buffers if v is not None for b in v.chunks))

    def places(self) -> Places:
        """Who says where a tensor lies: buffer type, usage, chunk, offset from the base; its bytes, if no view."""
        bufts = self.bufts
        gallocr = self.gallocr
        buffer_ids, sizes = gallocr.hash_nodes.buffer_id, gallocr.hash_nodes.size
        # The allocator may never have come to the graph.
        planned = gallocr.planned_nodes is self.nodes

        def place(t: Tensor, sized: bool = True) -> Place:
            buffer = t.buffer
            size = None
            if sized and t.view_src is None and (buffer is not None or t.index < len(buffer_ids)):
                if buffer is None and planned and sizes[t.index]:
                    return None, None, None, None, sizes[t.index]
                buft = buffer.buft if buffer is not None else bufts[buffer_ids[t.index]]
                size = t.nbytes if buft.plain else buft.get_alloc_size(t)
            if buffer is None:
                return None, None, None, None, size
            return buffer.buft.name, USAGE_NAMES[buffer.usage], buffer.chunk, t.data - buffer.base, size

        return place

    def fields(self) -> Fields:
        """Flags, counts, splits and sizes."""
        fields: Fields = {
            "is_reset": self.is_reset, "is_alloc": self.is_alloc, "n_backends": len(self.backends),
            "hash_set.size": self.hash_size, "graph.size": self.own_size, "graph.n_nodes": len(self.nodes),
            "graph.n_leafs": len(self.leafs),
        }  # fmt: skip
        for i, split in enumerate(self.splits[: self.n_splits]):
            fields[f"splits[{i}].backend_id"] = split.backend_id
            fields |= split.fields(i)
        return fields | {
            "n_splits": self.n_splits, "splits_capacity": len(self.splits), "n_copies": self.n_copies,
            "cur_copy": self.cur_copy, "n_graph_inputs": len(self.graph_inputs) if self.n_copies > 1 else 0,
            "context_buffer_size": self.arena.size,
        }  # fmt: skip

    def id_arrays(self) -> dict[str, list[int]]:
        """node_backend_ids and prev_node_backend_ids, as far as the scheduler's own graph has nodes."""
        n = len(self.nodes)
        prev = [*self.prev_node_ids[:n], *[0] * (n - len(self.prev_node_ids))]
        return {"node_backend_ids": self.node_ids[:n], "prev_node_backend_ids": prev}

    def get_buffer_size(self, backend_id: int) -> int:
        """ggml_backend_sched_get_buffer_size: bytes; 0 where an earlier backend reports the shared buffer."""
        return self.gallocr.get_buffer_size(backend_id)
