"""The lines of ggml's debug print, in all dialects: headers of splits, nodes, and what of them can be read.

All columns have fixed widths in bytes, so bytes are matched. Programs that log in pieces put a prefix before each
piece, also within a line: between the parts anything may stand. Where somebody collapsed the spaces, a looser
pattern reads what is left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ggmltool.scenario.text.text import Pieced, Readable
from ggmltool.sources.sched_log.records import ByteRange, LogInput, LogNode, LogTensorRef

HEADER_MARK = b"## SPLIT #"
NODE_MARK = b"node #"

MAX_NAME = 200
"""Bytes of a name that are kept, at most."""

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Za-z0-9]")
_HEADER = re.compile(rb"## SPLIT #(\d{1,9}): (.{1,200}?) # (\d{1,9}) inputs(:)?", re.DOTALL)
_INPUT = re.compile(rb"\[([^\n]{0,70}?) \( *(\d{1,5})([KM]?)\)\]")
_NODE = re.compile(
    rb"node # *(\d{1,9}) \((.{10})\): (.{20}) \( *(\d{1,5})([KM]?)\) \[(.{5}) (.{8})\](?: use=(-?\d{1,9}),c=([01]))?:",
    re.DOTALL,
)
_SOURCE = re.compile(rb" (.{20}) \( *(\d{1,5})([KM]?)\) \[(.{5}) (.{8})\]", re.DOTALL)
_LOOSE_NODE = re.compile(
    rb"node # *(\d{1,9}) \( *([^()\s]{1,10})\): *(\S.{0,40}?|) \( *(\d{1,5})([KM]?)\) "
    rb"\[ *(\S{1,5}?)(?: +(\S{1,8}))? *\](?: use=(-?\d{1,9}),c=([01]))?:"
)
_LOOSE_SOURCE = re.compile(
    rb" {0,40}(\S.{0,40}?|) \( {0,5}(\d{1,5})([KM]?)\) \[ {0,5}(\S{1,5}?)(?: {1,20}(\S{1,8}))? {0,20}\]"
)
_PIECE = re.compile(rb"^ ?(?:\d+\.\d\d\.\d{3}\.\d{3} )?[DIWE] +(?=\S)")
"""llama.cpp's time stamp and level, as they stand before a piece of a line."""

_PASS = re.compile(rb"PASS \d ASSIGNMENTS")

_BEGINS = re.compile(rb"node # *\d{1,9}(?: \(|$)")
_ORPHAN = re.compile(rb"\( {0,4}\d{1,5}[KM]?\) \[.{5}")
_CLEAN = re.compile(rb"\s*(?:(?:\d+\.\d\d\.\d{3}\.\d{3} )?[DIWE]\s*)?(?:\\[nr].*)?", re.DOTALL)
"""What may stand behind a whole node line: nothing, a prefix of llama.cpp's, the end of a line that docker keeps."""

node_match = _NODE.match
"""A node line whose columns are as ggml writes them, from its mark on."""

loose_node_match = _LOOSE_NODE.match


class SplitHeader(NamedTuple):
    """The header of a split."""

    id: int
    backend: str
    n_inputs: int
    inputs: tuple[LogInput, ...]
    is_2024: bool


def text(raw: bytes) -> str:
    """A name in a column as text; bytes that are no UTF-8 (names are cut by bytes) come out as surrogates."""
    return raw[:MAX_NAME].strip().decode("utf-8", "surrogateescape")


def without_ansi(line: bytes) -> bytes:
    """The line without colors."""
    return _ANSI.sub(b"", line) if b"\x1b" in line else line


def bounds(number: bytes, unit: bytes) -> ByteRange:
    """The bytes that `512K`, `2M` or `20480` can be: the column is five wide, from 9.8 GiB on the M is cut off.

    A tensor of 97.7 GiB or more loses digits too and is taken for a tenth of what it is.

    >>> bounds(b"512", b"K")
    ByteRange(low=524288, high=525311)
    """
    n = int(number)
    if unit == b"K":
        return ByteRange(n << 10, ((n + 1) << 10) - 1)
    return ByteRange(n << 20, ((n + 1) << 20) - 1)


def read_header(line: bytes, at: int) -> SplitHeader | None:
    """The header of a split whose mark stands at `at`; None if it is none, or cut."""
    clean = without_ansi(line[at:])
    match = _HEADER.match(clean)
    if match is None:
        return None
    inputs = tuple(
        LogInput(name.decode("utf-8", "surrogateescape"), bounds(number, unit))
        for name, number, unit in _INPUT.findall(clean, match.end())
    )
    n_inputs = int(match[3])
    return SplitHeader(int(match[1]), text(match[2]), n_inputs, inputs, n_inputs == 0 and match[4] is not None)


def read_node(line: bytes, number: int) -> LogNode | None:
    """The node whose line begins so, of this number; None if it is none, or cut before its sources. Backends are cut to
    five bytes.
    """
    clean = without_ansi(line)
    match = _NODE.match(clean)
    if match is not None:
        sources = [_source(*found) for found in _SOURCE.findall(clean, match.end())]
    else:
        match = _LOOSE_NODE.match(clean)
        if match is None:
            return None
        sources = [_source(_PIECE.sub(b"", name), *rest) for name, *rest in _LOOSE_SOURCE.findall(clean, match.end())]
    index, op, name, size, unit, backend, cause, use_count, compute = match.groups()
    return LogNode(
        int(index),
        text(op),
        text(name),
        bounds(size, unit),
        text(backend),
        text(cause or b"") or None,
        None if use_count is None else int(use_count),
        None if use_count is None else compute == b"1",
        tuple(sources),
        number,
    )


def _source(name: bytes, number: bytes, unit: bytes, backend: bytes, cause: bytes) -> LogTensorRef:
    return LogTensorRef(text(name), bounds(number, unit), text(backend), text(cause) or None)


def is_node(line: bytes) -> bool:
    """Whether a line begins as a node does, whatever its end is."""
    return _BEGINS.search(line) is not None


def node_is_cut(line: bytes, end: int) -> bool:
    """Whether a node line, whose own columns end at `end`, breaks off within one of its sources."""
    if line[-1:] == b"]":
        return False
    rest = without_ansi(line[end:])
    return _CLEAN.fullmatch(rest, rest.rfind(b"]") + 1) is None


def node_adds_up(line: bytes, at: int) -> bool:
    """Whether a node line has all its columns where ggml writes them: behind the node there is nothing but sources."""
    match = _NODE.match(line, at)
    if match is None:
        return False
    left = _SOURCE.sub(b"", line[match.end() :])
    return _CLEAN.fullmatch(left) is not None and not node_is_cut(line, match.end())


def is_orphan(line: bytes) -> bool:
    """Whether a line has a source of a node whose line it is not."""
    return _ORPHAN.search(without_ansi(line)) is not None


def is_pass_title(line: bytes) -> bool:
    """`PASS 1 ASSIGNMENTS`: what follows is the state after one pass, without splits."""
    return _PASS.search(line) is not None


_CHUNK = 1 << 20
_LEAST = 3
"""Lines of the scheduler's print that tell whether a log is wrapped."""

_DROPPED = 30
"""Spaces that a column is padded with at most, and more."""

_NARROWEST = 50
_WIDEST = 1000
_STAMPED = re.compile(rb"(?:\x1b\[[\d;]*m)?(?:\[\w+\] )?\d+\.\d\d\.\d{3}\.\d{3} ")


class Rejoined:
    """A stream whose lines are whole, though they were cut; other streams pass as they are.

    Lines that were joined are followed by as many empty ones, so that lines keep their numbers. `width` is where they
    were cut, 0 if they were not or if it is not known yet; with `by_words` they were cut at a space before it.
    """

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.width = 0
        self.by_words = False
        self._decided = False
        self._joined: Pieced | None = None

    def read(self, n: int = -1, /) -> bytes:
        """Up to `n` bytes, fewer only at the end; all of them for -1."""
        if self._joined is not None:
            return self._joined.read(n)
        data = self.stream.read(n)
        if not self._decided and data:
            marked = _marked(data)
            self._decided = len(marked) >= _LEAST
            if self._decided:
                self.width, self.by_words = _width_of(data.split(b"\n"), marked)
            if self.width:
                self._joined = Pieced(self._join(data))
                return self._joined.read(n)
        return data

    def _join(self, data: bytes) -> Iterator[bytes]:
        """All that is left of the stream, beginning with `data`."""
        held: list[bytes] = []
        rest = b""
        while data:
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            out: list[bytes] = []
            for line in lines:
                if held and self._continues(held, line):
                    held.append(line)
                    continue
                out.append(self._flushed(held))
                held = [line]
            yield b"".join(out)
            data = self.stream.read(_CHUNK)
        if rest and held and self._continues(held, rest):
            yield self._flushed([*held, rest])[:-1]
        else:
            yield self._flushed(held) + rest

    def _flushed(self, held: list[bytes]) -> bytes:
        """The lines that are held as one; as they are where that makes no sense, so that they count as cut."""
        if len(held) < 2:
            return b"".join(held) + b"\n" * len(held)
        whole = self._whole(held)
        mark = whole.find(NODE_MARK)
        if mark >= 0 and not node_adds_up(whole, mark):
            tries = (self._whole(held, more) for more in range(1, _DROPPED))
            fitting = next((one for one in tries if node_adds_up(one, mark)), None)
            if fitting is None:
                return b"\n".join([*held, b""])
            whole = fitting
        return whole + b"\n" * len(held)

    def _whole(self, held: list[bytes], more: int = 0) -> bytes:
        """The pieces of a line as one, with the spaces that were lost at their ends, and `more`."""
        pieces = [piece.rstrip(b"\r") for piece in held]
        if self.by_words:
            return b"".join(piece if piece.endswith(b" ") else piece + b" " for piece in pieces[:-1]) + pieces[-1]
        return b"".join(piece + b" " * (self.width + more - _length(piece)) for piece in pieces[:-1]) + pieces[-1]

    def _continues(self, held: list[bytes], line: bytes) -> bool:
        """Whether a line is the rest of those that are held."""
        if not line.strip() or NODE_MARK in line or HEADER_MARK in line or _STAMPED.match(line):
            return False
        whole = self._whole(held)
        cut = is_cut(whole)
        if cut or (cut is False and is_orphan(line)):
            return True
        return cut is None and not self.by_words and _length(held[-1]) == self.width


def _marked(data: bytes) -> list[int]:
    """The numbers of the lines of the scheduler's print, but for one that may be cut by the end of the data."""
    if NODE_MARK not in data and HEADER_MARK not in data:
        return []
    lines = data.split(b"\n")
    return [i for i, line in enumerate(lines[:-1]) if NODE_MARK in line or HEADER_MARK in line]


def _width_of(lines: list[bytes], marked: list[int]) -> tuple[int, bool]:
    """The width that lines are cut at, and whether between words; 0 if none is cut, or where what is cut is lost."""
    nodes = set(marked)
    cut = [i for i in marked if is_cut(lines[i]) or (i + 1 not in nodes and is_orphan(lines[i + 1]))]
    if not cut:
        return 0, False
    widths = Counter(_length(lines[i]) for i in cut)
    width, longest = max(widths), max(map(_length, lines[:-1]))
    by_words = widths[width] * 2 < len(cut) or (width < longest and all(lines[i].endswith((b" ", b" \r")) for i in cut))
    if longest > width + (_DROPPED if by_words else 0) or not _NARROWEST <= longest <= _WIDEST:
        return 0, False
    goes_on = sum(i + 1 not in nodes and bool(lines[i + 1].strip()) for i in cut)
    return (longest if goes_on * 2 > len(cut) else 0), by_words


def is_cut(line: bytes) -> bool | None:
    """Whether a line of the print lacks its end; None for any other line."""
    mark = line.find(HEADER_MARK)
    if mark >= 0:
        header = read_header(line, mark)
        return header is None or len(header.inputs) < header.n_inputs
    mark = line.find(NODE_MARK)
    if mark < 0:
        return None
    whole = node_match(line, mark) or loose_node_match(line, mark)
    return whole is None or node_is_cut(line, whole.end())


def _length(line: bytes) -> int:
    """The characters of a line."""
    line = line.rstrip(b"\r")
    return len(line) if line.isascii() else len(line.decode("utf-8", "replace"))
