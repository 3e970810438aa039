"""Memory of the program's own, for functions that write their answer there: mapped, and given back."""

from __future__ import annotations

from ggmltool.ggml.version import SIZE_MAX
from ggmltool.sources.process.link import Call, LinkError
from ggmltool.sources.process.loaded import library_function
from ggmltool.sources.process.properties import Calls

_READ_AND_WRITE = 3
_PRIVATE_AND_ANONYMOUS = 0x22


def mapped(link: Calls, nbytes: int) -> int | None:
    """Where so many bytes were mapped: 0 if the program has no memory left, None if it has no mmap. Raises
    LinkError."""
    mmap = _function(link, "mmap")
    if mmap is None:
        return None
    how = (0, nbytes, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, SIZE_MAX, 0)
    (found,) = link.call([Call(mmap, "unsigned long", how)])
    return 0 if not found or found > SIZE_MAX - nbytes else found


def unmapped(link: Calls, address: int, nbytes: int) -> None:
    """Give them back. Raises LinkError."""
    munmap = _function(link, "munmap")
    if munmap is not None:
        link.call([Call(munmap, "int", (address, nbytes))])


def _function(link: Calls, name: str) -> int | None:
    """The address of a function of the C library: gdb takes longer than its file."""
    found = library_function(link.pid, name) if link.pid else None
    if found is not None:
        return found
    try:
        return int(link.ask("evaluate", f"(unsigned long)&{name}"))
    except LinkError:
        return None
