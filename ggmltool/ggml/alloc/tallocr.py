"""ggml_tallocr, the linear allocator of a buffer, and the allocation of a whole context at once."""

from __future__ import annotations

from ggmltool.ggml.buffer import USAGE_ANY, AddressSpace, Buffer, BufferType, tensor_alloc, view_init
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlAbort, advice
from ggmltool.ggml.tensor import Tensor


class Tallocr:
    """ggml_tallocr: places tensors one behind the other. Buffers are aligned, so the first offset is 0."""

    __slots__ = ("alignment", "buffer", "offset")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.alignment = buffer.buft.alignment
        self.offset = 0

    def alloc(self, tensor: Tensor) -> None:
        """ggml_tallocr_alloc: the next place for `tensor`. Raises GgmlAbort when the buffer is full."""
        alignment = self.alignment
        size = (self.buffer.buft.get_alloc_size(tensor) + alignment - 1) // alignment * alignment
        if self.offset + size > self.buffer.size:
            raise GgmlAbort(
                "ggml_tallocr_alloc",
                "not enough space in the buffer",
                None,
                f"{tensor.label} needs {size} bytes, {self.buffer.size - self.offset} are left; make the buffer "
                f"{self.offset + size - self.buffer.size} bytes larger, or {advice('tallocr_full')}",
            )
        offset = self.offset
        self.offset += size
        tensor_alloc(self.buffer, tensor, offset)


def alloc_ctx_tensors_from_buft(
    ctx: Context, buft: BufferType, addresses: AddressSpace, usage: int = USAGE_ANY
) -> list[Buffer]:
    """ggml_backend_alloc_ctx_tensors_from_buft: memory for every tensor of `ctx` that has none.

    One buffer, or several where one would exceed the type's max_size (ggml's multi-buffer); none when there is
    nothing to allocate. Views get the memory of their roots, in the order of the arena.
    """
    alignment = buft.alignment
    max_size = buft.max_size
    buffers: list[Buffer] = []
    current = 0
    first = 0
    tensors = ctx.tensors
    sizes: list[int] = []
    for i, t in enumerate(tensors):
        this_size = 0
        if not t.data and t.view_src is None:
            this_size = (buft.get_alloc_size(t) + alignment - 1) // alignment * alignment
        sizes.append(this_size)
        if current > 0 and current + this_size > max_size:
            buffer = Buffer(buft, buft.buffer_size(current), addresses, usage)
            buffers.append(_alloc_range(tensors[first:i], sizes[first:i], buffer))
            first = i
            current = this_size
        else:
            current += this_size
    if current > 0:
        buffer = Buffer(buft, buft.buffer_size(current), addresses, usage)
        buffers.append(_alloc_range(tensors[first:], sizes[first:], buffer))
    for chunk, buffer in enumerate(buffers):
        buffer.chunk = chunk
    return buffers


def _alloc_range(tensors: list[Tensor], sizes: list[int], buffer: Buffer) -> Buffer:
    """alloc_tensor_range: as a ggml_tallocr does in a buffer that has room for tensors of these sizes."""
    end = buffer.base
    for t, size in zip(tensors, sizes, strict=True):
        if t.view_src is not None:
            if t.buffer is None:
                view_init(t)
        elif not t.data:
            if t.buffer is not None:
                tensor_alloc(buffer, t, end - buffer.base)
            t.buffer = buffer
            t.data = end
            end += size
    return buffer
