"""Memory for the CPU's buffers that is only promised: as large as asked for, and no page of it real until written.

llama.cpp allocates the compute buffers of the graph that it reserves. Nothing is computed in them, so a graph that
needs more than this machine has can be captured nevertheless.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

from ggmltool.oracle.structs import Buffer, BufferI
from ggmltool.sources.llama.lib import Lib
from ggmltool.structs.mirrors import mirrors

_NORESERVE = 0x40 if sys.platform == "darwin" else 0x4000
_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class PromisedMemory:
    """Takes the place of the CPU buffer type's allocator for as long as the object lives.

    What llama.cpp frees stays until `release`, and what is there when `keep` is called for good.
    """

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.maps: list[tuple[mmap.mmap, object]] = []
        self.kept = 0
        buft = lib.ggml_backend_cpu_buffer_type()
        buffer = lib.ggml_backend_buft_alloc_buffer(buft, 64)
        self.interface = BufferI.from_buffer_copy(Buffer.from_address(buffer).iface)
        self.interface.free_buffer = None
        self.callback = _ALLOC(self._alloc)
        # It is the second function of every ggml's buffer types.
        table = mirrors("0.20.2")["ggml_backend_buffer_type_i"].from_address(buft)
        table.alloc_buffer = ctypes.cast(self.callback, ctypes.c_void_p).value

    def keep(self) -> None:
        """The buffers so far are those of the model."""
        self.kept = len(self.maps)

    def release(self) -> None:
        """Give back the others, which nothing may use any more."""
        del self.maps[self.kept :]

    def _alloc(self, buft: int, size: int) -> int | None:
        """A buffer; None where not even addresses are left."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        try:
            pages = mmap.mmap(-1, size, flags=flags)
        except (OSError, OverflowError):
            return None
        first = ctypes.c_char.from_buffer(pages)
        self.maps.append((pages, first))
        return int(self.lib.ggml_backend_buffer_init(buft, self.interface, ctypes.addressof(first), size))
