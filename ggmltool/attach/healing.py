"""What is done for a program whose gdb was killed: breakpoints that it left behind are taken out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

_TRAPS = (b"\xcc", bytes.fromhex("000020d4"))
"""What a breakpoint is in memory: int3 on x86-64, brk on arm64."""


class Healer:
    """Puts back what belongs where breakpoints are. Its way into the memory is open from the beginning: whoever may
    attach may do that."""

    def __init__(self, pid: int) -> None:
        self.marks: Mapping[int, bytes] = {}
        self._memory: int | None = None
        with suppress(OSError):
            self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def heal(self) -> None:
        """Take out all breakpoints that are still there."""
        if self._memory is None:
            return
        for address, bytes_there in self.marks.items():
            for trap in _TRAPS:
                own = bytes_there[: len(trap)]
                with suppress(OSError, OverflowError):
                    if own != trap and os.pread(self._memory, len(trap), address) == trap:
                        os.pwrite(self._memory, own, address)

    def close(self) -> None:
        """Close the way into the memory."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
