"""Calls in a dead program: unicorn runs the code of a core dump over its memory.

ggml's devices name and describe themselves by short functions. They run as long as they only read: one that writes
elsewhere than to its stack, does not end, or needs memory that was not dumped has no answer (None).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import IO, Any

from ggmltool.attach.files.corefile import CoreFile
from ggmltool.attach.gdb.guards import SignalGuard
from ggmltool.attach.gdb.link import FunctionCall, GdbLink, Mapping, Mappings
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.pages import PAGE, Reads

NO_UNICORN = "what its devices' functions return is not known, but deduced: pip install 'ggmltool[core]' runs them"
"""What a dump lacks where unicorn is not installed."""
SECONDS = 20.0
"""How long functions run that are asked together."""
_INSTRUCTIONS = 4096
"""Instructions of one call, at most."""
_PAGES = 4096
"""Pages that are mapped at a time, at most."""
_MICROSECONDS = 1_000_000
_PIECE = 4
"""Bytes that are read at once of a page of which a part was dumped."""
_STACK, _STACK_BYTES = 0xE_0000_0000_0000, 1 << 16
"""Where the stack lies, and RETURN, where a function returns to: addresses that no program has."""
_RETURN = 0xD_0000_0000_0000
_BYTES = {"unsigned long": 8, "int": 4, "unsigned char": 1}


def has_unicorn() -> bool:
    """Whether unicorn is installed."""
    return find_spec("unicorn") is not None


class Emulator:
    """Runs functions of one program, of a machine as gdb calls it. Each page is read once, when it is first needed."""

    def __init__(self, link: Reads, machine: str = "x86-64") -> None:
        import unicorn
        from unicorn import arm64_const, x86_const

        self._link = link
        self._unicorn = unicorn
        self._pages: set[int] = set()
        self._holes: set[int] = set()
        if machine == "aarch64":
            self._arguments = [getattr(arm64_const, f"UC_ARM64_REG_X{i}") for i in range(8)]
            self._stack, self._pc = arm64_const.UC_ARM64_REG_SP, arm64_const.UC_ARM64_REG_PC
            self._returns_to, self._result = arm64_const.UC_ARM64_REG_LR, arm64_const.UC_ARM64_REG_X0
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_LITTLE_ENDIAN)
        else:
            self._arguments = [getattr(x86_const, f"UC_X86_REG_{r}") for r in ("RDI", "RSI", "RDX", "RCX", "R8", "R9")]
            self._stack, self._pc = x86_const.UC_X86_REG_RSP, x86_const.UC_X86_REG_RIP
            self._returns_to, self._result = None, x86_const.UC_X86_REG_RAX
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
            self._cpu.hook_add(unicorn.UC_HOOK_INSN, self._refuse, None, 1, 0, x86_const.UC_X86_INS_SYSCALL)
        self._cpu.mem_map(_STACK - _STACK_BYTES, _STACK_BYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        unmapped = unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_FETCH_UNMAPPED
        self._cpu.hook_add(unmapped, self._map)
        self._cpu.hook_add(unicorn.UC_HOOK_INTR, self._refuse)

    def result(self, function: int, *arguments: int, size: int = 8) -> int | None:
        """What a function returns for these arguments: a number of `size` bytes, None if it cannot be known."""
        if len(self._pages) > _PAGES:
            for page in self._pages:
                self._cpu.mem_unmap(page, PAGE)
            self._pages.clear()
        self._cpu.mem_write(_STACK - _STACK_BYTES, bytes(_STACK_BYTES))
        top = _STACK - PAGE
        if self._returns_to is None:
            top -= 8
            self._cpu.mem_write(top, _RETURN.to_bytes(8, "little"))
        else:
            self._cpu.reg_write(self._returns_to, _RETURN)
        self._cpu.reg_write(self._stack, top)
        for register, value in zip(self._arguments, arguments, strict=False):
            self._cpu.reg_write(register, value)
        try:
            self._cpu.emu_start(function, _RETURN, _MICROSECONDS, _INSTRUCTIONS)
        except self._unicorn.UcError:
            return None
        if self._cpu.reg_read(self._pc) != _RETURN:
            return None
        return int(self._cpu.reg_read(self._result)) & ((1 << 8 * size) - 1)

    def _map(self, _cpu: Any, _access: int, address: int, size: int, *_: Any) -> bool:
        """Map the pages of an access that is the first there. They cannot be written to."""
        rights = self._unicorn.UC_PROT_READ | self._unicorn.UC_PROT_EXEC
        for page in range(address - address % PAGE, address + size, PAGE):
            if page not in self._pages:
                data = self._page(page, max(page, address))
                if data is None or len(self._pages) > 2 * _PAGES:
                    return False
                self._cpu.mem_map(page, PAGE, rights)
                self._cpu.mem_write(page, data)
                self._pages.add(page)
        return True

    def _page(self, page: int, wanted: int) -> bytes | None:
        """The bytes of a page, None where the wanted one is missing. Of a page that was dumped in part, what is not
        there may not be read."""
        try:
            data, piece = self._link.read_many([(page, PAGE), (wanted, 1)])
            if len(data) == PAGE or not piece:
                return data if len(data) == PAGE else None
            places = range(page, page + PAGE, _PIECE)
            pieces = self._link.read_many([(at, _PIECE) for at in places])
        except LinkError:
            return None
        self._holes |= {at for at, piece in zip(places, pieces, strict=True) if len(piece) < _PIECE}
        self._cpu.hook_add(self._unicorn.UC_HOOK_MEM_READ, self._in_part, None, page, page + PAGE - 1)
        return b"".join(piece.ljust(_PIECE, b"\0") for piece in pieces)

    def _in_part(self, _cpu: Any, _access: int, address: int, size: int, *_: Any) -> None:
        if any(at - at % _PIECE in self._holes for at in (address, address + size - 1)):
            self._refuse()

    def _refuse(self, *_: Any) -> None:
        """It asks the system, or reads what nobody knows."""
        self._cpu.emu_stop()


class DeadLink(GdbLink):
    """The way into a core dump: what would be called is emulated."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], guard: SignalGuard | None = None) -> None:
        super().__init__(requests, answers, guard)
        self._emulator: Emulator | None = None
        self.dump: CoreFile | None = None

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer. To gdb a core dump has mapped files alone; functions that were made while the
        program ran lie elsewhere."""
        found = super().ask(verb, *arguments)
        if verb == "mappings" and self.dump is not None:
            files = Mappings(Mapping(*piece) for piece in found)
            made = (s for s in self.dump.segments if s.runs and files.at(s.address) is None)
            found = [*found, *([s.address, s.address + s.size, "", ""] for s in made)]
        return found

    def call(self, calls: Sequence[FunctionCall], seconds: float = SECONDS, alone: bool = True) -> list[int | None]:
        """What the functions would return, None for what cannot be known in that time."""
        if not has_unicorn():
            return [None] * len(calls)
        until = time.monotonic() + seconds
        if self._emulator is None:
            self._emulator = Emulator(self, self.ask("about")["architecture"])
        return [
            self._emulator.result(c.address, *c.arguments, size=_BYTES.get(c.result, 8))
            if time.monotonic() < until
            else None
            for c in calls
        ]
