"""The memory of a program that stands still, as expressions read it."""

from __future__ import annotations

from ggmltool.attach import memory
from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import Link, LinkError, LinkLost, NoBytes
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.structs.declarations import NoMemoryError


class LiveMemory(Memory):
    """Reads through a link, each page once: until it is forgotten, the program stands still."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.forget()

    def forget(self) -> None:
        """The program has moved: nothing holds any more."""
        self._pages = memory.Memory(self._link)
        self._names: dict[int, str] = {}

    def read(self, address: int, n: int) -> bytes:
        """The bytes at an address. Raises NoMemoryError."""
        try:
            return self._pages.read(address, n)
        except (NoBytes, AttachError):
            raise NoMemoryError(address) from None

    def symbol(self, address: int) -> str:
        """What gdb calls what lies at an address."""
        if address not in self._names:
            try:
                self._names[address] = str(self._link.ask("symbol", address)) if address else ""
            except LinkLost:
                raise
            except LinkError:
                self._names[address] = ""
        return self._names[address]
