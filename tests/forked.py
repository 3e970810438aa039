"""A function in a child process: a crash is a result like any other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

FINE = 0
FAILED = 1


def first_crash(cases: Sequence[T], attempt: Callable[[T], None], seconds: int = 120) -> str | None:
    """Try all cases in a child, one after the other; which is the first that kills it, raises, or never ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_try_all(cases, attempt, writing, seconds))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        last = pipe.read().strip().split("\n")[-1]
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == FINE:
        return None
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an exception"
    return f"{how} at {last}"


def _try_all(cases: Sequence[T], attempt: Callable[[T], None], writing: int, seconds: int) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    for case in cases:
        os.write(writing, f"{case!r}\n".encode())
        try:
            attempt(case)
        except BaseException as error:
            os.write(writing, f"{case!r}: {type(error).__name__}: {error}".replace("\n", " ").encode())
            return FAILED
    return FINE
