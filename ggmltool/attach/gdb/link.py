"""The way into a program: what `inside.py` is asked, in gdb, and what it answers."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import IO, Any, NamedTuple

from ggmltool.attach.gdb.guards import SignalGuard
from ggmltool.state.errors import AttachError, LinkError, NoBytes


class LinkLost(LinkError):  # noqa: N818 - it says what happened
    """gdb has ended."""


class Late(LinkError):  # noqa: N818 - it says what is the matter
    """The program did not do in time what it was asked; it stands still."""


class Dies(AttachError):  # noqa: N818 - it says what happens
    """The program is about to end: it stands at the entry of ggml_abort, or has received `signal`."""

    def __init__(self, name: str, signal: str = "") -> None:
        what = f"received {signal}" if signal else "called ggml_abort"
        super().__init__(f"{name} {what}; `attach --until-abort` explains it", refused=True)
        self.signal = signal


class ProgramStop(NamedTuple):
    """Why the program stands still: `reason` is breakpoint, signal, exec (it has become another), exited, gone (it was
    ended) or stopped (its libraries have changed, say); `numbers` are the breakpoints', `signal` its name, `status`
    what it exited with, `sp` the stack pointer, `thread` gdb's number of the thread, `tid` the system's, `children` how
    many processes it started until then, `arguments` those of the function at whose entry it stopped, where the
    breakpoint looked at them."""

    reason: str
    pc: int = 0
    sp: int = 0
    thread: int = 0
    tid: int = 0
    numbers: tuple[int, ...] = ()
    signal: str = ""
    status: int | None = None
    children: int = 0
    arguments: tuple[int, ...] = ()


class FunctionCall(NamedTuple):
    """A call in the program: of the function at an address, with whole numbers or pointers as arguments. `result` is
    its C type, one of those that come back in a register of whole numbers, or void."""

    address: int
    result: str
    arguments: tuple[int, ...]


GDB = 60.0
"""How long gdb may take to answer what does not let the program run, in seconds."""

HALT = 10.0
"""How long it may take to halt the program, in seconds."""

CALLS = 10.0
"""How long calls into the program may take that are asked for at once, in seconds."""

_LONGEST = 1 << 28
"""Bytes of an answer without those that were read, at most."""


class GdbLink:
    """Asks gdb. Every method raises LinkError where gdb refuses, LinkLost where it is gone, Late where the program
    takes too long, AttachError where it has ended while a function of it was called; with a `guard`, what that
    raises at a signal. `gone`: it has ended so. `pid` is the process that was stopped by us, 0 of others."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], guard: SignalGuard | None = None) -> None:
        self._requests = requests
        self._answers = answers
        self.guard = guard
        self._marks: dict[int, bytes] | None = None
        self.gone = False
        self.pid = 0
        self._memory: int | None = None
        self._by_gdb = False

    def close(self) -> None:
        """Look at the program's memory no more."""
        memory, self._memory = self._memory, None
        if memory is not None:
            os.close(memory)

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""
        return self._ask(verb, arguments)[0]

    def admit(self, pid: int) -> None:
        """Stop a running process, which is the one to be halted from now on."""
        if self.ask("attach", pid) is not None:
            raise LinkLost("gdb answers nonsense")
        self.pid = pid
        if self.guard is not None:
            self.guard.program = pid

    def read(self, address: int, length: int) -> bytes:
        """Memory of the program. Raises NoBytes."""
        (out,) = self.read_many([(address, length)])
        if len(out) < length:
            raise NoBytes(address, length)
        return out

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Memory at several places, all at once; empty where there is none."""
        spans = list(spans)
        out = [self._directly(*span) for span in spans]
        rest = [i for i, data in enumerate(out) if data is None]
        if rest:
            lengths, blob = self._ask("read", ([spans[i] for i in rest],))
            at = 0
            for i, n in zip(rest, lengths, strict=True):
                out[i] = blob[at : at + n]
                at += n
        if self.guard is not None:
            self.guard.check()
        return [data or b"" for data in out]

    def _directly(self, address: int, length: int) -> bytes | None:
        """Memory of a process that we may read ourselves, which takes no time; while the program stands still, no
        breakpoints of gdb's are in it."""
        if not self.pid or not length or self._by_gdb:
            return None
        if self._memory is None:
            try:
                self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                # It is not ours to read: gdb is asked from now on.
                self._by_gdb = True
                return None
        try:
            data = os.pread(self._memory, length, address)
        except (OSError, OverflowError, ValueError):
            return None
        return data if len(data) == length else None

    def call(self, calls: Sequence[FunctionCall], seconds: float = CALLS, alone: bool = True) -> list[int | None]:
        """Call functions in the program, one after the other; their results, None of void. A call that takes too long
        is given up, and the program is where it was before. `alone`: its other threads stand still meanwhile."""
        asked = [(c.address, c.result, *c.arguments) for c in calls]
        return list(self._ask("call", (asked, alone), seconds)[0])

    def go(self, seconds: float | None = None, signal: str | None = None) -> ProgramStop:
        """Let the program run until it stops, for so long at most; it is given a signal, if one is named."""
        told = self._ask("go", (signal,), seconds)[0]
        numbers, arguments = (tuple(told.get(name, ())) for name in ("numbers", "arguments"))
        stop = ProgramStop(**{**told, "numbers": numbers, "arguments": arguments})
        if stop.reason in ("exec", "stopped"):
            self._marks = None
        if stop.reason in ("exec", "exited", "gone"):
            # Its memory is another from now on.
            self.close()
        return stop

    def marks(self) -> dict[int, bytes]:
        """Where breakpoints are while the program runs, and the bytes that belong there."""
        if self._marks is None:
            self._marks = {address: bytes.fromhex(text) for address, text in self.ask("marks")}
        return self._marks

    def arguments(self) -> list[int]:
        """The first six whole arguments of the function that the program has just entered."""
        return list(self.ask("arguments"))

    def _ask(self, verb: str, arguments: Sequence[Any], seconds: float | None = None) -> tuple[Any, bytes]:
        if verb in _PLACING:
            self._marks = None
        try:
            self._requests.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._requests.flush()
            answer = self._wait(verb in _RUNNING, seconds, verb == "call")
            if "error" not in answer:
                n = answer["bytes"]
                return answer["value"], self._answers.read(n) if n else b""
        except (OSError, ValueError, KeyError, TypeError):
            raise LinkLost("gdb has ended") from None
        if verb == "call" and answer.get("gone"):
            self.gone = True
            raise AttachError("the program ended when a function of it was called", refused=True)
        raise LinkError(str(answer["error"]))

    def _wait(self, running: bool, seconds: float | None, calls: bool) -> dict[str, Any]:
        """The answer; a program that runs is halted when the time is over, or at a signal."""
        guard = self.guard
        if guard is None:
            return self._answer()
        if not running:
            if not guard.grace(self._answers.fileno(), GDB):
                raise LinkLost("gdb does not answer")
            answer = self._answer()
            guard.check()
            return answer
        why = guard.wait(self._answers.fileno(), seconds)
        if why == "answered":
            return self._answer()
        guard.halt()
        if not guard.grace(self._answers.fileno(), HALT):
            raise LinkLost("gdb does not answer")
        answer = self._answer()
        guard.check()
        if guard.by in json.dumps(answer) or (calls and "error" in answer and not answer.get("gone")):
            raise Late(f"not within {seconds:g} s")
        guard.halted_in_vain = True
        return answer

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline(_LONGEST)
        if not line.endswith(b"\n"):
            raise LinkLost("gdb has ended")
        return dict(json.loads(line))


_PLACING = ("attach", "break", "break_if", "watch")
"""What puts breakpoints into the program."""

_RUNNING = ("go", "call")
"""What lets the program run."""


class Mapping(NamedTuple):
    """A piece of address space: from the first address to the one behind the last; its rights (`r-xp`), its file."""

    start: int
    end: int
    rights: str
    file: str


class Mappings:
    """All pieces, by address."""

    def __init__(self, pieces: Iterable[Mapping]) -> None:
        self._pieces = sorted(pieces)
        self._starts = [piece.start for piece in self._pieces]

    @cached_property
    def live(self) -> bool:
        """Whether these are those of a process, not of a core dump."""
        return any(piece.rights for piece in self._pieces)

    def at(self, address: int) -> Mapping | None:
        """The piece that an address lies in."""
        i = bisect_right(self._starts, address) - 1
        return self._pieces[i] if i >= 0 and address < self._pieces[i].end else None

    def runs(self, address: int) -> bool:
        """Whether there can be a function at an address; a core dump does not tell where."""
        if not self.live:
            return address != 0
        piece = self.at(address)
        return piece is not None and "x" in piece.rights

    def file(self, address: int) -> str:
        """The file that lies at an address; "" of memory that is of none."""
        piece = self.at(address)
        return piece.file if piece is not None else ""


def mappings_of(link: GdbLink) -> Mappings:
    """Those of a program as it stands now."""
    return Mappings(Mapping(*piece) for piece in link.ask("mappings"))
