"""Addresses for the buffers of mock devices: made up if nothing is computed, else anonymous pages."""

from __future__ import annotations

import ctypes
import mmap

PAGE = 4096


class FakeMemory:
    """Addresses that nothing may touch: aligned, never NULL, never overlapping, of any size."""

    def __init__(self) -> None:
        self._next = 1 << 44

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` bytes, a multiple of `alignment` and of a page."""
        step = max(alignment, PAGE)
        base = -(-self._next // step) * step
        self._next = base + size + PAGE
        return base


class RealMemory:
    """Zeroed pages, mapped when they are first touched and kept until the object goes."""

    def __init__(self) -> None:
        self._maps: list[tuple[mmap.mmap, object]] = []

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` zero bytes, a multiple of `alignment`."""
        pages = mmap.mmap(-1, size + max(alignment, PAGE))
        view = ctypes.c_char.from_buffer(pages)
        self._maps.append((pages, view))
        base = ctypes.addressof(view)
        return -(-base // alignment) * alignment
