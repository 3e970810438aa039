"""The other lines of a log that matter here: titles of graphs, reallocations, what ggml says, sizes of buffers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ggmltool.sources.sched_log.lines import text, without_ansi
from ggmltool.sources.sched_log.records import Abort, Breakdown, BufferSize, Message, Realloc
from ggmltool.sources.sched_log.said import SAID_MARKS, aborted, after_abort, is_repeated, may_say, said

OTHER_MARKS = (b" buffer size", b"reallocating ", b"ggml", b"!!!!", b"memory breakdown", *SAID_MARKS)
"""What the lines that are grouped here have in them."""

MAX_KINDS = 1000
"""Different messages, buffer types and devices that are kept, at most."""

MAX_ABORTS = 100
"""Aborts that are kept; a log of many runs has many."""

MAX_SIZES = 8
"""Different sizes of one buffer that are kept."""

_IN_NAME = re.compile(r"(?<=[a-z_-])\d+|(?<=[a-z_-]\.)\d+")
"""Numbers of layers, nodes and leafs within names."""

_LONGEST = 300
_LOOKED_AT = 1000
_JSON_END = b'\\n"'
"""How the text of a line ends where docker keeps it as JSON."""

_TITLE = re.compile(rb"graph_reserve: reserving a graph for ubatch with ((?:\w+ *= *\d+(?:, *)?)+)")
_REALLOC = re.compile(rb"reallocating (\S{1,64}) buffer from size (\d{1,12}\.\d{1,6}) MiB to (\d{1,12}\.\d{1,6}) MiB")
_MESSAGE = re.compile(rb"(?:ggml_(?:gallocr|backend_sched|backend_tensor_copy|vbuffer|dyn_tallocr)\w*: |!!!!+ ).*\S")
_BUFFER = re.compile(rb"(\S{1,64}) {1,40}(\w{1,20}) buffer size = {0,40}(\d{1,12}\.\d{1,6}) MiB")
_NUMBER = rb" {0,60}(-?\d{1,20}) {0,60}"
_BREAKDOWN = re.compile(
    rb"- ([^|\n]{1,100}?)(?:\||: )(?:" + _NUMBER + b"=" + _NUMBER + rb"\+ \(| {0,40}(\d{1,20}) {2,60}(?=\d))?" + _NUMBER
    + b"=" + _NUMBER + rb"\+" + _NUMBER + rb"\+" + _NUMBER + rb"\)?(?: {0,40}\+" + _NUMBER + rb")? {0,60}(?:\||$)"
)  # fmt: skip
_WRAPPED = (1 << 64) >> 20
"""MiB that a negative number is too large by where it was printed without a sign."""

_BETWEEN = 3
"""Lines that may stand between the rows of a memory breakdown."""


def title_of(line: bytes) -> str | None:
    """`n_tokens = 512, n_seqs = 1, n_outputs = 512` from llama.cpp's line before a graph that it reserves."""
    found = _TITLE.search(without_ansi(line))
    return None if found is None else " ".join(text(found[1]).split())


def _signed(mib: int) -> int:
    """The number, negative if it was one."""
    return mib - _WRAPPED if mib >= _WRAPPED >> 1 else mib


@dataclass(slots=True)
class _Seen:
    example: str
    count: int
    first_line: int
    last_line: int
    first_graph: int
    last_graph: int


@dataclass(slots=True)
class _Grown:
    count: int
    first: float
    last: float
    largest: float
    first_line: int
    last_line: int


@dataclass(slots=True)
class _Sizes:
    count: int = 0
    sizes: dict[float, None] = field(default_factory=dict)
    last: float = 0.0


class OtherLines:
    """Groups and counts lines as they come; everything it keeps is bounded.

    While `in_table` lines matter without a mark.
    """

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}
        self.left_out = 0
        self.grown: dict[str, _Grown] = {}
        self.sizes: dict[tuple[str, str], _Sizes] = {}
        self.table: dict[str, Breakdown] = {}
        self.tables = 0
        self.in_table = False
        self.between = 0
        self.aborts: list[Abort] = []

    def add(self, line: bytes, number: int, graph: int) -> None:
        """Take line `number`, after the header of graph `graph` (0: before any)."""
        line = line[:_LOOKED_AT]
        if b"memory breakdown" in line and (b"[MiB]" in line or b"unaccounted" in line):
            self.table.clear()
            self.tables += 1
            self.in_table = True
            self.between = 0
        elif not (
            (self.in_table and self._row(line))
            or (b" buffer size" in line and self._buffer(line))
            or (b"reallocating " in line and self._realloc(line, number))
            or (may_say(line) and self._said(line, number, graph))
        ) and (b"ggml_" in line or b"!!!!" in line):
            found = _MESSAGE.search(without_ansi(line))
            if found is not None:
                text = found[0].partition(_JSON_END)[0].decode("utf-8", "surrogateescape")
                self._message(text, number, graph)

    def _said(self, line: bytes, number: int, graph: int) -> bool:
        """Whether a line tells where the program died, or what could not be allocated."""
        last = self.aborts[-1] if self.aborts else None
        if last is not None and number <= last.last_line + 2:
            more = after_abort(line)
            if more is not None:
                self.aborts[-1] = last._replace(text=f"{last.text}, {more}", last_line=number)
                return True
        text = aborted(line)
        if text is None:
            text = said(line)
            if text is not None:
                self._message(text, number, graph)
            return text is not None
        if not (last is not None and is_repeated(text, last.text)) and len(self.aborts) < MAX_ABORTS:
            self.aborts.append(Abort(text[:_LONGEST], number, number))
        return True

    def _buffer(self, line: bytes) -> bool:
        found = _BUFFER.search(without_ansi(line))
        if found is None:
            return False
        kind, buft = text(found[2]), text(found[1])
        # Before 2025 the weights had no word for their kind: `llm_load_tensors:  CUDA0 buffer size = …`.
        key = ("model", kind) if buft.endswith(":") else (kind, buft)
        if key in self.sizes or len(self.sizes) < MAX_KINDS:
            entry = self.sizes.setdefault(key, _Sizes())
            entry.count += 1
            entry.last = float(found[3])
            if len(entry.sizes) < MAX_SIZES:
                entry.sizes[entry.last] = None
        return True

    def _realloc(self, line: bytes, number: int) -> bool:
        found = _REALLOC.search(line)
        if found is None:
            return False
        buft, before, after = text(found[1]), float(found[2]), float(found[3])
        entry = self.grown.get(buft)
        if entry is not None:
            entry.count += 1
            entry.last = after
            entry.largest = max(entry.largest, after)
            entry.last_line = number
        elif len(self.grown) < MAX_KINDS:
            self.grown[buft] = _Grown(1, before, after, max(before, after), number, number)
        return True

    def _message(self, message: str, number: int, graph: int) -> None:
        message = message[:_LONGEST]
        kind = _IN_NAME.sub("*", message)
        entry = self.seen.get(kind)
        if entry is not None:
            entry.count += 1
            entry.last_line, entry.last_graph = number, graph
        elif len(self.seen) < MAX_KINDS:
            self.seen[kind] = _Seen(message, 1, number, number, graph, graph)
        else:
            self.left_out += 1

    def _row(self, line: bytes) -> bool:
        """A row of the memory breakdown; the table ends after some lines that are none."""
        found = _BREAKDOWN.search(without_ansi(line).rstrip())
        if found is None or len(self.table) >= MAX_KINDS:
            self.between += 1
            self.in_table = self.between <= _BETWEEN
            return False
        device = text(found[1])
        total, free, alone, *parts = (None if n is None else _signed(int(n)) for n in found.groups()[1:])
        own, model, context, compute, rest = parts
        own, model, context, compute = own or 0, model or 0, context or 0, compute or 0
        self.table[device] = Breakdown(device, total or alone, free, own, model, context, compute, rest)
        return True

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(
            Message(kind, e.example, e.count, e.first_line, e.last_line, e.first_graph, e.last_graph)
            for kind, e in self.seen.items()
        )

    @property
    def reallocs(self) -> tuple[Realloc, ...]:
        return tuple(
            Realloc(buft, e.count, e.first, e.last, e.largest, e.first_line, e.last_line)
            for buft, e in self.grown.items()
        )

    @property
    def buffers(self) -> tuple[BufferSize, ...]:
        return tuple(BufferSize(kind, buft, e.count, tuple(e.sizes), e.last) for (kind, buft), e in self.sizes.items())
