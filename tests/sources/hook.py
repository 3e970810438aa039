"""Puts a function of ours in the place of one that a shared object calls in itself.

Calls within the library go through its procedure linkage table, whose entries are addresses in writable memory.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

PT_DYNAMIC = 2
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_JMPREL = 2, 5, 6, 23
SYMBOL_SIZE, RELA_SIZE = 24, 24


def replace(path: Path, name: str, function: Any) -> int:
    """Let the calls of the loaded library at `path` to its function `name` go to a ctypes callback.

    The callback must be kept. Gives back the address of the original. Raises LookupError where nothing calls it so.
    """
    base = _base(path)
    slot = base + _slot(path.read_bytes(), name)
    entry = ctypes.c_void_p.from_address(slot)
    original = ctypes.cast(getattr(ctypes.CDLL(str(path)), name), ctypes.c_void_p).value
    entry.value = ctypes.cast(function, ctypes.c_void_p).value
    return original or 0


def _base(path: Path) -> int:
    """Where the library was loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            return int(line.partition("-")[0], 16)
    raise LookupError(f"{path} is not loaded")


def _slot(elf: bytes, name: str) -> int:
    """The offset from the library's base of the address that calls to `name` go to."""
    dynamic = _dynamic(elf)
    relocations, symbols, strings = dynamic[DT_JMPREL], dynamic[DT_SYMTAB], dynamic[DT_STRTAB]
    for at in range(relocations, relocations + dynamic[DT_PLTRELSZ], RELA_SIZE):
        offset, info = struct.unpack_from("<QQ", elf, at)
        (start,) = struct.unpack_from("<I", elf, symbols + (info >> 32) * SYMBOL_SIZE)
        found = strings + start
        if elf.startswith(name.encode() + b"\0", found):
            return int(offset)
    raise LookupError(f"the library does not call {name} through a table")


def _dynamic(elf: bytes) -> dict[int, int]:
    """The dynamic section; its tables lie in the first segment, where addresses are offsets in the file."""
    (headers,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    for at in range(headers, headers + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, at)
        if kind == PT_DYNAMIC:
            return dict(struct.iter_unpack("<QQ", elf[offset : offset + length]))
    raise LookupError("the library has no dynamic section")
