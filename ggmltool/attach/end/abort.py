"""Where a program has died: what ggml_abort was about to print, in which calls, and which tensors these had in hand.

GGML_ASSERT and GGML_ABORT end in ggml_abort; a program that is attached is stopped at its entry. In a core dump, and
where a signal came first, the same is read from the calls that the program is in.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ggmltool.attach.end.printf import MOST, FormattedValue, VarArguments, printed
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.pages import c_string

ABORT = "ggml_abort"
DEEPEST = 64
"""Calls that are looked at."""
_NAMED = 3
_STACK = 1 << 14
"""Bytes of the stack in which tensors are looked for."""
_OUTSIDE = 6
"""Calls of others than ggml, from the innermost one on, in which tensors are looked for: who called ggml has them."""
_LINE = re.compile(rb"([\x20-\x7e]{0,1024}?\.(?:c|cc|cpp|h|cu|cuh|m|mm|hpp)):(\d{1,6}): ")
_PLACED = re.compile(r"(.{1,1024}?\.(?:c|cc|cpp|h|cu|cuh|m|mm|hpp)):(\d{1,6}): (.*)", re.DOTALL)


class StackFrame(NamedTuple):
    """A call: the function ("" where no symbol says it), the file that its code lies in, the stack pointer (0: not
    known), the registers that outlive calls, and the arguments that debug information tells of."""

    function: str
    file: str
    pc: int
    sp: int
    registers: Mapping[str, int]
    arguments: Mapping[str, int]


class HeldWord(NamedTuple):
    """A word that a call has in hand: how it has it (`register`, `stack`, `argument`), under which name."""

    frame: int
    how: Literal["argument", "register", "stack"]
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class AbortReport:
    """How a program ended. `signal` is "" at ggml_abort, else what it received. `message` is what ggml prints behind
    file and line ("" if it was a signal alone), `values` what printf filled in, `thread` gdb's number of it."""

    signal: str
    file: str
    line: int
    message: str
    values: tuple[FormattedValue, ...]
    frames: tuple[StackFrame, ...]
    thread: int = 0

    @property
    def said(self) -> str:
        """The line that ggml prints."""
        return f"{self.file}:{self.line}: {self.message}" if self.file else self.message

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions of ggml that it was in, the innermost first, without those that only tell of the end."""
        return tuple(f.function for f in self.frames if f.function.startswith("ggml_") and f.function not in _TELLERS)

    @property
    def crashed(self) -> str:
        """The function that a signal came in, that of the C library left out where the program called abort() itself;
        where it has no symbol, its file; "" if no call is known."""
        outside = (f for f in self.frames if self.signal != "SIGABRT" or not _C_LIBRARY.search(f.file))
        frame = next(outside, None)
        if frame is None:
            return ""
        return frame.function or f"a function without a symbol in {frame.file.rpartition('/')[2] or 'no file'}"


_C_LIBRARY = re.compile(r"/(libc[.-]|libpthread[.-]|ld-musl-)[^/]*$")
_TELLERS = frozenset((ABORT, "ggml_print_backtrace", "ggml_print_backtrace_symbols", "ggml_uncaught_exception"))


def read_abort(link: GdbLink, thread: int = 0) -> AbortReport:
    """What a program is about to say that stands at the entry of ggml_abort. Raises LinkError."""
    architecture = link.ask("about")["architecture"]
    file, line, format = link.arguments()[:_NAMED]
    message = printed(link, _text(link, format), VarArguments(link, architecture, _NAMED))
    frames = read_frames(link)
    return AbortReport("", _text(link, file), line & 0x7FFFFFFF, message.text, message.values, frames, thread)


def read_death(link: GdbLink, signal: str, thread: int = 0) -> AbortReport:
    """How a program ended that a signal has stopped, or that was dumped: at ggml_abort, if that is among the calls, by
    what it has written on its stack. Raises LinkError."""
    abort = AbortReport(signal, "", 0, "", (), read_frames(link), thread)
    for i, frame in enumerate(abort.frames):
        if frame.function == ABORT:
            return _as_written(link, abort, i)
    return abort


def read_frames(link: GdbLink) -> tuple[StackFrame, ...]:
    """The calls that the program is in, innermost first. Raises LinkError."""
    return tuple(
        StackFrame(f["function"] or "", f["file"] or "", f["pc"], f.get("sp", 0), f["registers"], f["arguments"])
        for f in link.ask("frames", DEEPEST)
    )


def held(link: GdbLink, frames: Sequence[StackFrame]) -> Iterator[HeldWord]:
    """What the calls have in hand, the innermost first; each word once."""
    seen: set[int] = set()
    for i, frame in _asked(frames):
        for how, name, value in (
            *(("argument", name, value) for name, value in frame.arguments.items()),
            *(("register", name, value) for name, value in frame.registers.items()),
            *(("stack", f"+{at}", value) for at, value in _words(link, frames, i)),
        ):
            value &= (1 << 64) - 1
            if value not in seen:
                seen.add(value)
                yield HeldWord(i, how, name, value)  # type: ignore[arg-type]


def in_ggml(frame: StackFrame) -> bool:
    """Whether a call is one of ggml's functions, as far as symbols tell."""
    return frame.function.startswith(("ggml_", "gguf_"))


def _asked(frames: Sequence[StackFrame]) -> Iterable[tuple[int, StackFrame]]:
    last = max((i for i, frame in enumerate(frames) if in_ggml(frame)), default=-1)
    return list(enumerate(frames))[: last + 1 + _OUTSIDE]


def _words(link: GdbLink, frames: Sequence[StackFrame], i: int) -> list[tuple[int, int]]:
    """The words on the stack of one call, by their distance from its stack pointer."""
    data = _stack(link, frames, i)
    return [(8 * k, value) for k, (value,) in enumerate(struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))]


def _stack(link: GdbLink, frames: Sequence[StackFrame], i: int) -> bytes:
    start = frames[i].sp
    end = frames[i + 1].sp if i + 1 < len(frames) else start + 256
    if not start or not start < end:
        return b""
    (data,) = link.read_many([(start, min(end - start, _STACK))])
    return data


def _as_written(link: GdbLink, abort: AbortReport, i: int) -> AbortReport:
    """ggml_abort writes its message into a buffer on its stack, then prints it."""
    data = _stack(link, abort.frames, i)
    for found in _LINE.finditer(data):
        text = data[found.start() : found.start() + MOST].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        placed = _PLACED.fullmatch(text)
        if placed is not None:
            return replace(abort, file=placed[1], line=int(placed[2]), message=placed[3])
    return abort


def _text(link: GdbLink, address: int) -> str:
    try:
        return c_string(link, address, MOST)
    except LinkError:
        return "?"
