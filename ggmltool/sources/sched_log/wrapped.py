"""Logs whose lines a terminal or an editor has cut, at a width or between words, joined again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ggmltool.scenario.text.text import Readable
from ggmltool.sources.sched_log.lines import (
    HEADER_MARK,
    NODE_MARK,
    is_orphan,
    loose_node_match,
    node_adds_up,
    node_is_cut,
    node_match,
    read_header,
)

_CHUNK = 1 << 20
_LEAST = 3
"""Lines of the scheduler's print that tell whether a log is wrapped."""

_DROPPED = 30
"""Spaces that a column is padded with at most, and more."""

_NARROWEST = 50
_WIDEST = 1000
_BEGINS = re.compile(rb"(?:\x1b\[[\d;]*m)?(?:\[\w+\] )?\d+\.\d\d\.\d{3}\.\d{3} ")


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
        self._ready = b""
        self._blocks: Iterator[bytes] | None = None

    def read(self, n: int = -1, /) -> bytes:
        """Up to `n` bytes, fewer only at the end; all of them for -1."""
        if self._blocks is not None:
            return self._joined(n)
        data = self.stream.read(n)
        if not self._decided and data:
            marked = _marked(data)
            self._decided = len(marked) >= _LEAST
            if self._decided:
                self.width, self.by_words = _width_of(data.split(b"\n"), marked)
            if self.width:
                self._blocks = self._join(data)
                return self._joined(n)
        return data

    def _joined(self, n: int) -> bytes:
        parts, have = [self._ready], len(self._ready)
        while self._blocks is not None and (n < 0 or have < n):
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
            have += len(block)
        whole = b"".join(parts)
        end = len(whole) if n < 0 else n
        self._ready = whole[end:]
        return whole[:end]

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
        if not line.strip() or NODE_MARK in line or HEADER_MARK in line or _BEGINS.match(line):
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
