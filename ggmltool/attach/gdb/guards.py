"""What guards a program while gdb holds it: a signal that would end us tears no exchange, and breakpoints of a gdb
that was killed are taken out."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Literal, Self

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalGuard:
    """While it is entered, a signal that would end us tears no exchange with gdb: `check` raises it, KeyboardInterrupt
    or SystemExit, where nothing is under way. `program` is the process that is halted at a signal or when time is over;
    it never sees that signal, `by`, for gdb takes it; of a program elsewhere `program` is 0, and `halts` tells gdb to
    have it halted. `halted_in_vain`: it stood still by itself before it came."""

    def __init__(self) -> None:
        self.program = 0
        self.by = "SIGSTOP"
        self.halts: Callable[[], None] | None = None
        self.halted_in_vain = False
        self._came: int | None = None
        self._leaving = False
        self._raised = False
        self._old: dict[int, object] = {}
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)  # type: ignore[arg-type]
        os.close(self._read)
        os.close(self._write)
        if not self._raised:
            self._leaving = False
            self.check()

    def keep_on(self) -> None:
        """From now on ^Z does not stop us: a program that others started would stand still as long as we do."""
        if threading.current_thread() is threading.main_thread():
            self._old[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)

    def leave(self) -> None:
        """From now on a signal changes nothing: we are about to let go anyway."""
        self._leaving = True

    def check(self) -> None:
        """Raise the signal that has come, if one has: KeyboardInterrupt, or SystemExit as a shell says it."""
        if self._came is None or self._leaving:
            return
        self._raised = True
        if self._came == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._came)

    def wait(self, answers: int, seconds: float | None) -> Literal["answered", "late", "interrupted"]:
        """Wait for something to read, for so long at most, or until a signal comes."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            watched = [answers] if self._leaving else [answers, self._read]
            ready, _, _ = select.select(watched, [], [], left)
            if answers in ready:
                return "answered"
            if ready:
                return "interrupted"
            if left is not None and left <= 0:
                return "late"

    @staticmethod
    def grace(answers: int, seconds: float) -> bool:
        """Wait for what has to come soon, whatever signals come; whether it did."""
        return bool(select.select([answers], [], [], seconds)[0])

    def halt(self) -> None:
        """Halt the program; gdb notices, and the program does not."""
        with suppress(OSError):
            if self.halts is not None:
                self.halts()
            elif self.program:
                os.kill(self.program, signal.SIGSTOP)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came is None:
            self._came = number
        with suppress(OSError):
            os.write(self._write, b"s")


_TRAPS = (b"\xcc", bytes.fromhex("000020d4"))
"""What a breakpoint is in memory: int3 on x86-64, brk on arm64."""


class BreakpointRestorer:
    """Puts back what belongs where breakpoints are. Its way into the memory is open from the beginning: whoever may
    attach may do that."""

    def __init__(self, pid: int) -> None:
        self.marks: Mapping[int, bytes] = {}
        self._memory: int | None = None
        with suppress(OSError):
            self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def restore(self) -> None:
        """Take out all breakpoints that are still there."""
        if self._memory is None:
            return
        for address, bytes_there in self.marks.items():
            for trap in _TRAPS:
                own = bytes_there[: len(trap)]
                with suppress(OSError, OverflowError):
                    if own != trap and os.pread(self._memory, len(trap), address) == trap:
                        os.pwrite(self._memory, own, address)

    def close(self) -> None:
        """Close the way into the memory."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
