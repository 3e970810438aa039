"""The files that a program has loaded, and the symbols of ggml's in them.

Those of a process are read off the files themselves: gdb takes seconds for a large one, while the program stands still.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ggmltool.attach.files.elf import Elf, opened
from ggmltool.attach.files.instance import SCHEDULER, SYMBOLS, has_heart, names_ggml
from ggmltool.attach.gdb.link import GdbLink

ASSERTION = "GGML_ASSERT(%s) failed"
"""What stands in every copy of ggml."""

_LIBRARY = re.compile(r"/(libc[.-]|ld-musl-)[^/]*$")
"""What the files of C libraries are called."""


class Code(NamedTuple):
    """Where code of a file begins in the process, and in the file."""

    address: int
    offset: int


class LoadedFiles:
    """Those of a program: `symbols` are the addresses of ggml's functions by file and name, `without` the files that
    have its words, but no symbols, `missing` those that gdb has not found. Those of process `pid` are read here; with
    0, or where that cannot be, gdb is asked."""

    def __init__(self, link: GdbLink, pid: int) -> None:
        self.symbols: dict[str, Mapping[str, int]] = {}
        self.without: list[str] = []
        self.missing: list[str] = []
        self._link = link
        self._pid = pid
        self._known: dict[str, Code | None] = {}
        self._ahead: dict[tuple[str, Code], FileSymbols | None] = {}
        self._unread: list[str] = []
        self._untold: list[str] = []

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        """The process has become another program."""
        self.symbols, self.without, self._known, self._unread, self._untold = {}, [], {}, [], []

    def look(self) -> bool:
        """Find what is loaded now; whether any of ggml's functions came or went."""
        if self._pid:
            now: dict[str, Code | None] = dict(code_of(self._pid))
        else:
            about = self._link.ask("about")
            self.missing, now = about["missing"], dict.fromkeys(about["libraries"])
        new = {file: code for file, code in now.items() if self._known.get(file, 0) != code}
        gone = {file for file in self.symbols if file not in now or file in new}
        self._known = now
        for file in gone:
            del self.symbols[file]
        for file, code in sorted(new.items()):
            found = None
            if code is not None:
                ahead = (file, code) in self._ahead
                found = self._ahead.pop((file, code)) if ahead else _symbols(self._path(file), code)
            if found is None:
                self._unread.append(file)
            elif found.addresses:
                self.symbols[file] = found.addresses
            if found is not None and not found.all:
                self._untold.append(file)
        asked = set() if any(map(has_heart, self.symbols.values())) else self._ask()
        return bool(gone or asked or self.symbols.keys() & new.keys())

    def look_ahead(self) -> None:
        """Read what is loaded while the process still runs, so that it need not stand still for it."""
        self._ahead = {item: _symbols(self._path(item[0]), item[1]) for item in code_of(self._pid).items()}

    def tells_structs(self, file: str) -> bool:
        """Whether a file may have debug information of the scheduler's structs."""
        return self._may(file, lambda elf: elf.may_tell(SCHEDULER))

    def has_own_ggml(self, file: str) -> bool:
        """Whether ggml is part of a file, which has the text of its assertions."""
        return self._may(file, lambda elf: elf.mentions(ASSERTION))

    def version(self, file: str) -> str:
        """The version of ggml that stands among a file's constants, "" if that cannot be told."""
        try:
            with opened(self._path(file)) as elf:
                found = elf.versions()
        except (OSError, ValueError, struct.error):
            return ""
        return found.pop() if len(found) == 1 else ""

    def _ask(self) -> set[str]:
        """Ask gdb for what the files themselves do not tell: it knows where their symbols are kept apart. Those of
        which it knows any. To search them takes long: large libraries have nothing of ggml's."""
        unread, untold, self._unread, self._untold = self._unread, self._untold, [], []
        doubtful = [file for file in unread if names_ggml(file, self._root) is not False]
        doubtful += (f for f in untold if f in self.symbols or self._may(f, lambda elf: elf.mentions(SYMBOLS)))
        told = set()
        for file in doubtful:
            symbols = self._link.ask("symbols", file, SYMBOLS)
            if symbols:
                self.symbols[file] = symbols
                told.add(file)
            elif file not in self.symbols and names_ggml(file, self._root):
                self.without.append(file)
        return told

    def _may(self, file: str, asked: Callable[[Elf], bool]) -> bool:
        """What a file answers; of one that cannot be read it may be so."""
        try:
            with opened(self._path(file)) as elf:
                return asked(elf)
        except (OSError, ValueError, struct.error):
            return True

    @property
    def _root(self) -> str:
        return f"/proc/{self._pid}/root" if self._pid else ""

    def _path(self, file: str) -> str:
        return self._root + file


class FileSymbols(NamedTuple):
    """What a file's own tables tell of ggml's symbols; `all`: nobody knows more."""

    addresses: Mapping[str, int]
    all: bool


def code_of(pid: int) -> dict[str, Code]:
    """The files of a process that have code; none if it is gone."""
    out: dict[str, Code] = {}
    try:
        lines = Path(f"/proc/{pid}/maps").read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return out
    for line in lines:
        span, rights, offset, _, _, *file = line.split(None, 5) or [""] * 5
        if "x" in rights and file and file[0].startswith("/") and file[0] not in out:
            out[file[0]] = Code(int(span.partition("-")[0], 16), int(offset, 16))
    return out


def has_ggml(pid: int) -> bool:
    """Whether a process has loaded a copy of ggml whose functions its files tell."""
    found = (_symbols(f"/proc/{pid}/root{file}", code) for file, code in code_of(pid).items())
    return any(symbols is not None and has_heart(symbols.addresses) for symbols in found)


def library_function(pid: int, name: str) -> int | None:
    """The address of a function of the C library in a process; None where its files do not tell."""
    for file, code in code_of(pid).items():
        found = _symbols(f"/proc/{pid}/root{file}", code, name) if _LIBRARY.search(file) else None
        if found is not None and name in found.addresses:
            return found.addresses[name]
    return None


def _symbols(path: str, code: Code, words: str = SYMBOLS) -> FileSymbols | None:
    try:
        with opened(path) as elf:
            base = elf.address(code.offset)
            found = elf.symbols(words)
            if base is None:
                return None
            moved = {name: code.address - base + at for name, at in found.addresses.items()}
            return FileSymbols(moved, found.all)
    except (OSError, ValueError, struct.error):
        return None
