"""ggml_dyn_tallocr: the best-fit planner that hands out offsets in chunks, without any memory behind them."""

from __future__ import annotations

from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError
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

    def best_fit(self, size: int) -> int:
        """The number of the smallest block of at least `size` bytes, the last of several; -1 if there is none.

        The last block of all, the rest of the memory, is none of them.
        """
        best, best_size = -1, SIZE_MAX
        blocks = self.free_blocks
        for i in range(len(blocks) - 1):
            block_size = blocks[i][1]
            if size <= block_size <= best_size:
                best, best_size = i, block_size
        return best

    def take(self, i: int, size: int) -> int:
        """Take the first `size` bytes of a free block; where they begin."""
        block = self.free_blocks[i]
        offset = block[0]
        end = offset + size
        block[0] = end
        block[1] -= size
        if block[1] == 0:
            del self.free_blocks[i]
        if end > self.max_size:
            self.max_size = end
        return offset

    def give_back(self, start: int, size: int) -> bool:
        """Free a range, merged with the blocks it touches. False if it would be one block more than there can be."""
        end = start + size
        blocks = self.free_blocks
        position = len(blocks)
        for i, block in enumerate(blocks):
            if block[0] + block[1] == start:
                block[1] += size
                if i < len(blocks) - 1 and block[0] + block[1] == blocks[i + 1][0]:
                    block[1] += blocks[i + 1][1]
                    del blocks[i + 1]
                return True
            if end == block[0]:
                block[0] = start
                block[1] += size
                if i > 0 and blocks[i - 1][0] + blocks[i - 1][1] == start:
                    blocks[i - 1][1] += block[1]
                    del blocks[i]
                return True
            if position > i and block[0] >= start:
                position = i
        if len(blocks) >= MAX_FREE_BLOCKS:
            return False
        blocks.insert(position, [start, size])
        return True


class Planner:
    """What gives out the memory of one buffer type: `alignment` bytes, and the free blocks of its `chunks`."""

    __slots__ = ("alignment", "chunks")

    alignment: int
    chunks: list[Chunk]


class DynTallocr(Planner):
    """The planner of one buffer type: `alignment` bytes, up to `max_chunks` chunks of `max_chunk_size` where possible.

    The last chunk there can be has no limit.
    """

    __slots__ = ("max_chunk_size", "max_chunks")

    def __init__(self, alignment: int, max_buffer_size: int, max_chunks: int = VBUFFER_MAX_CHUNKS) -> None:
        self.alignment = alignment
        self.max_chunk_size = min(max_buffer_size, SIZE_MAX // 2)
        self.max_chunks = max_chunks
        self.reset()

    def reset(self) -> None:
        """ggml_dyn_tallocr_reset."""
        self.chunks = []

    def max_size(self, chunk: int) -> int:
        """ggml_dyn_tallocr_max_size."""
        return self.chunks[chunk].max_size if chunk < len(self.chunks) else 0

    def _new_chunk(self, min_size: int) -> int:
        """ggml_dyn_tallocr_new_chunk: its index, -1 when there are as many as there can be."""
        n = len(self.chunks)
        if n >= self.max_chunks:
            return -1
        size = SIZE_MAX // 2 if n == self.max_chunks - 1 else max(min_size, self.max_chunk_size)
        self.chunks.append(Chunk(size))
        return n

    def alloc(self, size: int) -> Address:
        """ggml_dyn_tallocr_alloc: the smallest free block that fits, else the last block that wastes least.

        Raises GgmlAbort when no chunk can hold `size` bytes.
        """
        alignment = self.alignment
        size = (size + alignment - 1) // alignment * alignment
        chunks = self.chunks
        if len(chunks) == 1:
            # The one chunk there mostly is: what the search below would find in it.
            blocks = chunks[0].free_blocks
            block = chunks[0].best_fit(size)
            if block == -1 and blocks and blocks[-1][1] >= size:
                block = len(blocks) - 1
            if block != -1:
                return 0, chunks[0].take(block, size)
        best_chunk = best_block = -1
        for c, chunk in enumerate(chunks):
            # The best size starts anew in every chunk: the last chunk with any fit wins, as in ggml.
            block = chunk.best_fit(size)
            if block != -1:
                best_chunk, best_block = c, block
        if best_block == -1:
            best_chunk, best_block = self._best_last_block(size)
        if best_block == -1:
            best_chunk, best_block = self._new_chunk(size), 0
        if best_chunk == -1:
            raise self.out_of_memory(size)
        return best_chunk, self.chunks[best_chunk].take(best_block, size)

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

    def free_bytes(self, addr: Address, size: int) -> None:
        """ggml_dyn_tallocr_free_bytes: give a range back. Raises GgmlAssert for one free block more than 256."""
        alignment = self.alignment
        size = (size + alignment - 1) // alignment * alignment
        chunk = self.chunks[addr[0]]
        if not chunk.give_back(addr[1], size):
            raise self.out_of_blocks().of("free_blocks", len(chunk.free_blocks) + 1)

    def out_of_memory(self, size: int) -> GgmlError:
        """The refusal of what no chunk can hold."""
        return GgmlAbort(
            "ggml_dyn_tallocr_alloc",
            "graph allocation: failed to reserve memory",
            None,
            f"no free block of {size} bytes is left in {self.max_chunks} chunks, the last of which may have up to 2^63 "
            "- 1 bytes",
        ).of("chunks", self.max_chunks + 1)

    def out_of_blocks(self) -> GgmlError:
        """The refusal of one free block more than a chunk can have."""
        return GgmlAssert(
            "ggml_dyn_tallocr_insert_block",
            'chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
            f"the memory of a chunk is fragmented into more than {MAX_FREE_BLOCKS} free blocks",
        )
