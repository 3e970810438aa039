"""ggml_dyn_tallocr before there were chunks: best fit over the free blocks of one buffer, however large."""

from __future__ import annotations

from ggmltool.ggml import dyn_tallocr
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError
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
