"""ggml_dyn_tallocr: the best-fit planner that hands out offsets in chunks, without any memory behind them."""

from __future__ import annotations

from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.version import MAX_FREE_BLOCKS, SIZE_MAX, VBUFFER_MAX_CHUNKS

Address = tuple[int, int]
"""buffer_address: (chunk, offset in the chunk)."""

_INT64_MIN = -(2**63)


class Chunk:
    """tallocr_chunk: sorted free blocks as [offset, size], and the highest byte ever used."""

    __slots__ = ("free_blocks", "max_size")

    def __init__(self, size: int) -> None:
        self.free_blocks: list[list[int]] = [[0, size]]
        self.max_size = 0


class DynTallocr:
    """The planner of one buffer type: `alignment` bytes, chunks of at most `max_chunk_size` where possible."""

    __slots__ = ("alignment", "chunks", "max_chunk_size")

    def __init__(self, alignment: int, max_buffer_size: int) -> None:
        self.alignment = alignment
        self.max_chunk_size = min(max_buffer_size, SIZE_MAX // 2)
        self.chunks: list[Chunk] = []

    def reset(self) -> None:
        """ggml_dyn_tallocr_reset."""
        self.chunks = []

    def max_size(self, chunk: int) -> int:
        """ggml_dyn_tallocr_max_size."""
        return self.chunks[chunk].max_size if chunk < len(self.chunks) else 0

    def total_size(self) -> int:
        """The bytes of all chunks."""
        return sum(c.max_size for c in self.chunks)

    def _new_chunk(self, min_size: int) -> int:
        """ggml_dyn_tallocr_new_chunk: its index, -1 when there are 16. The last one has no limit."""
        n = len(self.chunks)
        if n >= VBUFFER_MAX_CHUNKS:
            return -1
        size = SIZE_MAX // 2 if n == VBUFFER_MAX_CHUNKS - 1 else max(min_size, self.max_chunk_size)
        self.chunks.append(Chunk(size))
        return n

    def alloc(self, size: int) -> Address:
        """ggml_dyn_tallocr_alloc: the smallest free block that fits, else the last block that wastes least.

        Raises GgmlAbort when no chunk can hold `size` bytes.
        """
        alignment = self.alignment
        size = (size + alignment - 1) // alignment * alignment
        best_chunk = best_block = -1
        for c, chunk in enumerate(self.chunks):
            blocks = chunk.free_blocks
            # The best size starts anew in every chunk: the last chunk with any fit wins, as in ggml.
            best_size = SIZE_MAX
            for i in range(len(blocks) - 1):
                block_size = blocks[i][1]
                if size <= block_size <= best_size:
                    best_chunk, best_block, best_size = c, i, block_size
        if best_block == -1:
            best_chunk, best_block = self._best_last_block(size)
        if best_block == -1:
            best_chunk, best_block = self._new_chunk(size), 0
        if best_chunk == -1:
            raise GgmlAbort(
                "ggml_dyn_tallocr_alloc",
                "graph allocation: failed to reserve memory",
                None,
                f"no free block of {size} bytes is left in {VBUFFER_MAX_CHUNKS} chunks, the last of which may have up "
                "to 2^63 - 1 bytes",
            ).of("chunks", VBUFFER_MAX_CHUNKS + 1)
        chunk = self.chunks[best_chunk]
        block = chunk.free_blocks[best_block]
        offset = block[0]
        end = offset + size
        block[0] = end
        block[1] -= size
        if block[1] == 0:
            del chunk.free_blocks[best_block]
        if end > chunk.max_size:
            chunk.max_size = end
        return best_chunk, offset

    def _best_last_block(self, size: int) -> Address:
        """The chunk whose last block grows the chunk least, or leaves least of what it has unused."""
        best_chunk = best_block = -1
        best_reuse = _INT64_MIN
        for c, chunk in enumerate(self.chunks):
            blocks = chunk.free_blocks
            if not blocks:
                continue
            offset, block_size = blocks[-1]
            reuse = chunk.max_size - offset - size
            better = (best_reuse < 0 and reuse > best_reuse) or (0 <= reuse < best_reuse)
            if block_size >= size and better:
                best_chunk, best_block, best_reuse = c, len(blocks) - 1, reuse
        return best_chunk, best_block

    def out_of_blocks(self) -> GgmlAssert:
        """The refusal of one free block more than a chunk can have."""
        return GgmlAssert(
            "ggml_dyn_tallocr_insert_block",
            'chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
            f"the memory of a chunk has come apart into more than {MAX_FREE_BLOCKS} free blocks",
        )

    def free_bytes(self, addr: Address, size: int) -> None:
        """ggml_dyn_tallocr_free_bytes: give a range back, merged with the blocks it touches.

        Raises GgmlAssert when the chunk would have more than 256 free blocks.
        """
        alignment = self.alignment
        size = (size + alignment - 1) // alignment * alignment
        start = addr[1]
        end = start + size
        blocks = self.chunks[addr[0]].free_blocks
        position = len(blocks)
        for i, block in enumerate(blocks):
            if block[0] + block[1] == start:
                block[1] += size
                if i < len(blocks) - 1 and block[0] + block[1] == blocks[i + 1][0]:
                    block[1] += blocks[i + 1][1]
                    del blocks[i + 1]
                return
            if end == block[0]:
                block[0] = start
                block[1] += size
                if i > 0 and blocks[i - 1][0] + blocks[i - 1][1] == start:
                    blocks[i - 1][1] += block[1]
                    del blocks[i]
                return
            if position > i and block[0] >= start:
                position = i
        if len(blocks) >= MAX_FREE_BLOCKS:
            raise self.out_of_blocks().of("free_blocks", len(blocks) + 1)
        blocks.insert(position, [start, size])
