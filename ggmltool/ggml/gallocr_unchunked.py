"""ggml_gallocr of March 2025: one buffer for each buffer type, and a debug build's lines on every new plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.debug_assert import DebugAssert
from ggmltool.ggml.dyn_tallocr import DynTallocr
from ggmltool.ggml.dyn_tallocr_unchunked import UnchunkedTallocr
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.events import Listener, ReallocNeeded
from ggmltool.ggml.gallocr import Gallocr
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.vbuffer import INVALID, TensorAlloc

_MIB = 1024.0 * 1024.0
_CALL_RESERVE = "cannot reallocate multi buffer graph automatically, call reserve"


class UnchunkedGallocr(Gallocr):
    """A graph allocator whose buffers have one chunk each. `debug_log` takes what a debug build says of its work."""

    __slots__ = ("debug_log",)

    def __init__(self, bufts: list[BufferType], addresses: AddressSpace, events: Listener | None = None) -> None:
        super().__init__(bufts, addresses, events)
        self.debug_log: Callable[[str], None] | None = None

    def new_planner(self, buft: BufferType) -> DynTallocr:
        """ggml_dyn_tallocr_new."""
        return UnchunkedTallocr(buft.alignment)

    def _allocate_node(self, node: Tensor, buffer_id: int) -> None:
        """ggml_gallocr_allocate_node. Raises DebugAssert for a tensor that gets memory for the second time."""
        hn = self.hash_nodes
        i = node.index
        is_left_out = buffer_id < 0 or node.view_src is not None or node.data or node.buffer is not None
        if hn.offset[i] and not is_left_out and not hn.allocated[i]:
            self.refused = node
            raise DebugAssert(
                "ggml_gallocr_allocate_node",
                "hn->offset == 0",
                f"{node.label} has had a place already, which a node flagged input took over: such nodes are placed "
                "before all others, when ggml does not know yet who else uses their sources",
            )
        super()._allocate_node(node, buffer_id)

    def growing(self, buft: BufferType, size: int, new_size: int) -> None:
        """A buffer is about to be made anew, which a debug build says for the first one of all too."""
        self.say(
            f"ggml_gallocr_reserve_n: reallocating {buft.name} buffer from size {size / _MIB:.2f} MiB "
            f"to {new_size / _MIB:.2f} MiB"
        )
        super().growing(buft, size, new_size)

    def needs_realloc(self, nodes: list[Tensor], leafs: list[Tensor]) -> ReallocNeeded | None:
        """ggml_gallocr_needs_realloc. Raises GgmlAssert for a tensor that the plan has no place for."""
        function = "ggml_gallocr_needs_realloc"
        for what, planned, given in (("nodes", self.node_allocs, nodes), ("leafs", self.leaf_allocs, leafs)):
            if len(planned) != len(given):
                self.say(f"{function}: graph has different number of {what}")
                return ReallocNeeded(f"different number of {what}", "", len(planned), len(given))
        for why, node, source in self._too_large(nodes):
            if source is None:
                self.say(f"{function}: node {node.name} is not valid")
            else:
                self.say(f"{function}: src {why.slot} ({source.name}) of node {node.name} is not valid")
            return why
        return None

    def _too_large(self, nodes: list[Tensor]) -> Iterator[tuple[ReallocNeeded, Tensor, Tensor | None]]:
        """Nodes and sources (with their nodes) that the plan's places are too small for."""
        for node, (dst, srcs) in zip(nodes, self.node_allocs, strict=True):
            why = self._node_needs_realloc(node, dst, "node")
            if why is not None:
                yield why._replace(node=node.label), node, None
            n = len(srcs)
            for j, s in enumerate(node.src):
                if s is not None:
                    why = self._node_needs_realloc(s, srcs[j] if j < n else INVALID, "source")
                    if why is not None:
                        yield why._replace(node=node.label, slot=j), node, s

    def _node_needs_realloc(self, t: Tensor, planned: TensorAlloc, what: str) -> ReallocNeeded | None:
        """ggml_gallocr_node_needs_realloc, whose answer is true where the plan is enough."""
        why = self._outgrows(t, planned, what)
        if why is not None and planned.buffer_id < 0:
            raise GgmlAssert(
                "ggml_gallocr_node_needs_realloc",
                "talloc->buffer_id >= 0",
                f"{t.label} had memory of its own, or was not there, in the graph that was planned, so the plan has no "
                "place for it; reserve a graph in which it has no memory either",
            )
        return why

    def realloc_needed(self, why: ReallocNeeded) -> None:
        """The plan does not serve a graph: it is planned again at once where there is one buffer."""
        what = "reallocating buffers automatically" if len(self.buffers) == 1 else _CALL_RESERVE
        self.say(f"ggml_gallocr_alloc_graph: {what}")
        super().realloc_needed(why)

    def _init_tensor(self, t: Tensor, planned: TensorAlloc) -> None:
        """ggml_gallocr_init_tensor.

        Raises DebugAssert for a leaf that needs more than was planned, and for a view that was planned as no view.
        """
        if t.view_src is not None and t.buffer is None and planned.buffer_id >= 0:
            raise DebugAssert(
                "ggml_gallocr_init_tensor",
                "tensor_alloc->offset == SIZE_MAX",
                f"{t.label} is a view, and in the graph that was planned the tensor in its place had memory of its own",
            )
        if t.view_src is None and not t.data and planned.buffer_id >= 0:
            size = self.bufts[planned.buffer_id].get_alloc_size(t)
            if size > planned.size_max:
                raise DebugAssert(
                    "ggml_gallocr_init_tensor",
                    "tensor->data || tensor->view_src || "
                    "ggml_backend_buffer_get_alloc_size(galloc->buffers[buffer_id], tensor) <= tensor_alloc->size_max",
                    f"{t.label} is a leaf that no node has as a source, whose size nobody compares: it needs {size} "
                    f"bytes, and {planned.size_max} were planned",
                )
        super()._init_tensor(t, planned)

    def say(self, line: str) -> None:
        """A line that a debug build logs."""
        if self.debug_log is not None:
            self.debug_log(line)
