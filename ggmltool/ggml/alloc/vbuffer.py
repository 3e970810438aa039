"""What the graph allocator keeps: planned places, the nodes of its hash table, and the buffers of its chunks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ggmltool.ggml.buffer import USAGE_COMPUTE, AddressSpace, Buffer, BufferType, Outgrown


class TensorAlloc(msgspec.Struct, frozen=True, gc=False):
    """tensor_alloc: where the plan puts a tensor. `size_max` is 0 for a tensor that is pre-allocated or a view."""

    buffer_id: int
    chunk: int
    offset: int
    size_max: int


NodeAlloc = tuple[TensorAlloc, tuple[TensorAlloc, ...]]
"""node_alloc: where the plan puts a node, and each of its sources."""

INVALID = TensorAlloc(-1, -1, -1, 0)


class HashNodes:
    """struct hash_node of every tensor, as lists indexed by the tensor's index.

    `size` is what a tensor that was allocated takes in the buffer type of `buffer_id`, which ggml asks for anew.
    """

    __slots__ = ("allocated", "buffer_id", "chunk", "n_children", "n_views", "offset", "size")

    def __init__(self, n: int) -> None:
        self.n_children = [0] * n
        self.n_views = [0] * n
        self.buffer_id = [0] * n
        self.chunk = [0] * n
        self.offset = [0] * n
        self.size = [0] * n
        self.allocated = bytearray(n)


class VBuffer:
    """vbuffer: the real buffers of one planner, one for each of its chunks, of these sizes."""

    __slots__ = ("chunks",)

    def __init__(self, buft: BufferType, sizes: Iterable[int], addresses: AddressSpace) -> None:
        self.chunks: list[Buffer] = []
        for i, size in enumerate(sizes):
            buffer = Buffer(buft, size, addresses, USAGE_COMPUTE)
            buffer.chunk = i
            self.chunks.append(buffer)

    def chunk_size(self, chunk: int) -> int:
        return self.chunks[chunk].size if chunk < len(self.chunks) else 0

    def size(self) -> int:
        """ggml_vbuffer_size."""
        return sum(b.size for b in self.chunks)

    def free(self, new_size: int, addresses: AddressSpace) -> None:
        """ggml_vbuffer_free, to make a buffer of `new_size` bytes in its place."""
        if not self.chunks:
            return
        freed = Outgrown(self.chunks[0].buft.name, self.size(), new_size, addresses.step)
        for b in self.chunks:
            b.freed = freed
        addresses.has_freed = True
