"""The memory of the program that is looked at: regions of bytes, made when they are read, and structs as bytes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ggmltool.structs.declarations import NoMemoryError
from ggmltool.structs.types import Array, CType, Enum, Int, Pointer, Struct, bare, size_of

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


@dataclass(slots=True)
class ImageMemory:
    """The regions, none of which overlap."""

    _bases: list[int] = field(default_factory=list)
    _regions: dict[int, Region] = field(default_factory=dict)

    def add(self, base: int, size: int, read: Read, symbol: str = "") -> None:
        """One more region."""
        if base not in self._regions:
            insort(self._bases, base)
        self._regions[base] = Region(base, size, read, symbol)

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

    def number(self, address: int, size: int = 8) -> int:
        """The unsigned number at an address. Raises NoMemoryError."""
        return int.from_bytes(self.read(address, size), "little")

    def numbers(self, address: int, n: int) -> list[int]:
        """So many pointers, one behind the other. Raises NoMemoryError."""
        raw = self.read(address, 8 * n) if n else b""
        return [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 8 * n, 8)]

    def symbol(self, address: int) -> str:
        """`name` or `name+4` for what lies at an address; "" where nothing has a name."""
        region = self.region(address)
        if region is None or not region.symbol:
            return ""
        offset = address - region.base
        return f"{region.symbol}+{offset}" if offset else region.symbol

    def named(self, address: int) -> str:
        """An address with the symbol there."""
        symbol = self.symbol(address)
        return f"{address:#x} <{symbol}>" if symbol else f"{address:#x}"


def made_once(make: Callable[[], bytes]) -> Read:
    """Reads of bytes that are made at the first of them."""
    made: list[bytes] = []

    def read(offset: int, n: int) -> bytes:
        if not made:
            made.append(make())
        return made[0][offset : offset + n]

    return read


def records(step: int, make: Callable[[int], bytes]) -> Read:
    """Reads of a row of records, `step` bytes each, that are made for each read, as they may be others by then."""

    def read(offset: int, n: int) -> bytes:
        out = b""
        while len(out) < n:
            i, within = divmod(offset + len(out), step)
            out += make(i).ljust(step, b"\0")[within : within + n - len(out)]
        return out

    return read


Fields = Mapping[str, Any]
"""What stands in a struct, by field: numbers, bytes, an iterable of elements for an array, Fields for a struct.

A field that the layout does not have is left out; one that is not named is zero.
"""


def pack(struct: Struct, fields: Fields) -> bytes:
    """The bytes of a struct."""
    out = bytearray(struct.size)
    _pack(out, 0, struct, fields)
    return bytes(out)


def pack_array(of: CType, elements: Iterable[Any], length: int) -> bytes:
    """The bytes of an array of so many elements."""
    out = bytearray(size_of(of) * length)
    _pack(out, 0, Array(of, length), elements)
    return bytes(out)


def _pack(out: bytearray, at: int, type: CType, value: Any) -> None:
    t = bare(type)
    match t:
        case Struct() if isinstance(value, Mapping):
            members = t.members or {}
            for name, part in value.items():
                if name in members:
                    _pack(out, at + members[name].offset, members[name].type, part)
        case Array(of, length) if isinstance(value, bytes):
            out[at : at + min(len(value), length)] = value[:length]
        case Array(of, length) if isinstance(value, Iterable):
            step = size_of(of)
            for i, element in zip(range(length), value, strict=False):
                if element:
                    _pack(out, at + i * step, of, element)
        # What one ggml has in a field, another has elsewhere: its structs may be shown of this one's state.
        case Int() | Enum() | Pointer() if isinstance(value, int):
            size = size_of(t)
            out[at : at + size] = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
