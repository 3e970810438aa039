"""The scheduler of January 2024: a graph is measured once, and every graph after it has to fit into that memory.

Each backend has an allocator of its own. Until `init_measure` they only measure; then each gets a buffer of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_NAMES, AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.events import Assigned, Grown, announced
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import PassPrint, TallocrPlan
from ggmltool.ggml.releases.january_2024 import MAX_SPLIT_INPUTS, MAX_SPLITS
from ggmltool.ggml.releases.january_2024.passes import assign_from_buffers, assign_sources, cut, expand
from ggmltool.ggml.releases.january_2024.state import NO_ALLOCR, SchedulerState
from ggmltool.ggml.releases.january_2024.tallocr import (
    Tallocr,
    alloc_ctx_tensors_from_buft,
    buft_alloc_buffer,
)
from ggmltool.ggml.sched.common import Place, Places, Times
from ggmltool.ggml.sched.plans import debug_of, node_lines
from ggmltool.ggml.sched.reader import free_blocks
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.ggml.why import Why

if TYPE_CHECKING:
    from ggmltool.ggml.releases.january_2024.compute import LateWrites


_FILE = "ggml-backend.c"


def sanity_lines(s: SchedulerState, graph: CGraph) -> list[str]:
    """What a debug build prints after the last pass: nodes whose sources, or whose root, have another backend."""
    ids, names = s.ids, [*s.names, "NULL"]
    out: list[str] = []

    def check_root(what: str, t: Tensor) -> None:
        root, b = t.view_src, ids[t.index]
        if root is not None and b != ids[root.index]:
            of_root = f"view_src {root.name} has backend {names[ids[root.index]]}"
            out.append(f"!!!!!!! {what}{t.name} has backend {names[b]}, {of_root}")

    for n in graph.nodes:
        b = ids[n.index]
        if b == -1:
            out.append(f"!!!!!!! {n.name} has no backend")
        check_root("", n)
        for j, t in enumerate(s.sources(n)):
            k = ids[t.index]
            if k != b:
                out.append(f"!!!! {n.name} has backend {names[b]}, src {j} ({t.name}) has backend {names[k]}")
            check_root("[src] ", t)
    return out


class Scheduler(SchedulerState):
    """The calls of a ggml_backend_sched of January 2024."""

    @property
    def is_measure(self) -> bool:
        """Whether nothing was measured yet."""
        return self.tallocs[0].measure

    def alloc_tensor(self, backend_id: int, t: Tensor) -> None:
        """ggml_tallocr_alloc in the allocator that ggml_backend_sched_get_tallocr gives for a backend."""
        self.tallocs[backend_id].alloc(t)
        self.placed.append((self.tallocs[backend_id], t))

    @staticmethod
    def alloc_context(
        ctx: Context, buft: BufferType, addresses: AddressSpace, usage: int, misalign: int
    ) -> list[Buffer]:
        """ggml_backend_alloc_ctx_tensors_from_buft: one buffer, or none."""
        buffer = alloc_ctx_tensors_from_buft(ctx, buft, addresses, usage, misalign)
        return [] if buffer is None else [buffer]

    def set_tensor_backend(self, tensor: Tensor, backend_id: int) -> None:
        """ggml_backend_sched_set_node_backend: the user's choice; it has no cause."""
        self.grow_state()
        self.ids[tensor.index] = backend_id
        if self.events:
            self.events(Assigned(tensor.label, self.names[backend_id], 0, "usr", Why.USER))

    @announced("ggml_backend_sched_init_measure")
    def init_measure(self, graph: CGraph) -> None:
        """ggml_backend_sched_init_measure: split `graph`, find out what memory it needs, and make the buffers.

        Raises LineAssert the second time.
        """
        function = "ggml_backend_sched_init_measure"
        if not self.is_measure:
            raise LineAssert(
                function,
                _FILE,
                1403,
                "ggml_tallocr_is_measure(sched->tallocs[0])",
                f"the scheduler was measured already, and its buffers are made; {advice('old_measure_once')}",
            )
        self.split_graph(graph)
        self._alloc_splits()
        self.measured = tuple(t.max_size for t in self.tallocs)
        self.tallocs = list(self.tallocs)
        for b, (buft, size, name) in enumerate(zip(self.bufts, self.measured, self.memory_names, strict=True)):
            buffer = buft_alloc_buffer(buft, size, self.addresses, misalign=self.misalign)
            self.tallocs[b] = Tallocr(buffer, False, name)
            if self.events:
                self.events(Grown(name, 0, buffer.size))
        self.first_allocr_is_freed = self.splits[0].backend_id != NO_ALLOCR
        self.reset()

    def alloc_to_compute(self, graph: CGraph) -> bool:
        """The first half of ggml_backend_sched_graph_compute: split `graph` and give its tensors memory."""
        self.check_size(graph)
        if not self.is_reset:
            self.reset()
        self.split_graph(graph)
        self._alloc_splits()
        return True

    def check_size(self, graph: CGraph) -> None:
        """What ggml_backend_sched_graph_compute asserts: every possible copy must have a slot of the hash set."""
        n = graph.n_nodes + MAX_SPLITS * MAX_SPLIT_INPUTS
        if self.hash_size < n:
            raise LineAssert(
                "ggml_backend_sched_graph_compute",
                _FILE,
                1419,
                "(int)sched->hash_set.size >= graph->n_nodes + GGML_MAX_SPLITS*GGML_MAX_SPLIT_INPUTS",
                f"the graph has {graph.n_nodes} nodes, and {MAX_SPLITS * MAX_SPLIT_INPUTS} copies are counted for it; "
                f"the hash set has {self.hash_size} slots for a graph_size of {self.graph_size}; give a graph_size of "
                f"{graph.n_nodes}",
            ).of("sched_tensors", n)

    @announced("sched_split_graph")
    def split_graph(self, graph: CGraph) -> None:
        """sched_split_graph: assign a backend to every tensor, cut the graph, and copy what lies elsewhere.

        Rewrites the sources of the graph's nodes to the copies, and builds `nodes`, the scheduler's own graph: before
        each split its copies, each with what it copies as its source.
        """
        self.n_splits = self.n_begun = 0
        self.is_reset = False
        self.arena.clear()
        self.seen_graphs.append(graph)
        self.grow_state()
        self.printed = []
        self.sanity = []
        self._run_passes(graph)
        graph.was_split = True
        self.sanity = sanity_lines(self, graph)
        for line in self.sanity:
            self.debug_log(line)
        self._build_graph_copy(graph)
        self.assigned, self.assigned_causes, self.made_copies = self.ids, self.causes, self.copies

    def _run_passes(self, graph: CGraph) -> None:
        """Assign backends (passes 1 to 3), cut the graph (pass 4)."""
        for number, run in enumerate((assign_from_buffers, expand, assign_sources, cut), 1):
            run(self, graph)
            self.check_hash_set()
            if self.debug:
                nodes = () if self.n_splits else node_lines(self, graph, 0, graph.n_nodes)
                self.printed.append(PassPrint(number, nodes, debug_of(self, graph)))
            if self.on_pass:
                self.on_pass(number, self)

    def _build_graph_copy(self, graph: CGraph) -> None:
        nodes: list[Tensor] = []
        splits = self.splits[: self.n_splits]
        self.arena.new_graph(graph.n_nodes + len(splits) * MAX_SPLIT_INPUTS)
        for sp in splits:
            sp.nodes = graph.nodes[sp.i_start : sp.i_end]
            for t in sp.inputs:
                copy = self.copy_of(t, sp.backend_id)
                copy.src = [t]
                nodes.append(copy)
            nodes += sp.nodes
        self.nodes = nodes
        self.node_ids = [self.ids[n.index] for n in nodes]
        self.leafs = list(graph.leafs)
        self.leaf_ids = [self.ids[t.index] for t in self.leafs]

    def _alloc_splits(self) -> None:
        """sched_alloc_splits."""
        self.gallocr.placed = self.placed
        self.gallocr.alloc_graph_n(self.nodes, self.leafs, self.hash_size, self.ids, self.tallocs)
        self.planned = tuple(
            TallocrPlan(name, t.align_offset, t.max_size, t.buffer.size, free_blocks(t.chunk))
            for name, t in zip(self.names, self.tallocs, strict=True)
        )

    @announced("sched_reset")
    def reset(self) -> None:
        """ggml_backend_sched_reset: all memory of the allocators is free, assignments and copies are forgotten."""
        for tallocr in self.tallocs:
            tallocr.reset()
        self.clear_state()
        self.is_reset = True

    def synchronize(self) -> None:
        """There is nothing to wait for: ggml_backend_sched_graph_compute of January 2024 waits for every copy and
        split."""

    def counted(self, graph: CGraph) -> tuple[tuple[str, int], ...]:
        """The nodes, and room for every copy there can be."""
        return (("nodes", graph.n_nodes), ("copies there can be", MAX_SPLITS * MAX_SPLIT_INPUTS))

    def compute_buffers(self) -> list[Buffer]:
        """The buffers of the allocators; while they measure there is none to speak of."""
        return [] if self.is_measure else [t.buffer for t in self.tallocs]

    def measured_memory(self) -> list[tuple[str, int, int]]:
        """Of each backend its name, the bytes that the last graph used at most, and those of its buffer."""
        if self.is_measure:
            return []
        return [(name, t.max_size, t.buffer.size) for name, t in zip(self.names, self.tallocs, strict=True)]

    def get_buffer_size(self, backend_id: int) -> int:
        """The bytes of a backend's buffer."""
        return self.tallocs[backend_id].buffer.size

    def places(self) -> Places:
        """Who says where a tensor's bytes lie, those of a view with its root's; and its own bytes, of views none."""
        return _place

    @announced("ggml_backend_sched_graph_compute")
    def graph_compute(
        self,
        graph: CGraph,
        nodes: bool = True,
        watch: Callable[[Tensor], None] | None = None,
        prepare: LateWrites | None = None,
    ) -> Sequence[Times]:
        """ggml_backend_sched_graph_compute. Raises LineAssert, GgmlCrash and what the kernels raise."""
        from ggmltool.ggml.releases.january_2024.compute import compute_splits

        self.alloc_to_compute(graph)
        return compute_splits(self, nodes, watch, prepare)


def _place(t: Tensor, sized: bool = True) -> Place:
    owner, buffer = t.buffer, root_of(t).buffer
    size = owner.buft.get_alloc_size(t) if sized and owner is not None and t.view_src is None else None
    if buffer is None or not t.data:
        return None, None, None, None, size
    return buffer.name, USAGE_NAMES[buffer.usage], buffer.chunk, t.data - buffer.base, size
