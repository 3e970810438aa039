"""The scheduler of March 2025: ggmltool/ggml/sched, by the rules of release.py, over the allocator of its time."""

from __future__ import annotations

from ggmltool.ggml.alloc import dyn_tallocr, gallocr
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.buffer import BufferType, leaves
from ggmltool.ggml.errors import DebugAssert, GgmlAbort, GgmlAssert, GgmlError
from ggmltool.ggml.events import ReallocNeeded
from ggmltool.ggml.sched import scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import MAX_FREE_BLOCKS, SIZE_MAX


class DynTallocr(dyn_tallocr.DynTallocr):
    """The planner of one buffer type, `alignment` bytes: it has one chunk, that a device's max_size does not bound."""

    __slots__ = ()

    def __init__(self, alignment: int) -> None:
        super().__init__(alignment, SIZE_MAX, 1)

    def reset(self) -> None:
        """ggml_dyn_tallocr_reset: half of what a size can say is free, against overflows."""
        self.chunks = [dyn_tallocr.Chunk(SIZE_MAX // 2)]

    def alloc(self, size: int) -> dyn_tallocr.Address:
        """ggml_dyn_tallocr_alloc, of a size that may be nothing once a size_t has rounded it up."""
        return super().alloc(self._rounded(size))

    def free_bytes(self, addr: dyn_tallocr.Address, size: int) -> None:
        """The part of ggml_dyn_tallocr_free_tensor that gives a range back."""
        super().free_bytes(addr, self._rounded(size))

    def _rounded(self, size: int) -> int:
        """The size as a multiple of the alignment, in a size_t."""
        return (size + -size % self.alignment) & SIZE_MAX

    def out_of_memory(self, size: int) -> GgmlError:
        """The refusal of what is larger than all that is free."""
        largest = max((size for _, size in self.chunks[0].free_blocks), default=0)
        explanation = f"{size} bytes are requested, but the largest free block has {largest}"
        return GgmlAbort("ggml_dyn_tallocr_alloc", "not enough space in the buffer", None, explanation)

    def out_of_blocks(self) -> GgmlError:
        """The refusal of one free block more than there can be."""
        return GgmlAssert(
            "ggml_dyn_tallocr_free_tensor",
            'alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
            f"the memory of the buffer is fragmented into more than {MAX_FREE_BLOCKS} free blocks",
        )


class Gallocr(gallocr.Gallocr):
    """A graph allocator whose buffers have one chunk each."""

    __slots__ = ()

    reserve_function = "ggml_gallocr_reserve_n"
    logs_first_buffers = True

    def new_planner(self, buft: BufferType) -> DynTallocr:
        """ggml_dyn_tallocr_new."""
        return DynTallocr(buft.alignment)

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
                f"{node.label} already had a place, which a node flagged input took over: such nodes are placed "
                "before all others, when ggml does not know yet what else uses their sources",
            )
        super()._allocate_node(node, buffer_id)

    def _node_needs_realloc(self, t: Tensor, planned: TensorAlloc) -> ReallocNeeded | None:
        """ggml_gallocr_node_needs_realloc, whose answer is true where the plan is enough."""
        why = self._outgrows(t, planned)
        if why is not None and planned.buffer_id < 0:
            raise GgmlAssert(
                "ggml_gallocr_node_needs_realloc",
                "talloc->buffer_id >= 0",
                f"{t.label} was pre-allocated, or missing, in the graph that was planned, so the plan has no place "
                "for it; reserve a graph in which it is not pre-allocated either",
            )
        return why

    def _init_tensor(self, t: Tensor, planned: TensorAlloc) -> None:
        """ggml_gallocr_init_tensor.

        Raises DebugAssert for a leaf that needs more than was planned, and for a view that was planned as no view.
        """
        if t.view_src is not None and t.buffer is None and planned.buffer_id >= 0:
            raise DebugAssert(
                "ggml_gallocr_init_tensor",
                "tensor_alloc->offset == SIZE_MAX",
                f"{t.label} is a view, and in the graph that was planned the tensor in its place was pre-allocated",
            )
        if t.view_src is None and not t.data and planned.buffer_id >= 0:
            size = self.bufts[planned.buffer_id].get_alloc_size(t)
            if size > planned.size_max:
                raise DebugAssert(
                    "ggml_gallocr_init_tensor",
                    "tensor->data || tensor->view_src || "
                    "ggml_backend_buffer_get_alloc_size(galloc->buffers[buffer_id], tensor) <= tensor_alloc->size_max",
                    f"{t.label} is a leaf that no node has as a source, whose size is never compared: it needs {size} "
                    f"bytes, and {planned.size_max} were planned",
                )
            # What ggml_backend_tensor_alloc asserts, in the words of then: a copy of a view without rows may not fit.
            room = self.buffers[planned.buffer_id]
            if room is not None and room.chunks and leaves(room.chunks[0], planned.offset, size):
                raise GgmlAssert(
                    "ggml_backend_tensor_alloc",
                    "(char *)addr + ggml_backend_buffer_get_alloc_size(buffer, tensor) <= "
                    "(char *)ggml_backend_buffer_get_base(buffer) + ggml_backend_buffer_get_size(buffer)",
                    f"{t.label} has no elements, and its strides add up to {size} bytes; the buffer has "
                    f"{room.chunks[0].size}",
                )
        super()._init_tensor(t, planned)


class Scheduler(scheduler.Scheduler):
    """A ggml_backend_sched of March 2025."""

    gallocr_class = Gallocr
