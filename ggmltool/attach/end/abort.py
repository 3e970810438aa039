"""Where a program has died: what ggml_abort was about to print, in which calls, and which tensors these had in hand.

GGML_ASSERT and GGML_ABORT end in ggml_abort; a program that is attached is stopped at its entry. In a core dump, and
where a signal came first, the same is read from the calls that the program is in.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.pages import c_string

MOST = 2048
"""Bytes of a message: what ggml_abort has room for."""
_WIDEST = 256
_PLACE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|z|j|t|q|L)?([a-zA-Z%])")
_BYTES = {"hh": 1, "h": 2, None: 4, "l": 8, "ll": 8, "z": 8, "j": 8, "t": 8, "q": 8, "L": 8}
_REGISTERS = {"x86-64": 6, "aarch64": 8}
_VECTORS = {"x86-64": "(long)$xmm{}.v2_int64[0]", "aarch64": "(long)$v{}.d.u[0]"}
_STACK = {"x86-64": ("$rsp", 8), "aarch64": ("$sp", 0)}


class FormattedValue(NamedTuple):
    """An argument that was filled in: its conversion (`s`), the number that was passed, and its text."""

    conversion: str
    raw: int
    text: str


class PrintedMessage(NamedTuple):
    """A message, and what was filled in."""

    text: str
    values: tuple[FormattedValue, ...]


class VarArguments:
    """The arguments of a function with variable ones, at its entry: of which the first `named` have names. x86-64
    (System V) and arm64 (AAPCS64): whole numbers in registers first, numbers with a point in others, then all of them
    on the stack."""

    def __init__(self, link: GdbLink, architecture: str, named: int) -> None:
        self._link = link
        self._architecture = architecture
        values = list(link.arguments())
        more = range(len(values), _REGISTERS[architecture])
        values += [link.ask("evaluate", f"(long)$x{i}") & (1 << 64) - 1 for i in more]
        self._whole = iter(values[named:])
        self._points = iter(range(8))
        start, past = _STACK[architecture]
        self._stack = (link.ask("evaluate", f"(long){start}") & (1 << 64) - 1) + past

    def whole(self) -> int:
        """The next whole number or pointer: 8 bytes. Raises LinkError."""
        found = next(self._whole, None)
        return self._from_stack() if found is None else found

    def point(self) -> float:
        """The next double. Raises LinkError."""
        i = next(self._points, None)
        raw = (
            self._from_stack()
            if i is None
            else self._link.ask("evaluate", _VECTORS[self._architecture].format(i)) & (1 << 64) - 1
        )
        return float(struct.unpack("<d", struct.pack("<Q", raw))[0])

    def _from_stack(self) -> int:
        (value,) = struct.unpack("<Q", self._link.read(self._stack, 8))
        self._stack += 8
        return int(value)


def printed(link: GdbLink, format: str, arguments: VarArguments) -> PrintedMessage:
    """What printf would write."""
    values: list[FormattedValue] = []
    out, end = [], 0
    for found in _PLACE.finditer(format):
        out.append(format[end : found.start()])
        end = found.end()
        if found[5] == "%":
            out.append("%")
            continue
        try:
            value = _filled(link, found, arguments)
        except LinkError:
            value = FormattedValue(found[5], 0, "?")
        values.append(value)
        out.append(value.text)
    return PrintedMessage("".join([*out, format[end:]])[:MOST], tuple(values))


def _filled(link: GdbLink, found: re.Match[str], arguments: VarArguments) -> FormattedValue:
    """One place. Python's own % knows C's flags, width and precision."""
    flags, width, precision, size, conversion = found.groups()
    across = _number(width, arguments)
    digits = None if precision is None else _number(precision, arguments)
    form = f"%{flags}{across or ''}{'' if digits is None else f'.{digits}'}"
    if conversion in "fFeEgGaA":
        return FormattedValue(
            conversion, 0, f"{form}{conversion.replace('a', 'g').replace('A', 'G')}" % arguments.point()
        )
    raw = arguments.whole()
    if conversion in "di":
        text = f"{form}d" % _signed(raw, _BYTES[size])
    elif conversion in "uxXo":
        text = f"{form}{conversion.replace('u', 'd')}" % (raw & ((1 << 8 * _BYTES[size]) - 1))
    elif conversion == "s":
        text = f"{form}s" % (c_string(link, raw, MOST) if raw else "(null)")
    elif conversion == "p":
        text = f"{form}s" % (f"{raw:#x}" if raw else "(nil)")
    elif conversion == "c":
        text = f"{form}s" % chr(raw & 0xFF)
    else:
        text = "?"
    return FormattedValue(conversion, raw, text)


def _number(text: str | None, arguments: VarArguments) -> int:
    if text == "*":
        return min(max(_signed(arguments.whole(), 4), 0), _WIDEST)
    return min(int(text or 0), _WIDEST)


def _signed(raw: int, size: int) -> int:
    value = raw & ((1 << 8 * size) - 1)
    return value - (1 << 8 * size) if value >> (8 * size - 1) else value


ABORT = "ggml_abort"
DEEPEST = 64
"""Calls that are looked at."""
_NAMED = 3
_STACK_BYTES = 1 << 14
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
    at = next((i for i, frame in enumerate(abort.frames) if frame.function == ABORT), None)
    data = _stack(link, abort.frames, at) if at is not None else b""
    # ggml_abort writes its message into a buffer on its stack, then prints it.
    for found in _LINE.finditer(data):
        text = data[found.start() : found.start() + MOST].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        placed = _PLACED.fullmatch(text)
        if placed is not None:
            return replace(abort, file=placed[1], line=int(placed[2]), message=placed[3])
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
    last = max((i for i, frame in enumerate(frames) if frame.function.startswith(("ggml_", "gguf_"))), default=-1)
    for i, frame in enumerate(frames[: last + 1 + _OUTSIDE]):
        data = _stack(link, frames, i)
        words = struct.iter_unpack("<Q", data[: len(data) // 8 * 8])
        for how, name, value in (
            *(("argument", name, value) for name, value in frame.arguments.items()),
            *(("register", name, value) for name, value in frame.registers.items()),
            *(("stack", f"+{8 * k}", value) for k, (value,) in enumerate(words)),
        ):
            value &= (1 << 64) - 1
            if value not in seen:
                seen.add(value)
                yield HeldWord(i, how, name, value)  # type: ignore[arg-type]


def _stack(link: GdbLink, frames: Sequence[StackFrame], i: int) -> bytes:
    start = frames[i].sp
    end = frames[i + 1].sp if i + 1 < len(frames) else start + 256
    if not start or not start < end:
        return b""
    (data,) = link.read_many([(start, min(end - start, _STACK_BYTES))])
    return data


def _text(link: GdbLink, address: int) -> str:
    try:
        return c_string(link, address, MOST)
    except LinkError:
        return "?"
