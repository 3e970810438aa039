"""ggml_backend_sched of March 2025: room for ten inputs in a split and no more, op offload always, and no guard against
a second graph without a reset. Its passes are those of today but for the rules that the hooks here replace.
"""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.debug_assert import DebugAssert
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAssert, GgmlError, advice
from ggmltool.ggml.events import Entered, Left, Listener, Logged
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.march_2025.gallocr import UnchunkedGallocr
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.scheduler import Scheduler, how_to_get_a_backend
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor, op_desc
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, RELEASES

_SPLIT = "ggml_backend_sched_split_graph"


class FixedInputsScheduler(Scheduler):
    """A ggml_backend_sched of March 2025."""

    release = RELEASES["2025-03"]
    gallocr_class = UnchunkedGallocr
    gallocr: UnchunkedGallocr
    debug_lines: list[str]

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
        super().__init__(backends, indices, addresses, all_bufts, graph_size, parallel, op_offload, events)
        self.debug_lines = []
        self.gallocr.debug_log = self.debug_log

    def new_split(self) -> Split:
        """A split, with all the room for inputs that it will ever have."""
        split = Split()
        split.inputs_capacity = self.release.max_split_inputs
        return split

    def debug_log(self, line: str) -> None:
        """A line that a debug build logs."""
        self.debug_lines.append(line)
        if self.events:
            self.events(Logged("debug", line))

    def no_backend_for_weight(self, tensor: Tensor, buffer: Buffer) -> None:
        """A debug build says that memory lies where nobody can run the op."""
        self.debug_log(
            f"ggml_backend_sched_backend_from_buffer: warning: no backend supports op {op_desc(tensor)} with a weight "
            f"with buffer type {buffer.name} used in tensor {tensor.name}, the weight will need to be copied"
        )

    def left_over(self, n: Tensor) -> None:
        """A node that no pass gave a backend stays without, and stops pass 5."""

    def check_assigned(self, n: Tensor) -> None:
        """Refuse a node without a backend. Raises DebugAssert."""
        if self.ids[n.index] == -1:
            raise DebugAssert(
                _SPLIT,
                "node_backend_id != -1",
                f"no backend can run {n.label} ({op_desc(n)}); {advice('no_backend_for_node')}",
            )

    def no_backend_for_source(self, t: Tensor, n: Tensor) -> GgmlError:
        """The refusal of a source without a backend."""
        explanation = f"{t.label}, a source of {n.label}, has no backend; {how_to_get_a_backend(t)}"
        return DebugAssert(_SPLIT, "src_backend_id != -1", explanation)

    def grow_graph_inputs(self) -> None:
        """The eleventh input of the graph, with pipeline copies. Raises GgmlAssert."""
        n = self.graph_inputs_capacity
        raise GgmlAssert(
            _SPLIT,
            "n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            f"the graph has more than {n} inputs, and the scheduler has room for the pipeline copies of {n}; plan it "
            "without parallel, or put inputs together into one tensor",
        ).of("graph_inputs", n + 1)

    def grow_split_inputs(self, split: Split) -> None:
        """An input more than a split has room for: nobody counted what the node needs. Raises GgmlAssert."""
        n = split.inputs_capacity
        raise GgmlAssert(
            _SPLIT,
            "n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            f"a split has room for {n} inputs; only when all are taken does the next node begin another one, and this "
            "node needs more than were left",
        ).of("split_inputs", n + 1)

    def set_output(self, t: Tensor) -> None:
        """ggml_set_output: the root of a view is left as it is."""
        t.flags |= FLAG_OUTPUT

    def own_graph_size(self, graph: CGraph) -> int:
        """The room that the scheduler's own graph needs, as if every split had all the inputs that it can have."""
        inputs = self.n_splits * self.release.max_split_inputs
        return max(graph.n_nodes, graph.n_leafs) + inputs * 2 * self.n_copies

    def computed(self) -> None:
        """The next graph, or the same one, uses the next pipeline copies."""
        self.cur_copy = (self.cur_copy + 1) % self.n_copies

    def reserve(self, graph: CGraph) -> bool:
        """ggml_backend_sched_reserve: split a graph and make the compute buffers large enough for it."""
        function = "ggml_backend_sched_reserve"
        if self.events:
            self.events(Entered(function))
        self._check_size(function, graph)
        self.split_graph(graph)
        self.synchronize()
        self.gallocr.reserve_n(self.nodes, self.leafs, self.node_ids, self.leaf_ids, self.indices.top)
        self.reset()
        if self.events:
            self.events(Left(function))
        return True

    def alloc_graph(self, graph: CGraph) -> bool:
        """ggml_backend_sched_alloc_graph: split a graph and give its tensors memory, also on top of another one."""
        function = "ggml_backend_sched_alloc_graph"
        if self.events:
            self.events(Entered(function))
        self._check_size(function, graph)
        self.split_graph(graph)
        if not self._alloc_splits():
            return False
        self.is_alloc = True
        if self.events:
            self.events(Left(function))
        return True

    def synchronize(self) -> None:
        """ggml_backend_sched_synchronize: wait for all backends."""
        for b in range(len(self.backends)):
            self.synchronize_backend(b)
