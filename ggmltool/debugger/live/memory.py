"""The memory of a program that stands still, as expressions read it."""

from __future__ import annotations

from ggmltool.debugger.expressions.memory import Memory
from ggmltool.layouts.errors import NoMemoryError
from ggmltool.sources.process.link import Link, LinkError, LinkLost

_PAGE = 4096


class LiveMemory(Memory):
    """Reads through a link, a page at a time, and each page once: until it is forgotten, the program stands still."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._pages: dict[int, bytes] = {}
        self._names: dict[int, str] = {}

    def forget(self) -> None:
        """The program has moved: nothing holds any more."""
        self._pages.clear()
        self._names.clear()

    def read(self, address: int, n: int) -> bytes:
        """The bytes at an address. Raises NoMemoryError."""
        if address < 0 or n < 0:
            raise NoMemoryError(address)
        pages = range(address // _PAGE, (address + max(n, 1) - 1) // _PAGE + 1)
        self._fetch([page for page in pages if page not in self._pages])
        for page in pages:
            if not self._pages[page]:
                raise NoMemoryError(max(address, page * _PAGE))
        whole = b"".join(self._pages[page] for page in pages)
        start = address % _PAGE
        return whole[start : start + n]

    def _fetch(self, pages: list[int]) -> None:
        if not pages:
            return
        for page, raw in zip(pages, self._link.read_many((page * _PAGE, _PAGE) for page in pages), strict=True):
            self._pages[page] = raw

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
