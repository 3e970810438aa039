"""The other lines of a log that matter here: titles of graphs, reallocations, what ggml says, sizes of buffers."""

from __future__ import annotations

import re

from msgspec.structs import replace

from ggmltool.sources.sched_log.lines import text, without_ansi
from ggmltool.sources.sched_log.records import Breakdown, BufferSize, LogAbort, LogMessage, Realloc

SAID_MARKS = (
    b"graph", b"GGML_ASSERT", b"A error: ", b"ROCm error", b"current device: ", b"failed", b"unable to allocate",
    b"pipeline parallelism", b"preferred buffer type", b"params_fit", b"fit_params", b"is assigned to device",
    b"layers to GPU", b"what():  ", b"error loading model",
)  # fmt: skip
"""What the lines that are looked at here have in them, where `ggml` is not in them anyway."""

_PLACE = re.compile(rb"\.(?:c|cpp|cu|cuh|m|mm|h):\d")
_FILE = (
    rb"(?:[\w./\\:+~ -]*[/\\])?(?:ggml|llama|ops|binary-ops|unary-ops|gguf)[\w.-]*\.(?:c|cpp|cu|cuh|m|mm|h):\d{1,7}: "
)
_ABORT = re.compile(
    rb"(?:" + _FILE + rb")?GGML_ASSERT(?:\(.{1,300}\)(?: failed)?|: \S{1,200}:\d{1,7}: .{1,200})"
    rb"|(?<![\w/\\.-])" + _FILE + rb"(?!warning|error|note)\S.{0,300}"
    rb"|(?:CUDA|ROCm|MUSA) error: \S.{0,200}"
)  # fmt: skip
_AFTER = re.compile(rb"current device: \d.{0,250}")
"""What CUDA says in the line after its error: the device and the function."""
_FIT = (
    rb"(?:common|llama)_(?:params_fit|fit_params)\w*: .{0,60}(?:projected|will leave|cannot meet|cannot fulfill"
    rb"|context size|fit params|targets for free|entire model|surplus|deficit|MiB used| used, )"
)
_SAID = re.compile(
    rb"(?:" + _FIT + rb"|(?P<behind>pipeline parallelism enabled|graph splits += |graph nodes += "
    rb"|graph(?: \(pp bs=\d+, tg bs=\d+\))?: nodes = |graph reallocation: nodes = |graph reallocs += "
    rb"|compute buffer allocation failed|failed to (?!open|load|parse|read|find(?! a memory slot))"
    rb"|could not reserve|unable to allocate|allocating \d+\.\d+ MiB on device|layer \d+ is assigned to device"
    rb"|tensor '.{1,70}' .{1,60} cannot be used with preferred|offloaded \d+/\d+ layers"
    rb"|error: failed to allocate|error loading model: )"
    rb"|what\(\):  |ggml_vulkan: (?:Device m|M)emory allocation)(?:.{0,300}\S)?"
)  # fmt: skip
_FUNCTION = re.compile(rb"[\w:~]{1,80}: +$")
"""What stands before it: looked for once it is found, since looking at every letter is what takes time."""
_LOOKED_BACK = 100
_CUDA = re.compile(r"(?:CUDA|ROCm|MUSA) error")


def may_say(line: bytes) -> bool:
    """Whether a line may be one of those that are read here."""
    for mark in SAID_MARKS:
        if mark in line:
            return True
    return b"ggml" in line and _PLACE.search(line) is not None


def aborted(line: bytes) -> str | None:
    """Where and why the program died, if this line says so."""
    line = without_ansi(line)
    if b"GGML_ASSERT" not in line and b" error: " not in line and _PLACE.search(line) is None:
        return None  # the search behind every letter of a long line takes a while
    found = _ABORT.search(line)
    return None if found is None else _text(found[0])


def said(line: bytes) -> str | None:
    """What llama.cpp or a device says of memory and graphs, if this line does."""
    line = without_ansi(line)
    found = _SAID.search(line)
    if found is None:
        return None
    function = _FUNCTION.search(line, max(found.start() - _LOOKED_BACK, 0), found.start()) if found["behind"] else None
    return _text(line[found.start() if function is None else function.start() : found.end()])


def _text(raw: bytes) -> str:
    return " ".join(raw.decode("utf-8", "surrogateescape").partition('\\n"')[0].split())


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


class OtherLines:
    """Groups and counts lines as they come; everything it keeps is bounded.

    While `in_table` lines matter without a mark.
    """

    def __init__(self) -> None:
        self.messages: dict[str, LogMessage] = {}
        self.left_out = 0
        self.reallocs: dict[str, Realloc] = {}
        self.buffers: dict[tuple[str, str], BufferSize] = {}
        self.table: dict[str, Breakdown] = {}
        self.tables = 0
        self.in_table = False
        self.between = 0
        self.aborts: list[LogAbort] = []

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
            more = _AFTER.search(without_ansi(line))
            if more is not None:
                self.aborts[-1] = replace(last, text=f"{last.text}, {_text(more[0])}", last_line=number)
                return True
        text = aborted(line)
        if text is None:
            text = said(line)
            if text is not None:
                self._message(text, number, graph)
            return text is not None
        repeated = last is not None and text.endswith(": CUDA error") and _CUDA.match(last.text)
        if not repeated and len(self.aborts) < MAX_ABORTS:
            self.aborts.append(LogAbort(text[:_LONGEST], number, number))
        return True

    def _buffer(self, line: bytes) -> bool:
        found = _BUFFER.search(without_ansi(line))
        if found is None:
            return False
        kind, buft = text(found[2]), text(found[1])
        # Before 2025 the weights had no word for their kind: `llm_load_tensors:  CUDA0 buffer size = …`.
        key = ("model", kind) if buft.endswith(":") else (kind, buft)
        if key in self.buffers or len(self.buffers) < MAX_KINDS:
            size = float(found[3])
            before = self.buffers.get(key) or BufferSize(*key, 0, (), size)
            sizes = before.sizes if size in before.sizes else (*before.sizes, size)[:MAX_SIZES]
            self.buffers[key] = replace(before, count=before.count + 1, sizes=sizes, last=size)
        return True

    def _realloc(self, line: bytes, number: int) -> bool:
        found = _REALLOC.search(line)
        if found is None:
            return False
        buft, before, after = text(found[1]), float(found[2]), float(found[3])
        entry = self.reallocs.get(buft)
        if entry is not None:
            largest = max(entry.largest, after)
            self.reallocs[buft] = replace(entry, count=entry.count + 1, last=after, largest=largest, last_line=number)
        elif len(self.reallocs) < MAX_KINDS:
            self.reallocs[buft] = Realloc(buft, 1, before, after, max(before, after), number, number)
        return True

    def _message(self, message: str, number: int, graph: int) -> None:
        message = message[:_LONGEST]
        kind = _IN_NAME.sub("*", message)
        entry, of = self.messages.get(kind), graph or None
        if entry is not None:
            self.messages[kind] = replace(entry, count=entry.count + 1, last_line=number, last_graph=of)
        elif len(self.messages) < MAX_KINDS:
            self.messages[kind] = LogMessage(kind, message, 1, number, number, of, of)
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
        numbers = (None if n is None else int(n) for n in found.groups()[1:])
        total, free, alone, *parts = (n - _WRAPPED if n is not None and n >= _WRAPPED >> 1 else n for n in numbers)
        own, model, context, compute, rest = parts
        own, model, context, compute = own or 0, model or 0, context or 0, compute or 0
        self.table[device] = Breakdown(device, total or alone, free, own, model, context, compute, rest)
        return True
