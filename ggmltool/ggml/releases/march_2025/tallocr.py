"""ggml_dyn_tallocr before there were chunks: best fit over the free blocks of one buffer, however large."""

from __future__ import annotations

from ggmltool.ggml.dyn_tallocr import Address, Chunk, DynTallocr
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.version import MAX_FREE_BLOCKS, SIZE_MAX


class UnchunkedTallocr(DynTallocr):
    """The planner of one buffer type, `alignment` bytes: it has one chunk, that a device's max_size does not bound."""

    __slots__ = ()

    def __init__(self, alignment: int) -> None:
        super().__init__(alignment, SIZE_MAX)
        self.reset()

    def reset(self) -> None:
        """ggml_dyn_tallocr_reset: half of what a size can say is free, against overflows."""
        self.chunks = [Chunk(SIZE_MAX // 2)]

    def alloc(self, size: int) -> Address:
        """ggml_dyn_tallocr_alloc: the smallest free block that fits, else the last one. Raises GgmlAbort."""
        alignment = self.alignment
        size = (size + alignment - 1) // alignment * alignment
        chunk = self.chunks[0]
        blocks = chunk.free_blocks
        last = len(blocks) - 1
        best, best_size = -1, SIZE_MAX
        for i in range(last):
            block_size = blocks[i][1]
            if size <= block_size <= best_size:
                best, best_size = i, block_size
        if best == -1:
            if blocks[last][1] < size:
                raise GgmlAbort(
                    "ggml_dyn_tallocr_alloc",
                    "not enough space in the buffer",
                    None,
                    f"{size} bytes are asked for, and the largest free block has {max(b[1] for b in blocks)}",
                )
            best = last
        block = blocks[best]
        offset = block[0]
        end = offset + size
        block[0] = end
        block[1] -= size
        if block[1] == 0:
            del blocks[best]
        if end > chunk.max_size:
            chunk.max_size = end
        return 0, offset

    def out_of_blocks(self) -> GgmlAssert:
        """The refusal of one free block more than there can be."""
        return GgmlAssert(
            "ggml_dyn_tallocr_free_tensor",
            'alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
            f"the memory of the buffer has come apart into more than {MAX_FREE_BLOCKS} free blocks",
        )
