"""A core dump of a program in qemu-aarch64, with all that a kernel of arm64 writes: registers, files, memory.

The emulator's own has no list of files, and of the files' memory nothing, not even the headers.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

_PAGE = 4096
_FILES = 0x46494C45
_GUEST = range(0x55_0000_0000, 0x56_0000_0000)
"""Where the emulator places a program; it has the same addresses there itself."""


class _Piece(NamedTuple):
    start: int
    end: int
    writable: bool
    offset: int
    file: str
    data: bytes


def memory_of(emulator: int) -> list[_Piece]:
    """What a program that stands still has in memory, as far as a kernel dumps it."""
    out = []
    with Path(f"/proc/{emulator}/mem").open("rb") as memory:
        for line in Path(f"/proc/{emulator}/maps").read_text().splitlines():
            span, rights, offset, _, _, *file = line.split(None, 5)
            start, end = (int(at, 16) for at in span.split("-"))
            if start not in _GUEST or "r" not in rights:
                continue
            name, writable = "".join(file), "w" in rights
            memory.seek(start)
            data = memory.read(end - start if writable or not name else _PAGE)
            out.append(_Piece(start, end, writable, int(offset, 16), name, data))
    return out


def write_core(pieces: list[_Piece], notes_of: Path, core: Path) -> Path:
    """A dump of this memory, with the registers of the emulator's own dump."""
    head = notes_of.read_bytes()[: 1 << 20]
    (table,), (n,) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<H", head, 56)
    kinds = [struct.unpack_from("<IIQQQQQQ", head, table + 56 * i) for i in range(n)]
    at, size = next((k[2], k[5]) for k in kinds if k[0] == 4)
    files = [p for p in pieces if p.file.startswith("/")]
    told = struct.pack("<QQ", len(files), _PAGE)
    told += b"".join(struct.pack("<QQQ", p.start, p.end, p.offset // _PAGE) for p in files)
    told += b"".join(p.file.encode() + b"\0" for p in files)
    notes = head[at : at + size] + struct.pack("<III", 5, len(told), _FILES) + b"CORE\0\0\0\0" + told
    notes += bytes(-len(notes) % 4)
    first = 64 + 56 * (len(pieces) + 1)
    data = -(-(first + len(notes)) // _PAGE) * _PAGE
    segments = struct.pack("<IIQQQQQQ", 4, 0, first, 0, 0, len(notes), 0, 4)
    with core.open("wb") as out:
        out.write(b"\x7fELF\x02\x01\x01".ljust(16, b"\0"))
        out.write(struct.pack("<HHIQQQIHHHHHH", 4, 183, 1, 0, 64, 0, 0, 64, 56, len(pieces) + 1, 64, 0, 0))
        for p in pieces:
            flags = 6 if p.writable else 5
            segments += struct.pack("<IIQQQQQQ", 1, flags, data, p.start, 0, len(p.data), p.end - p.start, _PAGE)
            data += len(p.data)
        out.write(segments + notes)
        out.write(bytes(-out.tell() % _PAGE))
        for p in pieces:
            out.write(p.data)
    return core
