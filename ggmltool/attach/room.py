"""Memory of the program's own, for functions that write their answer there: mapped, and given back."""

from __future__ import annotations

from ggmltool.attach.link import Call, LinkError
from ggmltool.attach.loaded import library_function
from ggmltool.attach.permission import is_confined
from ggmltool.attach.properties import Calls
from ggmltool.ggml.version import SIZE_MAX

_READ_AND_WRITE = 3
_PRIVATE_AND_ANONYMOUS = 0x22


class NoRoom(LinkError):  # noqa: N818 - it says what is the matter
    """The program cannot give memory; the message says why."""


def mapped(link: Calls, nbytes: int) -> int:
    """Where so many bytes were mapped. Raises NoRoom, LinkError."""
    if is_confined(link.pid):
        raise NoRoom("the program is in a sandbox of its own (seccomp), which may end it for asking the system")
    mmap = _function(link, "mmap")
    if mmap is None:
        raise NoRoom("the program has no mmap")
    how = (0, nbytes, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, SIZE_MAX, 0)
    (found,) = link.call([Call(mmap, "unsigned long", how)])
    if not found or found > SIZE_MAX - nbytes:
        raise NoRoom("the program has no memory left")
    return found


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
