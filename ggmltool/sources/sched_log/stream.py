"""The lines of a log: from a file, a `.gz` or standard input, as a stream; and whether a file is a log at all."""

from __future__ import annotations

import gzip
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.text.text import MAX_BYTES, Readable, file_meant, is_scenario, no_model, recoded, wide_codec
from ggmltool.sources.sched_log.lines import HEADER_MARK, NODE_MARK, Rejoined

CHUNK = 1 << 20
"""Bytes that are read at once."""

LONGEST = 1 << 16
"""Bytes of a line that are looked at; what is beyond is left out."""

_HEAD = 1 << 16
_BEGINS = 256
"""Bytes that tell how a text is encoded."""

_PACKED = {
    b"\xfd7zXZ\x00": ("an xz file", "xz -dc FILE | ggmltool import -"),
    b"\x28\xb5\x2f\xfd": ("a zstd file", "zstd -dc FILE | ggmltool import -"),
    b"BZh": ("a bzip2 file", "bzip2 -dc FILE | ggmltool import -"),
    b"PK\x03\x04": ("a zip archive", "unzip -p FILE | ggmltool import -"),
}


class Replayed:
    """A stream some of whose bytes were read already."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self.head = head
        self.rest = rest

    def read(self, n: int = -1, /) -> bytes:
        """The bytes that were read first, then the rest; all of them for -1."""
        if n < 0:
            head, self.head = self.head, b""
            return head + self.rest.read(-1)
        if self.head:
            head, self.head = self.head[:n], self.head[n:]
            return head if len(head) == n else head + self.rest.read(n - len(head))
        return self.rest.read(n)


class RecordedStream:
    """A stream that remembers what was read from it."""

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.parts: list[bytes] = []

    def read(self, n: int, /) -> bytes:
        """Up to `n` bytes."""
        data = self.stream.read(n)
        self.parts.append(data)
        return data

    def again(self) -> Replayed:
        """The stream from its beginning."""
        return Replayed(b"".join(self.parts), self.stream)


class LogLines:
    """The lines of a stream without their ends, each at most LONGEST bytes, in blocks.

    `head` is how the stream begins, `long` counts the lines that were cut, `ended` is false where the last line has no
    end. While `every` is set, no lines are passed over.
    """

    def __init__(self, stream: Readable, source: str) -> None:
        self.stream = stream
        self.source = source
        self.head = b""
        self.long = 0
        self.ended = True
        self.every = False

    @property
    def width(self) -> int:
        """Where the lines were cut that were joined again, 0 if none was."""
        return self.stream.width if isinstance(self.stream, Rejoined) else 0

    def blocks(self, marks: Sequence[bytes] = ()) -> Iterator[tuple[int, list[bytes]]]:
        """All lines in order, as pairs: how many lines come first that have none of the marks, and lines.

        Raises ScenarioError if the stream cannot be read.
        """
        rest = b""
        cutting = False
        while chunk := _read(self.stream, CHUNK, self.source):
            self.head = self.head or chunk[:_HEAD]
            end = chunk.rfind(b"\n") + 1
            first = rest + chunk[: chunk.find(b"\n")]
            skips = end and not cutting and marks and not self.every
            if skips and not any(mark in chunk or mark in first for mark in marks):
                rest = chunk[end:]
                yield chunk.count(b"\n"), []
                continue
            lines = chunk.split(b"\n")
            lines[0] = rest + lines[0]
            rest = lines.pop()
            if cutting:
                cutting = not lines
                lines, rest = lines[1:], b"" if cutting else rest
            if len(rest) > LONGEST:
                lines.append(rest)
                rest, cutting = b"", True
            yield 0, self._cut(lines)
        if rest:
            self.ended = False
            yield 0, self._cut([rest])

    def _cut(self, lines: list[bytes]) -> list[bytes]:
        for i, line in enumerate(lines):
            if len(line) > LONGEST:
                lines[i] = line[:LONGEST]
                self.long += 1
        return lines

    def beginning(self, n: int) -> bytes:
        """The first `n` bytes of a stream that nothing was read from yet. Raises ScenarioError."""
        return _read(self.stream, n, self.source)


def _read(stream: Readable, n: int, source: str) -> bytes:
    try:
        return stream.read(n)
    except EOFError:
        raise ScenarioError("this gzip file is cut off", source) from None
    except (gzip.BadGzipFile, zlib.error) as e:
        raise ScenarioError(f"this gzip file is damaged ({e})", source) from None
    except OSError as e:
        raise ScenarioError(f"cannot be read: {e.strerror or e}", source) from None


@contextmanager
def open_log(name: str, source: str, stream: Readable | None = None) -> Iterator[LogLines]:
    """The lines of a file, unpacked where it is a `.gz`, or of standard input for `-`; of `stream`, if it is given.

    `source` is what messages call it. Raises ScenarioError.
    """
    if stream is None and name == "-":
        stream = sys.stdin.buffer
    with nullcontext(stream) if stream is not None else _file(name, source) as file:
        yield LogLines(Rejoined(_unpacked(file, source)), source)


def _file(name: str, source: str) -> BinaryIO:
    """The file that is called `name`. Raises ScenarioError."""
    try:
        path = Path(name)
        if stat.S_ISDIR(path.stat().st_mode):
            raise ScenarioError("this is a directory", source, expected="name a file")
        return path.open("rb")
    except FileNotFoundError:
        raise ScenarioError("there is no such file", source, expected=file_meant(name)) from None
    except OSError as e:
        raise ScenarioError(f"cannot be read: {e.strerror or e}", source) from None
    except ValueError:
        raise ScenarioError("this is not a file name", source) from None


def _unpacked(stream: Readable, source: str) -> Readable:
    """The text of a stream: unpacked, and in UTF-8 whatever it was written in. Raises ScenarioError."""
    head = _read(stream, 8, source)
    no_model(head, source)
    for magic, (what, remedy) in _PACKED.items():
        if head.startswith(magic):
            raise ScenarioError(f"this is {what}", source, expected=f"unpack it: {remedy}")
    whole: Readable = Replayed(head, stream)
    if head[:2] == b"\x1f\x8b":
        whole = gzip.GzipFile(fileobj=whole, mode="rb")  # type: ignore[call-overload]
    begins = _read(whole, _BEGINS, source)
    return _in_utf8(Replayed(begins, whole), begins)


def _in_utf8(stream: Readable, head: bytes) -> Readable:
    codec = wide_codec(head)
    return stream if codec is None else recoded(stream, codec)


def sniff(name: str, closing: ExitStack) -> tuple[bool, Readable | None]:
    """Whether a file, or standard input for `-`, is a log; and its content where it cannot be read a second time.

    What then stays open is closed with `closing`.
    """
    if name == "-":
        recorded = RecordedStream(sys.stdin.buffer)
        return is_log(recorded), recorded.again()
    try:
        path = Path(name)
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return False, None
        file = path.open("rb")
    except (OSError, ValueError):
        return False, None
    if stat.S_ISREG(mode):
        with file:
            return is_log(file, sys.maxsize), None
    recorded = RecordedStream(closing.enter_context(file))
    return is_log(recorded), recorded.again()


def is_log(stream: Readable, most: int = MAX_BYTES) -> bool:
    """Whether a stream, packed or not, has a line of the scheduler's debug print and is no scenario.

    Reads on until it finds such a line, or until there are more than `most` bytes, by default more than a scenario has.
    """
    try:
        head = stream.read(_HEAD)
        if head[:2] == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=Replayed(head, stream), mode="rb")  # type: ignore[call-overload]
            head = stream.read(_HEAD)
        if wide_codec(head) is not None:
            stream = _in_utf8(Replayed(head, stream), head)
            head = stream.read(_HEAD)
        length = 0
        while head and length <= most and not (length == 0 and is_scenario(head.decode("utf-8", "replace"))):
            if HEADER_MARK in head or NODE_MARK in head:
                return True
            chunk = stream.read(CHUNK)
            length += len(chunk)
            head = head[-len(HEADER_MARK) :] + chunk if chunk else b""
    except (EOFError, OSError, zlib.error):
        return False
    return False
