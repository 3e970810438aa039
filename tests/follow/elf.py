"""The functions that a shared library exports, read from its file (ELF, 64 bits, little-endian)."""

from __future__ import annotations

import mmap
import struct
from functools import cache
from pathlib import Path

_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@cache
def exported(file: Path) -> frozenset[str]:
    """The names of the symbols that a file defines for others; none where it is no such library."""
    with file.open("rb") as opened:
        if opened.read(6) != b"\x7fELF\x02\x01":
            return frozenset()
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return frozenset(_names(data))


def _names(data: mmap.mmap) -> set[str]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, n = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(n)]
    found: set[str] = set()
    for section in sections:
        if section[1] == _DYNSYM:
            texts = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, defined_in, _, _ = _SYMBOL.unpack_from(data, at)
                if defined_in:
                    found.add(data[texts + name : data.find(b"\0", texts + name)].decode())
    return found
