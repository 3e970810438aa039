"""What an ELF file says of itself: its symbols, where it is to lie, and whether it has debug information.

gdb knows more files (others' separate debug files, say) and takes much longer, while the program stands still.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
_DATA = 1
_MOST = 1 << 28
"""Bytes of a table of symbols or names, at most: what is more is not read."""
_MOST_TABLES = 4
_PIECE = 1 << 22
_LONGEST_NAME = 256
_ELSEWHERE = (".gnu_debuglink", ".gnu_debugaltlink", ".gnu_debugdata", ".debug_addr")
"""Sections of a file that tell of another one with symbols or debug information."""


_VERSION = re.compile(rb"(?<=\0)0\.(?:9|[1-9]\d)\.\d{1,2}(?=\0)")


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
    """An open file. Raises ValueError if it is none that can be read here, as do its methods where it is damaged. Its
    pieces are read one by one, each bounded: it may be damaged, or change while it is looked at."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._size = os.fstat(file).st_size
        start = self._read(0, _HEADER.size)
        if start[: len(_MAGIC)] != _MAGIC or len(start) < _HEADER.size:
            raise ValueError("no ELF file of 64 bits")
        header = _HEADER.unpack(start)
        (segments, sections), n_segments, (n_sections, names) = header[5:7], header[10], header[12:14]
        if max(segments + n_segments * _SEGMENT.size, sections + n_sections * _SECTION.size) > self._size:
            raise ValueError("an ELF file that is cut off")
        self._segments = segments, n_segments
        self.sections = tuple(self._sections(sections, n_sections, names))

    def symbols(self, words: str) -> Symbols:
        """Those that are defined and whose names begin with one of these words, `a|b`."""
        out: dict[str, int] = {}
        tables = [s for s in self.sections if s.kind in (_SYMTAB, _DYNSYM)][:_MOST_TABLES]
        for table in sorted(tables, key=lambda s: s.kind == _DYNSYM):
            strings = self._bytes(self.sections[table.link]) if table.link < len(self.sections) else b""
            names = _names(strings, words)
            if not names:
                continue
            entries = self._bytes(table)
            whole = len(entries) // _SYMBOL.size * _SYMBOL.size
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(entries[:whole]):
                if name in names and section and info & 15 in _KINDS and "@" not in names[name]:
                    if info & 15 != _DATA:
                        out[names[name]] = value
                    else:
                        out.setdefault(names[name], value)
        return Symbols(out, any(s.kind == _SYMTAB for s in self.sections))

    def address(self, offset: int) -> int | None:
        """The address of the file's that a byte of its code is to have."""
        at, n = self._segments
        for kind, flags, start, address, _, size, *_ in _SEGMENT.iter_unpack(self._exactly(at, n * _SEGMENT.size)):
            if kind == _PT_LOAD and flags & _EXECUTABLE and start & ~0xFFFF <= offset < start + size:
                return int(address - start + offset)
        return None

    def may_tell(self, word: str) -> bool:
        """Whether its debug information can have a name: whether the name stands there, or elsewhere for all that this
        file tells."""
        if any(s.name in _ELSEWHERE or s.name == ".zdebug_str" for s in self.sections):
            return True
        strings = [s for s in self.sections if s.name == ".debug_str"][:_MOST_TABLES]
        wanted = b"\0" + word.encode() + b"\0"
        return any(s.flags & _COMPRESSED or self._has(s, [wanted]) for s in strings)

    def mentions(self, words: str) -> bool:
        """Whether one of these words, `a|b`, stands in its constants, as those of messages do."""
        constants = [s for s in self.sections if s.name.startswith(".rodata")][:_MOST_TABLES]
        return any(self._has(section, [word.encode() for word in words.split("|")]) for section in constants)

    def versions(self) -> set[str]:
        """What may be a version of ggml among its constants."""
        constants = [s for s in self.sections if s.name.startswith(".rodata")][:_MOST_TABLES]
        return {found.decode() for s in constants for found in _VERSION.findall(self._bytes(s))}

    def _sections(self, at: int, n: int, names: int) -> Iterator[Section]:
        raw = list(_SECTION.iter_unpack(self._exactly(at, n * _SECTION.size)))
        texts = self._read(raw[names][4], min(raw[names][5], _PIECE)) if names < n else b""
        for name, kind, flags, _, offset, size, link, *_ in raw:
            text = texts[name : name + _LONGEST_NAME].partition(b"\0")[0]
            yield Section(text.decode("utf-8", "replace"), kind, flags, offset, size, link)

    def _bytes(self, section: Section) -> bytes:
        return self._read(section.offset, min(section.size, _MOST)) if section.kind != _NOBITS else b""

    def _has(self, section: Section, words: Sequence[bytes]) -> bool:
        return stands_in(self._file, words, section.offset, min(section.offset + section.size, self._size))

    def _exactly(self, offset: int, n: int) -> bytes:
        out = self._read(offset, n)
        if len(out) < n:
            raise ValueError("an ELF file that is cut off")
        return out

    def _read(self, offset: int, n: int) -> bytes:
        n = min(n, self._size - offset)
        return os.pread(self._file, n, offset) if n > 0 else b""


def stands_in(file: int, words: Sequence[bytes], start: int, end: int) -> bool:
    """Whether one of these words stands in a part of a file, looked for piece by piece."""
    overlap = max(map(len, words)) - 1
    for at in range(start, end, _PIECE):
        piece = os.pread(file, min(_PIECE + overlap, end - at), at)
        if any(word in piece for word in words):
            return True
    return False


@contextmanager
def opened(path: str) -> Iterator[Elf]:
    """An ELF file. Raises OSError, ValueError."""
    with regular_file(path) as file:
        yield Elf(file)


@contextmanager
def regular_file(path: str) -> Iterator[int]:
    """A file that is one: to open a pipe or a device might wait forever. Raises OSError, ValueError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError(f"{path} is not a file")
        yield file
    finally:
        os.close(file)


def _names(strings: bytes, words: str) -> dict[int, str]:
    """Names that begin with one of the words, by where they begin; a name may be the end of another, which may begin
    with the word, too."""
    return {
        m.start(): strings[m.start() : strings.find(b"\0", m.end())].decode("utf-8", "replace")
        for word in words.split("|")
        for m in re.finditer(re.escape(word.encode()), strings)
    }
