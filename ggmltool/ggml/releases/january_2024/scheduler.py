"""ggml_backend_sched of January 2024: a graph is measured once, and every graph after it has to fit into that memory.

Each backend has an allocator of its own. Until `init_measure` they only measure; then each gets a buffer of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.events import Assigned, Entered, Left, Listener, Logged
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import TallocrPlan
from ggmltool.ggml.releases.january_2024.arena import MeasuredArena
from ggmltool.ggml.releases.january_2024.assign import PASSES
from ggmltool.ggml.releases.january_2024.gallocr import DirectGallocr
from ggmltool.ggml.releases.january_2024.printed import Printed, printed_of, sanity_lines
from ggmltool.ggml.releases.january_2024.split import (
    MAX_SPLIT_INPUTS,
    MAX_SPLITS,
    MEASURED,
    NO_ALLOCR,
    run_passes,
)
from ggmltool.ggml.releases.january_2024.tallocr import BestFitTallocr, new_from_buft, new_measure_from_buft
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import hash_size
from ggmltool.ggml.why import Why

_FILE = "ggml-backend.c"


class MeasuredScheduler(Scheduler):
    """A ggml_backend_sched over `backends`, highest priority first. It looks at no op: the last backend need not be a
    CPU, and none is asked whether it can run one.

    `misalign` is how far past a page malloc's addresses are. The state lists are those of today's scheduler; a
    tensor's entry in `copies` has one copy per backend. `tallocs` are the allocators, by backend; `planned` is what
    they were after the last graph was allocated, `measured` the bytes that measuring found, `sanity` what a debug
    build prints about the last split. With `debug` the assignments after each pass are kept in `printed`.
    """

    release = MEASURED
    passes = PASSES
    tallocs: list[BestFitTallocr]
    debug_lines: list[str]

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        addresses: AddressSpace,
        all_bufts: Iterable[BufferType] = (),
        graph_size: int = 2048,
        misalign: int = 0,
        events: Listener | None = None,
    ) -> None:
        _check_backends(backends)
        self.backends = backends
        self.names = [b.name for b in backends]
        self.indices = indices
        self.addresses = addresses
        self.misalign = misalign
        self.events = events
        self.bufts = [b.device.buft for b in backends]
        self.memory_names = memory_names(backends)
        bufts = {*self.bufts, *all_bufts}
        self.usable_bufts = [frozenset(t for t in bufts if b.device.supports_buft(t)) for b in backends]
        self.graph_size = graph_size
        self.hash_size = hash_size(graph_size + MAX_SPLITS * MAX_SPLIT_INPUTS)
        self.n_copies = 1
        self.op_offload = False
        self.has_events = [False] * len(backends)
        self.gallocr: DirectGallocr = DirectGallocr(self.bufts, self.memory_names, addresses, events)
        self.arena: MeasuredArena = MeasuredArena(indices)
        self.splits = [Split()]
        self.splits[0].backend_id = NO_ALLOCR
        self.first_allocr_is_freed = False
        self.n_splits = 0
        self.graph_inputs = []
        self.graph_inputs_capacity = 0
        self.cur_copy = self.next_copy = 0
        self.is_alloc = False
        self._clear_state()
        self.is_reset = True
        self.assigned, self.assigned_causes, self.made_copies = self.ids, self.causes, self.copies
        self.nodes = []
        self.leafs = []
        self.node_ids = []
        self.leaf_ids = []
        self.prev_node_ids = []
        self.prev_leaf_ids = []
        self.log_lines = []
        self.debug = False
        self.debug_record = ()
        self.printed: list[Printed] = []
        self.sanity: list[str] = []
        self.planned: tuple[TallocrPlan, ...] = ()
        self.debug_lines = []
        self.measured: tuple[int, ...] = ()
        self.on_pass: Callable[[int, Scheduler], None] | None = None
        self.callback_eval = None
        self.tallocs = [
            new_measure_from_buft(buft, addresses, misalign, name, events)
            for buft, name in zip(self.bufts, self.memory_names, strict=True)
        ]

    def _clear_state(self) -> None:
        n = self.indices.top
        self.ids = [-1] * n
        self.causes = [None] * n
        self.copies = [None] * n
        self.seen_graphs = []
        self.extra_keys = set()
        self.placed: list[tuple[BestFitTallocr, Tensor]] = []

    @property
    def is_measure(self) -> bool:
        """Whether nothing was measured yet."""
        return self.tallocs[0].measure

    def alloc_tensor(self, backend_id: int, t: Tensor) -> None:
        """ggml_tallocr_alloc in the allocator that ggml_backend_sched_get_tallocr gives for a backend."""
        self.tallocs[backend_id].alloc(t, silent=True)
        self.placed.append((self.tallocs[backend_id], t))

    def set_tensor_backend(self, tensor: Tensor, backend_id: int) -> None:
        """ggml_backend_sched_set_node_backend: the user's choice; it has no cause."""
        self.grow_state()
        self.ids[tensor.index] = backend_id
        if self.events:
            self.events(Assigned(tensor.label, self.names[backend_id], 0, "usr", Why.USER))

    def init_measure(self, graph: CGraph) -> None:
        """ggml_backend_sched_init_measure: split `graph`, find out what memory it needs, and make the buffers.

        Raises LineAssert the second time.
        """
        function = "ggml_backend_sched_init_measure"
        if self.events:
            self.events(Entered(function))
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
        self.tallocs = [
            new_from_buft(buft, size, self.addresses, self.misalign, name, self.events)
            for buft, size, name in zip(self.bufts, self.measured, self.memory_names, strict=True)
        ]
        self.first_allocr_is_freed = self.splits[0].backend_id != NO_ALLOCR
        self.reset()
        if self.events:
            self.events(Left(function))

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

    def split_graph(self, graph: CGraph) -> None:
        """sched_split_graph: assign a backend to every tensor, cut the graph, and copy what lies elsewhere.

        Rewrites the sources of the graph's nodes to the copies, and builds `nodes`, the scheduler's own graph: before
        each split its copies, each with what it copies as its source.
        """
        function = "sched_split_graph"
        if self.events:
            self.events(Entered(function))
        self.n_splits = 0
        self.is_reset = False
        self.arena.clear()
        self.seen_graphs.append(graph)
        self.grow_state()
        self.printed = []
        self.sanity = []
        run_passes(self, graph)
        graph.was_split = True
        self.sanity = sanity_lines(self, graph)
        for line in self.sanity:
            self.debug_log(line)
        self._build_graph_copy(graph)
        self.assigned, self.assigned_causes, self.made_copies = self.ids, self.causes, self.copies
        if self.events:
            self.events(Left(function))

    def debug_log(self, line: str) -> None:
        """A line that only a debug build prints."""
        self.debug_lines.append(line)
        if self.events:
            self.events(Logged("debug", line))

    def keep_print(self, number: int, graph: CGraph) -> None:
        """What ggml prints of the assignments after pass `number`, where somebody wants it."""
        if self.debug:
            self.printed.append(printed_of(self, graph, number))

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

    def _alloc_splits(self) -> bool:
        """sched_alloc_splits."""
        self.gallocr.placed = self.placed
        self.gallocr.alloc_graph_n(self.nodes, self.leafs, self.hash_size, self.ids, self.tallocs)
        self.planned = tuple(
            TallocrPlan(
                name,
                t.align_offset,
                t.max_size,
                t.buffer.size,
                tuple((offset, size) for offset, size in t.chunk.free_blocks),
            )
            for name, t in zip(self.names, self.tallocs, strict=True)
        )
        return True

    def check_hash_set(self) -> None:
        """Refuse where the scheduler's hash set would be full (ggml_hash_find_or_insert)."""
        n_known = sum(len(g.nodes) + len(g.leafs) for g in self.seen_graphs) + len(self.arena.made())
        n_views = sum(t.view_src is not None for g in self.seen_graphs for t in (*g.nodes, *g.leafs))
        if n_known + n_views <= self.hash_size:
            return
        keys = self.hash_keys()
        if len(keys) > self.hash_size:
            raise LineAssert(
                "ggml_hash_find_or_insert",
                "ggml.c",
                14889,
                "i != GGML_HASHTABLE_FULL",
                f"the scheduler's hash set has {self.hash_size} slots and would need {len(keys)} for nodes, leafs and "
                f"copies; a graph_size above {self.hash_size - MAX_SPLITS * MAX_SPLIT_INPUTS} makes it larger",
            ).of("sched_slots", len(keys))

    def hash_keys(self) -> set[int]:
        """The tensors (by index) in the hash set: nodes, leafs, the roots of views among them, and copies."""
        keys = {t.index for g in self.seen_graphs for t in (*g.leafs, *g.nodes)}
        keys.update(t.view_src.index for g in self.seen_graphs for t in g.nodes if t.view_src is not None)
        keys.update(t.index for t in self.arena.made())
        return keys

    def reset(self) -> None:
        """ggml_backend_sched_reset: all memory of the allocators is free, assignments and copies are forgotten."""
        for tallocr in self.tallocs:
            tallocr.reset()
        self._clear_state()
        self.is_reset = True

    def synchronize(self) -> None:
        """There is nothing to wait for: ggml_backend_sched_graph_compute of then waits for every copy and split."""

    def reserve(self, graph: CGraph) -> bool:
        """Not of this version; what comes closest is `init_measure`."""
        self.init_measure(graph)
        return True

    def alloc_graph(self, graph: CGraph) -> bool:
        """Not of this version, where graph_compute allocates; the same as `alloc_to_compute`."""
        return self.alloc_to_compute(graph)

    def buffer(self, backend_id: int) -> Buffer:
        """ggml_backend_sched_get_buffer."""
        return self.tallocs[backend_id].buffer

    def copy_name(self, backend_id: int, t: Tensor, copy: int = 0) -> str:
        """What a copy is called, before ggml cuts the name."""
        return f"{self.names[backend_id]}#{t.name}"

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


def memory_names(backends: list[Backend]) -> list[str]:
    """What the memory of each backend's allocator is called: its buffer type, which several backends may have."""
    out = []
    for b in backends:
        buft = b.device.buft
        shared = buft.name != b.name and any(o is not b and o.device.buft is buft for o in backends)
        out.append(f"{buft.name} ({b.name})" if shared else buft.name)
    return out


def _check_backends(backends: list[Backend]) -> None:
    function = "ggml_backend_sched_new"
    if not backends:
        raise LineAssert(function, _FILE, 1359, "n_backends > 0", f"there is no backend; {advice('n_backends')}")
    if len(backends) > MEASURED.max_backends:
        raise LineAssert(
            function,
            _FILE,
            1360,
            "n_backends <= GGML_MAX_BACKENDS",
            f"there are {len(backends)} backends; leave out all but {MEASURED.max_backends}",
        ).of("backends", len(backends))
