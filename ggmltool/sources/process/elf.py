"""What an ELF file says of itself: its symbols, where it is to lie, and whether it has debug information.

gdb knows more files (others' separate debug files, say) and takes much longer, while the program stands still.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""Of 64 bits, little-endian."""
_SYMTAB, _NOBITS, _DYNSYM = 2, 8, 11
_PT_LOAD, _EXECUTABLE = 1, 1
_COMPRESSED = 0x800
_KINDS = (0, 1, 2, 10)
"""Without a kind, data, functions, and those that choose a function."""
_ELSEWHERE = (".gnu_debuglink", ".gnu_debugaltlink", ".gnu_debugdata", ".debug_addr")
"""Sections of a file that tell of another one with symbols or debug information."""


class Section(NamedTuple):
    """Where a section lies in the file; `link` is the number of the one that it needs."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int


class Symbols(NamedTuple):
    """Symbols by name, at the addresses of the file; `all`: the file has not been stripped, there are no others."""

    addresses: Mapping[str, int]
    all: bool


class Elf:
    """An open file. Raises ValueError if it is none that can be read here, as do its methods where it is damaged."""

    def __init__(self, content: mmap.mmap) -> None:
        if content[: len(_MAGIC)] != _MAGIC or len(content) < _HEADER.size:
            raise ValueError("no ELF file of 64 bits")
        self.content = content
        header = _HEADER.unpack_from(content)
        (segments, sections), n_segments, (n_sections, names) = header[5:7], header[10], header[12:14]
        if max(segments + n_segments * _SEGMENT.size, sections + n_sections * _SECTION.size) > len(content):
            raise ValueError("an ELF file that is cut off")
        self._segments = segments, n_segments
        self.sections = tuple(_sections(content, sections, n_sections, names))

    def symbols(self, words: str) -> Symbols:
        """Those that are defined and whose names begin with one of these words, `a|b`."""
        out: dict[str, int] = {}
        tables = [s for s in self.sections if s.kind in (_SYMTAB, _DYNSYM)]
        for table in sorted(tables, key=lambda s: s.kind == _DYNSYM):
            strings = self._bytes(self.sections[table.link]) if table.link < len(self.sections) else b""
            names = _names(strings, words)
            if not names:
                continue
            n = table.size // _SYMBOL.size
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self._bytes(table)[: n * _SYMBOL.size]):
                if name in names and section and info & 15 in _KINDS and "@" not in names[name]:
                    out[names[name]] = value
        return Symbols(out, any(s.kind == _SYMTAB for s in self.sections))

    def address(self, offset: int) -> int | None:
        """The address of the file's that a byte of its code is to have."""
        at, n = self._segments
        for i in range(n):
            kind, flags, start, address, _, size, *_ = _SEGMENT.unpack_from(self.content, at + i * _SEGMENT.size)
            if kind == _PT_LOAD and flags & _EXECUTABLE and start & ~0xFFFF <= offset < start + size:
                return int(address - start + offset)
        return None

    def may_tell(self, word: str) -> bool:
        """Whether its debug information can have a name: whether the name stands there, or elsewhere for all that this
        file tells."""
        wanted = b"\0" + word.encode() + b"\0"
        for section in self.sections:
            if section.name in _ELSEWHERE:
                return True
            if section.name == ".debug_str" and (section.flags & _COMPRESSED or self._has(section, wanted)):
                return True
        return any(section.name == ".zdebug_str" for section in self.sections)

    def mentions(self, words: str) -> bool:
        """Whether one of these words, `a|b`, stands in its constants, as those of messages do."""
        constants = [s for s in self.sections if s.name.startswith(".rodata")]
        return any(self._has(section, word.encode()) for section in constants for word in words.split("|"))

    def _bytes(self, section: Section) -> bytes:
        return self.content[section.offset : section.offset + section.size] if section.kind != _NOBITS else b""

    def _has(self, section: Section, word: bytes) -> bool:
        return self.content.find(word, section.offset, section.offset + section.size) >= 0


@contextmanager
def opened(path: str) -> Iterator[Elf]:
    """An ELF file. Raises OSError, ValueError."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield Elf(content)


def _sections(content: mmap.mmap, at: int, n: int, names: int) -> list[Section]:
    raw = [_SECTION.unpack_from(content, at + i * _SECTION.size) for i in range(n)]
    start = raw[names][4] if names < n else 0
    out = []
    for name, kind, flags, _, offset, size, link, *_ in raw:
        end = content.find(b"\0", start + name)
        out.append(Section(content[start + name : end].decode("utf-8", "replace"), kind, flags, offset, size, link))
    return out


def _names(strings: bytes, words: str) -> dict[int, str]:
    """Names that begin with one of the words, by where they begin; a name may be the end of another."""
    return {
        m.start(): m[0].decode("utf-8", "replace")
        for word in words.split("|")
        for m in re.finditer(re.escape(word.encode()) + rb"[^\0]*", strings)
    }
