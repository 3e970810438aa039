"""The way into a program: what `inside.py` is asked, in gdb, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import IO, Any, NamedTuple


class LinkError(Exception):
    """gdb could not do what it was asked; the message is gdb's own."""


class LinkLost(LinkError):  # noqa: N818 - it says what happened
    """gdb has ended."""


class NoBytes(LinkError):  # noqa: N818 - it says what is the matter
    """There is nothing to read at an address."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"cannot read {length} bytes at {address:#x}")
        self.address = address


class Stop(NamedTuple):
    """Why the program stands still: `reason` is breakpoint, signal, exited, gone or stopped; `numbers` are the
    breakpoints', `signal` its name, `status` what it exited with."""

    reason: str
    pc: int = 0
    thread: int = 0
    numbers: tuple[int, ...] = ()
    signal: str = ""
    status: int | None = None


class Call(NamedTuple):
    """A call in the program: of the function at an address, with whole numbers or pointers as arguments. `result` is
    its C type, one of those that come back in a register of whole numbers, or void."""

    address: int
    result: str
    arguments: tuple[int, ...]


class Link:
    """Asks gdb. Every method raises LinkError where gdb refuses, LinkLost where it is gone."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""
        return self._ask(verb, arguments)[0]

    def read(self, address: int, length: int) -> bytes:
        """Memory of the program. Raises NoBytes."""
        (out,) = self.read_many([(address, length)])
        if len(out) < length:
            raise NoBytes(address, length)
        return out

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Memory at several places, all at once; empty where there is none."""
        lengths, blob = self._ask("read", (list(spans),))
        out, at = [], 0
        for n in lengths:
            out.append(blob[at : at + n])
            at += n
        return out

    def text(self, address: int, most: int = 256) -> str:
        """A C string, of which so many bytes are read at most. Raises NoBytes."""
        page = 4096
        first = min(most, page - address % page)
        out = self.read(address, first)
        if b"\0" not in out and first < most:
            out += self.read(address + first, most - first)
        return out.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")

    def call(self, calls: Sequence[Call]) -> list[int | None]:
        """Call functions in the program, one after the other; their results, None of void."""
        return list(self.ask("call", [(c.address, c.result, *c.arguments) for c in calls]))

    def go(self) -> Stop:
        """Let the program run until it stops."""
        return _stop(self.ask("go"))

    def finish(self) -> Stop:
        """Let it run until the function returns that it has just entered."""
        return _stop(self.ask("finish"))

    def arguments(self) -> list[int]:
        """The first six whole arguments of the function that the program has just entered."""
        return list(self.ask("arguments"))

    def _ask(self, verb: str, arguments: Sequence[Any]) -> tuple[Any, bytes]:
        try:
            self._requests.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise LinkLost("gdb has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise LinkError(answer["error"])
        n = answer["bytes"]
        return answer["value"], self._answers.read(n) if n else b""


def _stop(value: dict[str, Any]) -> Stop:
    return Stop(**{**value, "numbers": tuple(value.get("numbers", ()))})
