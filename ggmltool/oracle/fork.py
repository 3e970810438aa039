"""Runs a function in a forked child and turns an abort of ggml's there into a value."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import pickle
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

_PLACE = re.compile(r"^[^\n]*?:\d+: ")
_ASSERT = re.compile(r"^GGML_ASSERT\((.*)\) failed$", re.DOTALL)

ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class Abort:
    """ggml aborted: its whole line, "file:line: text". A crash without such a line says so in `text`."""

    line: str

    @property
    def text(self) -> str:
        """The message without file and line."""
        return _PLACE.sub("", self.line, count=1)

    @property
    def condition(self) -> str | None:
        """The asserted expression where it was GGML_ASSERT, else None."""
        match = _ASSERT.match(self.text)
        return match.group(1) if match else None


class ChildError(RuntimeError):
    """The function raised in the child; the text is the child's traceback."""


def write_message(fd: int, value: object) -> None:
    """Sends one pickled value: eight bytes of length, then the bytes."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    view = memoryview(len(data).to_bytes(8, "little") + data)
    while view:
        view = view[os.write(fd, view) :]


def read_exact(fd: int, n: int) -> bytes | None:
    """`n` bytes, or None where the other end closes before them."""
    parts: list[bytes] = []
    while n:
        part = os.read(fd, min(n, 1 << 20))
        if not part:
            return None
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def read_message(fd: int) -> Any:
    """The next value that `write_message` sent. Raises EOFError if the other end is gone."""
    head = read_exact(fd, 8)
    body = read_exact(fd, int.from_bytes(head, "little")) if head is not None else None
    if body is None:
        raise EOFError
    return pickle.loads(body)


def fork_child() -> int:
    """os.fork without the warning about threads: the child runs nothing but ggml and ends by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def quiet_child() -> None:
    """Readies a fresh child for aborts: no backtrace of a debugger's or Python's, no core file."""
    faulthandler.disable()
    # What the parent had is not looked through for garbage again and again.
    gc.freeze()
    os.environ["GGML_NO_BACKTRACE"] = "1"
    libc_setenv = ctypes.CDLL(None).setenv
    libc_setenv(b"GGML_NO_BACKTRACE", b"1", 1)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


def describe_status(status: int) -> str:
    """What a wait status of a child that said nothing means."""
    if os.WIFSIGNALED(status):
        return f"crashed with {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit status {os.waitstatus_to_exitcode(status)} and said nothing"


Emit = Callable[[str, object], None]
"""Sends a message of a kind to the parent."""


def messages_of(serve: Callable[[Emit], None]) -> Generator[tuple[str, Any], None, None]:
    """What `serve` emits in a forked child, message by message; at last "gone", and what became of the child.

    Raises ChildError if `serve` raised.
    """
    read_fd, write_fd = os.pipe()
    pid = fork_child()
    if pid == 0:
        os.close(read_fd)
        _child(serve, lambda kind, value: write_message(write_fd, (kind, value)))
    os.close(write_fd)
    try:
        while True:
            try:
                kind, value = read_message(read_fd)
            except EOFError:
                child, pid = pid, 0
                yield "gone", describe_status(os.waitpid(child, 0)[1])
                return
            if kind == "raised":
                raise ChildError(value)
            yield kind, value
    finally:
        os.close(read_fd)
        if pid:
            os.waitpid(pid, 0)


def _child(serve: Callable[[Emit], None], emit: Emit) -> None:
    quiet_child()
    try:
        serve(emit)
    except BrokenPipeError:
        pass
    except BaseException:
        emit("raised", traceback.format_exc())
    finally:
        os._exit(0)


def run_forked(function: Callable[[], Any], set_abort_callback: Callable[[Any], object]) -> Any:
    """Calls `function` in a forked child and gives back what it returns, or `Abort` where ggml aborted.

    `set_abort_callback` is the library's ggml_set_abort_callback. The value must be picklable. Raises ChildError if the
    function raised.
    """

    def serve(emit: Emit) -> None:
        def on_abort(message: bytes) -> None:
            emit("abort", message.decode("utf-8", "surrogateescape"))
            os._exit(0)

        callback = ABORT_CALLBACK(on_abort)
        set_abort_callback(callback)
        emit("value", function())

    with closing(messages_of(serve)) as messages:
        kind, value = next(messages)
        return value if kind == "value" else Abort(value)
