"""The lines of ggml's debug print, in all dialects: headers of splits, nodes, and what of them can be read.

All columns have fixed widths in bytes, so bytes are matched. Programs that log in pieces put a prefix before each
piece, also within a line: between the parts anything may stand. Where somebody collapsed the spaces, a looser
pattern reads what is left.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ggmltool.sources.sched_log.records import Bounds, LogInput, LogTensorRef

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


class Header(NamedTuple):
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


def bounds(number: bytes, unit: bytes) -> Bounds:
    """The bytes that `512K`, `2M` or `20480` can be: the column is five wide, from 9.8 GiB on the M is cut off.

    A tensor of 97.7 GiB or more loses digits too and is taken for a tenth of what it is.

    >>> bounds(b"512", b"K")
    Bounds(low=524288, high=525311)
    """
    n = int(number)
    if unit == b"K":
        return Bounds(n << 10, ((n + 1) << 10) - 1)
    return Bounds(n << 20, ((n + 1) << 20) - 1)


def read_header(line: bytes, at: int) -> Header | None:
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
    return Header(int(match[1]), text(match[2]), n_inputs, inputs, n_inputs == 0 and match[4] is not None)


class NodeLine(NamedTuple):
    """A node line as it stands there: backends cut to five bytes, `counts` (use, compute) if it has them."""

    index: int  # type: ignore[assignment]
    op: str
    name: str
    nbytes: Bounds
    backend: str
    cause: str
    counts: tuple[int, bool] | None
    sources: tuple[LogTensorRef, ...]


def read_node(line: bytes, at: int) -> NodeLine | None:
    """The node line whose mark stands at `at`; None if it is none, or cut before its sources."""
    clean = without_ansi(line[at:])
    match = _NODE.match(clean)
    if match is not None:
        sources = [_source(*found) for found in _SOURCE.findall(clean, match.end())]
    else:
        match = _LOOSE_NODE.match(clean)
        if match is None:
            return None
        sources = [_source(_PIECE.sub(b"", name), *rest) for name, *rest in _LOOSE_SOURCE.findall(clean, match.end())]
    index, op, name, number, unit, backend, cause, use_count, compute = match.groups()
    counts = (int(use_count), compute == b"1") if use_count is not None else None
    return NodeLine(
        int(index),
        text(op),
        text(name),
        bounds(number, unit),
        text(backend),
        text(cause or b""),
        counts,
        tuple(sources),
    )


def _source(name: bytes, number: bytes, unit: bytes, backend: bytes, cause: bytes) -> LogTensorRef:
    return LogTensorRef(text(name), bounds(number, unit), text(backend), text(cause))


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
