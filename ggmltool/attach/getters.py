"""What a function of a dead program would return: its instructions followed over the memory of the core dump.

ggml's devices name and describe themselves by short functions. They are followed as long as they only read: every value
is known or the whole answer is refused (None). Nothing is written, and nothing is guessed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Protocol

from ggmltool.attach.corefile import CoreFile
from ggmltool.attach.followed import Followed, Unknown
from ggmltool.attach.followed import Reads as Known
from ggmltool.attach.followed_arm64 import Arm64
from ggmltool.attach.followed_x86_64 import X8664
from ggmltool.attach.link import Call, Link, LinkError
from ggmltool.attach.mappings import Mapping as Piece
from ggmltool.attach.mappings import Mappings
from ggmltool.attach.memory import PAGE, Reads
from ggmltool.attach.patience import Patience

SECONDS = 20.0
"""How long functions are followed that are asked together."""
_AHEAD = 48
_BYTES = {"unsigned long": 8, "int": 4, "unsigned char": 1}
_MACHINES: Mapping[str, Callable[[Known, Sequence[int]], Followed]] = {"x86-64": X8664, "aarch64": Arm64}


class Code(Reads, Protocol):
    """Who knows instructions and memory, as `Link` does."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""


class Getters:
    """Follows functions of one program, of a machine as gdb calls it. Asks gdb for instructions and memory, each
    once."""

    def __init__(self, link: Code, machine: str = "x86-64") -> None:
        self._link = link
        self._machine = machine
        self._code: dict[int, tuple[str, int]] = {}
        self._pages: dict[int, bytes] = {}

    def result(self, function: int, *arguments: int, size: int = 8) -> int | None:
        """What a function returns for these arguments: a number of `size` bytes, None if it cannot be known."""
        machine = _MACHINES.get(self._machine)
        try:
            return None if machine is None else machine(self, arguments).follow(function, size)
        except (Unknown, LinkError):
            return None

    def instruction(self, address: int) -> tuple[str, int]:
        """The instruction at an address, in Intel's syntax, and its length in bytes."""
        if address not in self._code:
            for at, text, length in self._link.ask("disassemble", address, _AHEAD):
                self._code.setdefault(at, (text, length))
        if address not in self._code:
            raise Unknown(f"no instruction at {address:#x}")
        return self._code[address]

    def memory(self, address: int, size: int) -> int:
        """A number of some bytes."""
        page = address - address % PAGE
        if page not in self._pages:
            (self._pages[page],) = self._link.read_many([(page, PAGE)])
        found = self._pages[page][address - page : address - page + size]
        if len(found) < size:
            (found,) = self._link.read_many([(address, size)])
        if len(found) < size:
            raise Unknown(f"no memory at {address:#x}")
        return int.from_bytes(found, "little")


class DeadLink(Link):
    """The way into a core dump: what would be called is followed."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], patience: Patience | None = None) -> None:
        super().__init__(requests, answers, patience)
        self._getters: Getters | None = None
        self.dump: CoreFile | None = None

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer. To gdb a core dump has mapped files alone; functions that were made while the
        program ran lie elsewhere."""
        found = super().ask(verb, *arguments)
        if verb == "mappings" and self.dump is not None:
            files = Mappings(Piece(*piece) for piece in found)
            made = (s for s in self.dump.segments if s.runs and files.at(s.address) is None)
            found = [*found, *([s.address, s.address + s.size, "", ""] for s in made)]
        return found

    def call(self, calls: Sequence[Call], seconds: float = SECONDS, alone: bool = True) -> list[int | None]:
        """What the functions would return, None for what cannot be known in that time."""
        until = time.monotonic() + seconds
        if self._getters is None:
            self._getters = Getters(self, self.ask("about")["architecture"])
        return [
            self._getters.result(c.address, *c.arguments, size=_BYTES.get(c.result, 8))
            if time.monotonic() < until
            else None
            for c in calls
        ]
