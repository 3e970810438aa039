"""ggml_tallocr of January 2024: best fit over a list of free blocks, in a real buffer or in one that is only measured.

One allocator gives addresses to the tensors of a graph and takes them back, and so do its buffers to a context's.
"""

from __future__ import annotations

from ggmltool.ggml.alloc.dyn_tallocr import Chunk, Planner
from ggmltool.ggml.buffer import USAGE_ANY, AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlCrash, LineAssert, advice
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import MAX_FREE_BLOCKS, SIZE_MAX

MEASURED_SIZE = (2**64 - 1) // 2
"""Bytes that an allocator has that only measures: half of what a size can say, against overflows."""

_FILE = "ggml-alloc.c"


def buft_alloc_buffer(
    buft: BufferType, size: int, addresses: AddressSpace, usage: int = USAGE_ANY, misalign: int = 0
) -> Buffer:
    """ggml_backend_buft_alloc_buffer of January 2024. A buffer always has an address, even one of no bytes.

    The CPU's own are 64 bytes larger than `size`, and malloc gives them an address `misalign` bytes past a page.
    """
    if buft.slack:
        size += buft.slack
    buffer = Buffer(buft, size, addresses, usage)
    if buft.slack and misalign:
        buffer.base = addresses.take(size + misalign, buft.alignment) + misalign
    elif not size:
        buffer.base = addresses.take(0, buft.alignment)
    return buffer


class Tallocr(Planner):
    """ggml_tallocr: `measure` says that the buffer is a stand-in for one whose size is still to be found out.

    `name` is what plans call its memory, and its buffer. Its one chunk has the free blocks, by their offsets
    from the buffer's base, and the end of what was ever in use; the last block is the rest of the buffer, used last.
    """

    __slots__ = ("base", "buffer", "measure", "name")

    def __init__(self, buffer: Buffer, measure: bool = False, name: str = "") -> None:
        self.buffer = buffer
        self.base = buffer.base
        self.alignment = buffer.buft.alignment
        self.measure = measure
        self.name = buffer.name = name or buffer.name
        self.chunks = [Chunk(0)]
        self.reset()

    def __repr__(self) -> str:
        return f"<Tallocr {self.name}>"

    @property
    def chunk(self) -> Chunk:
        """The one chunk there is."""
        return self.chunks[0]

    @property
    def max_size(self) -> int:
        """ggml_tallocr_max_size: bytes from the buffer's base to the end of what was ever in use."""
        return self.chunk.max_size

    @property
    def align_offset(self) -> int:
        """Bytes from the buffer's base to the first aligned address."""
        return -self.base % self.alignment

    def reset(self) -> None:
        """ggml_tallocr_reset: everything is free again; `max_size` stays."""
        offset = self.align_offset
        size = MEASURED_SIZE if self.measure else self.buffer.size - offset
        self.chunk.free_blocks = [[offset, size]]

    def is_own(self, t: Tensor) -> bool:
        """ggml_tallocr_is_own: whether the tensor, and what it is a view of, are in this allocator's buffer."""
        return t.buffer is self.buffer and (t.view_src is None or t.view_src.buffer is self.buffer)

    def size_of(self, t: Tensor) -> int:
        """The bytes that a tensor takes here."""
        buft = self.buffer.buft
        size = t.nbytes if buft.plain else buft.get_alloc_size(t)
        return (size + -size % self.alignment) & SIZE_MAX

    def alloc(self, t: Tensor) -> None:
        """ggml_tallocr_alloc: the smallest free block that is large enough, else the last one.

        Raises LineAssert for a view, for a tensor that has memory, and where no block is large enough.
        """
        if t.view_src is not None:
            raise LineAssert(
                "ggml_tallocr_alloc",
                _FILE,
                83,
                "!ggml_is_view(tensor)",
                f"{t.label} is a view of {t.view_src.label}, and views get the memory of what they view",
            )
        if t.data:
            raise LineAssert("ggml_tallocr_alloc", _FILE, 84, "tensor->data == NULL", f"{t.label} has memory already")
        size = self.size_of(t)
        t.data = self.base + self.chunk.take(self._best_fit(t, size), size)
        t.buffer = self.buffer

    def _best_fit(self, t: Tensor, size: int) -> int:
        """The number of the block to take."""
        blocks = self.chunk.free_blocks
        best = self.chunk.best_fit(size)
        if best != -1:
            return best
        if blocks and blocks[-1][1] >= size:
            return len(blocks) - 1
        if not blocks and not size:
            raise GgmlCrash(
                "ggml_tallocr_alloc",
                "a read before the list of free blocks",
                f"the buffer of {self.name} is full to the last byte, so it has no free block, and {t.label} has no "
                "elements: ggml takes what lies before its list for a block",
            )
        available = max((block[1] for block in blocks), default=0)
        printed = (
            f"ggml_tallocr_alloc: not enough space in the buffer (needed {size}, largest block available {available})\n"
        )
        raise LineAssert(
            "ggml_tallocr_alloc",
            _FILE,
            114,
            '!"not enough space in the buffer"',
            f"{t.label} needs {size} bytes in the memory of {self.name}, whose buffer has {self.buffer.size} and whose "
            f"largest free block {available}; {advice('old_not_enough_space')}",
            printed,
        ).of("measured", self.chunk.max_size + size)

    def free_tensor(self, t: Tensor) -> None:
        """ggml_tallocr_free_tensor: give back what is this allocator's own, merging it with free neighbors.

        Raises LineAssert if there are 256 free blocks already.
        """
        if self.is_own(t) and not self.chunk.give_back(t.data - self.base, self.size_of(t)):
            raise LineAssert(
                "ggml_tallocr_free_tensor",
                _FILE,
                208,
                'alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
                f"giving back {t.label} would make one free block more than {MAX_FREE_BLOCKS} in the memory of "
                f"{self.name}; {advice('free_blocks')}",
            ).of("free_blocks", MAX_FREE_BLOCKS + 1)


def alloc_ctx_tensors_from_buft(
    ctx: Context, buft: BufferType, addresses: AddressSpace, usage: int = USAGE_ANY, misalign: int = 0
) -> Buffer | None:
    """ggml_backend_alloc_ctx_tensors_from_buft of January 2024: one buffer for every tensor of `ctx` that has no
    memory.

    None if no tensor needs any; views are then left without a buffer. A view belongs to the context's buffer, wherever
    the memory of its root is.
    """
    alignment = buft.alignment
    nbytes = 0
    for t in ctx.tensors:
        if not t.data and t.view_src is None:
            nbytes += (buft.get_alloc_size(t) + alignment - 1) // alignment * alignment
    if nbytes == 0:
        return None
    buffer = buft_alloc_buffer(buft, nbytes, addresses, usage, misalign)
    tallocr = Tallocr(buffer)
    for t in ctx.tensors:
        if t.view_src is not None:
            view_init(buffer, t)
        elif not t.data:
            tallocr.alloc(t)
    return buffer


def view_init(buffer: Buffer, t: Tensor) -> None:
    """ggml_backend_view_init of January 2024: the view belongs to `buffer`, its bytes are its root's."""
    root = t.view_src
    condition, why, line = "", "", 0
    if t.buffer is not None:
        condition, line, why = "tensor->buffer == NULL", 1467, f"{t.label} has memory already"
    elif root is None:
        condition, line, why = "tensor->view_src != NULL", 1469, f"{t.label} is not a view"
    elif root.buffer is None:
        condition, line = "tensor->view_src->buffer != NULL", 1470
        why = f"{t.label} is a view of {root.label}, which has no memory; {advice('view_of_unallocated')}"
    elif not root.data:
        condition, line = "tensor->view_src->data != NULL", 1471
        why = f"{t.label} is a view of {root.label}, whose buffer has no bytes"
    if condition or root is None:
        raise LineAssert("ggml_backend_view_init", "ggml-backend.c", line, condition, why)
    t.buffer = buffer
    t.data = root.data + t.view_offs
