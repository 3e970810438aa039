"""The memory of the program that is looked at: regions with bytes that are made when somebody reads them."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from ggmltool.structs.declarations import NoMemoryError

Read = Callable[[int, int], bytes]
"""Who gives so many bytes of a region from an offset on. May raise NoMemoryError."""
NOT_KNOWN = "not known here"
"""The symbol of a function that stands in the structs of another ggml only."""


@dataclass(slots=True)
class Region:
    """`size` bytes from `base` on. `symbol` is the name of what lies there, for what has one."""

    base: int
    size: int
    read: Read
    symbol: str = ""


def made_once(make: Callable[[], bytes]) -> Read:
    """Reads of bytes that are made at the first of them."""
    made: list[bytes] = []

    def read(offset: int, n: int) -> bytes:
        if not made:
            made.append(make())
        return made[0][offset : offset + n]

    return read


@dataclass(slots=True)
class Memory:
    """The regions, none of which overlap, and the addresses of symbols."""

    symbols: dict[str, int] = field(default_factory=dict)
    _bases: list[int] = field(default_factory=list)
    _regions: dict[int, Region] = field(default_factory=dict)

    def add(self, base: int, size: int, read: Read, symbol: str = "") -> None:
        """One more region."""
        if base not in self._regions:
            insort(self._bases, base)
        self._regions[base] = Region(base, size, read, symbol)
        if symbol:
            self.symbols[symbol] = base

    def region(self, address: int) -> Region | None:
        """The region that an address lies in."""
        at = bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        region = self._regions[self._bases[at]]
        return region if address < region.base + max(region.size, 1) else None

    def read(self, address: int, n: int) -> bytes:
        """The bytes at an address, of one region or of several that follow each other. Raises NoMemoryError."""
        out = b""
        while n > 0:
            region = self.region(address)
            if region is None or region.size == 0:
                raise NoMemoryError(address)
            offset = address - region.base
            part = region.read(offset, min(n, region.size - offset))
            if not part:
                raise NoMemoryError(address)
            out += part
            address += len(part)
            n -= len(part)
        return out

    def symbol(self, address: int) -> str:
        """`name` or `name+4` for what lies at an address; "" where nothing has a name."""
        region = self.region(address)
        if region is None or not region.symbol:
            return ""
        offset = address - region.base
        return f"{region.symbol}+{offset}" if offset else region.symbol
