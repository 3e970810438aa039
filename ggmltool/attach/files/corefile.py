"""What a core dump says of itself: whose it is, why it died, which memory it has, which files were mapped.

Read by itself, before gdb sees it, so that what is wrong with a file is said in a sentence.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import IO, NamedTuple

from ggmltool.attach.gdb.machines import MACHINES
from ggmltool.state.errors import AttachError

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_CORE, _LOAD, _NOTES = 4, 1, 4
_OTHERS = {3: "i386", 40: "arm", 21: "powerpc64", 22: "s390x", 243: "riscv64", 258: "loongarch64", 8: "mips"}
_STATUS, _PROCESS, _VECTOR, _FILES = 1, 3, 6, 0x46494C45
_HEADERS_AT = 3
"""AT_PHDR: where the program headers of the program itself lie."""
_BUILD_ID = 3
_MANY = 0xFFFF
_PACKERS = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\x1f\x8b": "gzip -d", b"\xfd7zXZ": "xz -d", b"\x04\x22\x4d\x18": "lz4 -d"}
_MOST_SEGMENTS = 1 << 20
_MOST_NOTES = 1 << 26
_HEAD = 1 << 16
_NAMED = 4
_SHOWN = 12
"""Digits of a build-id that are shown."""


class Segment(NamedTuple):
    """Memory that was dumped: `size` bytes at `address`, of which the file has `there`, from `offset`."""

    address: int
    size: int
    offset: int
    there: int
    writable: bool
    runs: bool


class Mapped(NamedTuple):
    """A file that was mapped: its lowest address, and the build-id that its memory has, where that was dumped."""

    path: str
    start: int
    build_id: str


class CoreFile(NamedTuple):
    """A core dump. `signal` is the name of the one that it died of ("": none), `program` the name that the kernel has
    of it, `executable` the file that it was ("": not told), `missing` the bytes that its end lacks."""

    path: Path
    machine: str
    signal: str
    program: str
    segments: tuple[Segment, ...]
    files: tuple[Mapped, ...]
    executable: str
    missing: int


def read_core(path: Path) -> CoreFile:
    """What a core dump says of itself. Raises AttachError, for a file that is none or that nobody can read here."""
    try:
        with path.open("rb") as file:
            return _read(path, file, path.stat().st_size)
    except OSError as error:
        raise AttachError(f"{path}: {error.strerror or error}") from None
    except struct.error:
        raise AttachError(f"{path} is a core dump whose tables are cut off; nothing can be read of it.") from None


def _read(path: Path, file: IO[bytes], length: int) -> CoreFile:
    def piece(offset: int, n: int) -> bytes:
        if offset >= length:
            return b""
        file.seek(offset)
        return file.read(n)

    start = piece(0, 64)
    if start[:4] != b"\x7fELF":
        tool = next((tool for magic, tool in _PACKERS.items() if start.startswith(magic)), "")
        packed = f" It is compressed: unpack it first (`{tool}`, or `coredumpctl dump -o core`)." if tool else ""
        raise AttachError(f"{path} is no core dump (it does not begin as an ELF file does).{packed}")
    if len(start) < 6:
        raise AttachError(f"{path} ends in its header; it is no core dump.")
    if start[4] == 1:
        raise AttachError(f"{path} is of a 32-bit program; attach reads 64-bit programs only.")
    if start[5] != 1:
        raise AttachError(f"{path} is of a big-endian machine; attach reads x86-64 and arm64 only.")
    kind, machine, _, _, table, sections, _, _, entry, n, _, _, _ = _HEADER.unpack_from(start, 16)
    if kind != _CORE:
        what = {1: "an object file", 2: "a program", 3: "a program or a library"}.get(kind, "another ELF file")
        raise AttachError(f"{path} is {what}, no core dump.")
    if machine not in MACHINES:
        name = _OTHERS.get(machine, f"machine {machine}")
        raise AttachError(f"{path} is of another machine ({name}); attach reads x86-64 and arm64 only.")
    if n == _MANY:
        n = struct.unpack_from("<I", piece(sections, 64), 44)[0]
    n = min(n, _MOST_SEGMENTS)
    headers = piece(table, n * max(entry, _SEGMENT.size))
    segments = [_SEGMENT.unpack_from(headers, i * entry) for i in range(n)]
    loads = tuple(
        Segment(at, size, offset, max(0, min(there, length - offset)), bool(flags & 2), bool(flags & 1))
        for kind, flags, offset, at, _, there, size, _ in segments
        if kind == _LOAD
    )
    signals, program, phdr, starts = list[int](), "", 0, dict[str, int]()
    for kind, _, offset, _, _, there, _, _ in segments:
        for owner, note, data in _notes(piece(offset, min(there, _MOST_NOTES))) if kind == _NOTES else ():
            if owner != b"CORE":
                continue
            if note == _STATUS and len(data) >= 14:
                signals += struct.unpack_from("<H", data, 12)
            elif note == _PROCESS and len(data) >= 136 and not program:
                program = data[40:56].split(b"\0")[0].decode("utf-8", "surrogateescape")
            elif note == _VECTOR:
                pairs = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
                phdr = phdr or pairs.get(_HEADERS_AT, 0)
            elif note == _FILES:
                for mapped, at in _mapped(data):
                    starts.setdefault(mapped, at)
    begun = [load for load in loads if load.address in starts.values()]
    heads = {load.address: piece(load.offset, min(load.there, _HEAD)) for load in begun}
    files = tuple(Mapped(file, at, build_id(heads.get(at, b""))) for file, at in starts.items())
    # The executable is the file in whose memory the program headers lie.
    before = [file for file in files if phdr and file.start <= phdr]
    executable = max(before, key=lambda file: file.start).path if before else ""
    ends = (offset + there for _, _, offset, _, _, there, _, _ in segments)
    missing = max(0, max(ends, default=0) - length)
    # The thread that died is the first.
    signal = _signal(signals[0]) if signals else ""
    return CoreFile(path, MACHINES[machine], signal, program, loads, files, executable, missing)


def _signal(number: int) -> str:
    try:
        return Signals(number).name if number else ""
    except ValueError:
        return f"signal {number}"


def build_id(head: bytes) -> str:
    """The build-id in the first bytes of an ELF file or of its memory, "" if it is not among them."""
    if head[:4] != b"\x7fELF" or len(head) < 64 or head[4] != 2:
        return ""
    _, _, _, _, table, _, _, _, entry, n, _, _, _ = _HEADER.unpack_from(head, 16)
    for i in range(n):
        at = table + i * entry
        if at + _SEGMENT.size > len(head):
            break
        kind, _, offset, _, _, there, _, _ = _SEGMENT.unpack_from(head, at)
        if kind == _NOTES and offset + there <= len(head):
            for name, what, data in _notes(head[offset : offset + there]):
                if name == b"GNU" and what == _BUILD_ID:
                    return data.hex()
    return ""


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    at = 0
    while at + _NOTE.size <= len(data):
        name_size, size, kind = _NOTE.unpack_from(data, at)
        name_at = at + _NOTE.size
        value_at = name_at + (name_size + 3) // 4 * 4
        at = value_at + (size + 3) // 4 * 4
        if at > len(data) + 3:
            return
        yield data[name_at : name_at + name_size].rstrip(b"\0"), kind, data[value_at : value_at + size]


def _mapped(data: bytes) -> Iterator[tuple[str, int]]:
    if len(data) < 16:
        return
    (n,) = struct.unpack_from("<Q", data)
    names = data[16 + 24 * n :].split(b"\0") if 16 + 24 * n <= len(data) else []
    for i, name in enumerate(names[:n]):
        start = struct.unpack_from("<Q", data, 16 + 24 * i)[0]
        yield name.decode("utf-8", "surrogateescape"), start


def program_dumped(core: CoreFile, sysroot: str | None = None) -> str | None:
    """The program's file, as the core dump has it, if it is here."""
    place = _place(core.executable, sysroot)
    return place if core.executable and Path(place).is_file() else None


def remarks(core: CoreFile, program: str | None, sysroot: str | None = None) -> list[str]:
    """What is the matter with a dump and the files that belong to it. `program` is the file that is taken for the one
    that dumped, `sysroot` the folder with the files of its machine."""
    out = []
    if core.missing:
        out.append(f"the core dump is cut off: its last {core.missing} bytes are missing; what lay there is unknown")
    here = {core.executable: program} if program is not None else {}
    gone, others = [], []
    for file in core.files:
        place = here.get(file.path) or _place(file.path, sysroot)
        if not file.build_id and file.path != core.executable:
            continue
        if not Path(place).is_file():
            gone.append(file.path)
        elif file.build_id:
            found = ""
            with suppress(OSError), Path(place).open("rb") as opened:
                found = build_id(opened.read(_HEAD))
            if found != file.build_id:
                others.append(f"{place} ({found[:_SHOWN] or 'none'}, it was {file.build_id[:_SHOWN]})")
    if gone:
        out.append(f"not here, so that neither its code nor its symbols are known: {_some(gone)}")
    if others:
        out.append(f"another file now than the one that was mapped, by its build-id: {_some(others)}")
    return out


def _place(path: str, sysroot: str | None) -> str:
    """Where a file of the machine is looked for: in its folder, then at the same place here."""
    inside = f"{sysroot}/{path.lstrip('/')}" if sysroot is not None else ""
    return inside if inside and Path(inside).is_file() else path


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
