"""What a function of a dead program would return: its instructions followed over the memory of the core dump.

ggml's devices name and describe themselves by short functions. They are followed as long as they only read: every value
is known or the whole answer is refused (None). Nothing is written, and nothing is guessed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple, Protocol

from ggmltool.sources.process.corefile import CoreFile
from ggmltool.sources.process.link import Call, Link, LinkError
from ggmltool.sources.process.mappings import Mapping as Piece
from ggmltool.sources.process.mappings import Mappings
from ggmltool.sources.process.memory import PAGE, Reads
from ggmltool.sources.process.patience import Patience

SECONDS = 20.0
"""How long functions are followed that are asked together."""
MOST = 4096
"""Instructions that are followed at most for one answer."""
_AHEAD = 48
_WORD = (1 << 64) - 1
_STACK = 0x7FFF_F000_0000_0000
"""Where the stack of a followed function lies: an address that no program has."""
_RETURN = 0x7FFF_E000_0000_0000
_WHOLE = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", *(f"r{i}" for i in range(8, 16)))
_GIVEN = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_MEMORY = re.compile(r"(?:(BYTE|WORD|DWORD|QWORD) PTR )?(?:(ds|ss|cs|es):)?\[([^\]]+)\]")
_TERM = re.compile(r"([+-]?)(?:(r?[a-z0-9]+)\*([1248])|(0x[0-9a-f]+|\d+)|([a-z][a-z0-9]*))")
_BYTES = {"unsigned long": 8, "int": 4, "unsigned char": 1}
_RESULTS = {1: "al", 4: "eax", 8: "rax"}
_SIZES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8}
_PREFIX = re.compile(r"^(?:(?:bnd|notrack|repz|repnz|cs|ds|data16) +)*")


class Unknown(Exception):  # noqa: N818 - what it is
    """A value, an instruction or memory that is not known."""


class _Register(NamedTuple):
    whole: str
    size: int
    shift: int


def _registers() -> dict[str, _Register]:
    out = {name: _Register(name, 8, 0) for name in _WHOLE}
    for letter in "abcd":
        whole = f"r{letter}x"
        out[f"e{letter}x"] = _Register(whole, 4, 0)
        out[f"{letter}x"] = _Register(whole, 2, 0)
        out[f"{letter}l"] = _Register(whole, 1, 0)
        out[f"{letter}h"] = _Register(whole, 1, 8)
    for name in ("si", "di", "bp", "sp"):
        out[f"e{name}"] = _Register(f"r{name}", 4, 0)
        out[name] = _Register(f"r{name}", 2, 0)
        out[f"{name}l"] = _Register(f"r{name}", 1, 0)
    for i in range(8, 16):
        for suffix, size in (("d", 4), ("w", 2), ("b", 1), ("l", 1)):
            out[f"r{i}{suffix}"] = _Register(f"r{i}", size, 0)
    return out


_REGISTERS = _registers()


class Code(Reads, Protocol):
    """Who knows instructions and memory, as `Link` does."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""


class Getters:
    """Follows functions of one program, x86-64. Asks gdb for instructions and memory, each once."""

    def __init__(self, link: Code) -> None:
        self._link = link
        self._code: dict[int, tuple[str, int]] = {}
        self._pages: dict[int, bytes] = {}

    def result(self, function: int, *arguments: int, size: int = 8) -> int | None:
        """What a function returns for these arguments: a number of `size` bytes, None if it cannot be known."""
        run = _Run(self, arguments)
        try:
            return run.follow(function, size)
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
        self._getters = Getters(self)
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
        return [
            self._getters.result(c.address, *c.arguments, size=_BYTES.get(c.result, 8))
            if time.monotonic() < until
            else None
            for c in calls
        ]


class _Run:
    """One call that is followed: its registers, its stack, its flags."""

    def __init__(self, code: Getters, arguments: tuple[int, ...]) -> None:
        self.code = code
        self.registers: dict[str, int] = {"rsp": _STACK, **dict(zip(_GIVEN, arguments, strict=False))}
        self.known: dict[str, int] = dict.fromkeys(self.registers, _WORD)
        self.stack: dict[int, int] = {}
        self.compared: tuple[int, int, int, str] | None = None
        self.at = 0
        self.next = 0

    def follow(self, function: int, size: int) -> int:
        """What comes back, so many bytes of it. Raises Unknown."""
        self._push(_RETURN)
        self.at = function
        for _ in range(MOST):
            if self.at == _RETURN:
                return self._register(_RESULTS[size])
            text, length = self.code.instruction(self.at)
            self.next = self.at + length
            self._step(_PREFIX.sub("", text.split("#")[0].split("<")[0].strip()))
            self.at = self.next
        raise Unknown("it does not end")

    def _step(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        operands = [part.strip() for part in rest.split(",")] if rest.strip() else []
        if name.startswith("nop") or name == "endbr64":
            return
        if name.startswith("j") and name != "jmp":
            if self._holds(name[1:]):
                self.next = self._target(operands[0])
        elif name.startswith("set"):
            self._write(operands[0], int(self._holds(name[3:])))
        elif name.startswith("cmov"):
            value = self._read(operands[1]) if self._holds(name[4:]) else self._read(operands[0])
            self._write(operands[0], value)
        elif name in _DO:
            _DO[name](self, operands)
        else:
            raise Unknown(text)

    # Registers, memory, operands.

    def _register(self, name: str) -> int:
        found = _REGISTERS.get(name)
        if found is None:
            raise Unknown(name)
        mask = ((1 << 8 * found.size) - 1) << found.shift
        if self.known.get(found.whole, 0) & mask != mask:
            raise Unknown(name)
        return (self.registers[found.whole] & mask) >> found.shift

    def _address(self, text: str) -> int:
        value = 0
        for sign, scaled, scale, number, register in _TERM.findall(text):
            if number:
                part = int(number, 0)
            elif register == "rip":
                part = self.next
            else:
                part = self._register(scaled or register) * int(scale or 1)
            value += -part if sign == "-" else part
        return value & _WORD

    def _size(self, operands: list[str]) -> int:
        for operand in operands:
            if operand in _REGISTERS:
                return _REGISTERS[operand].size
            memory = _MEMORY.fullmatch(operand)
            if memory is not None and memory[1]:
                return _SIZES[memory[1]]
        raise Unknown("an operand of no size")

    def _read(self, operand: str, size: int = 8) -> int:
        if operand in _REGISTERS:
            return self._register(operand)
        memory = _MEMORY.fullmatch(operand)
        if memory is None:
            try:
                return int(operand, 0) & ((1 << 8 * size) - 1)
            except ValueError:
                raise Unknown(operand) from None
        size = _SIZES[memory[1]] if memory[1] else size
        return self._load(self._address(memory[3]), size)

    def _load(self, address: int, size: int) -> int:
        if any(address + i in self.stack for i in range(size)):
            if not all(address + i in self.stack for i in range(size)):
                raise Unknown("half a value of the stack")
            return int.from_bytes(bytes(self.stack[address + i] for i in range(size)), "little")
        if abs(address - _STACK) < 1 << 20:
            raise Unknown("a value of the stack that nobody wrote")
        return self.code.memory(address, size)

    def _store(self, address: int, value: int, size: int) -> None:
        if abs(address - _STACK) >= 1 << 20:
            raise Unknown("it writes")
        for i, byte in enumerate((value & ((1 << 8 * size) - 1)).to_bytes(size, "little")):
            self.stack[address + i] = byte

    def _write(self, operand: str, value: int, size: int = 8) -> None:
        found = _REGISTERS.get(operand)
        if found is None:
            memory = _MEMORY.fullmatch(operand)
            if memory is None:
                raise Unknown(operand)
            self._store(self._address(memory[3]), value, _SIZES[memory[1]] if memory[1] else size)
            return
        mask = (1 << 8 * found.size) - 1
        if found.size >= 4:
            self.registers[found.whole], self.known[found.whole] = value & mask, _WORD
            return
        place = mask << found.shift
        before = self.registers.get(found.whole, 0)
        self.registers[found.whole] = before & ~place | (value & mask) << found.shift
        self.known[found.whole] = self.known.get(found.whole, 0) | place

    def _push(self, value: int) -> None:
        self.registers["rsp"] -= 8
        self._store(self.registers["rsp"], value, 8)

    def _pop(self) -> int:
        value = self._load(self.registers["rsp"], 8)
        self.registers["rsp"] += 8
        return value

    def _target(self, operand: str) -> int:
        target = self._read(operand)
        if not target:
            raise Unknown("it calls nothing")
        return target

    # What instructions do.

    def _holds(self, condition: str) -> bool:
        if self.compared is None or condition not in _CONDITIONS:
            raise Unknown(f"the condition {condition}")
        a, b, size, kind = self.compared
        return _CONDITIONS[condition](a, b, size, kind)

    def mov(self, operands: list[str]) -> None:
        """Also movabs."""
        size = self._size(operands)
        self._write(operands[0], self._read(operands[1], size), size)

    def movzx(self, operands: list[str]) -> None:
        """A smaller number without a sign."""
        self._write(operands[0], self._read(operands[1]))

    def movsx(self, operands: list[str]) -> None:
        """A smaller number with a sign; also movsxd and, without operands, cdqe."""
        to, of = operands or ("rax", "eax")
        self._write(to, _signed(self._read(of), self._size([of])))

    def lea(self, operands: list[str]) -> None:
        """An address."""
        memory = _MEMORY.fullmatch(operands[1])
        if memory is None:
            raise Unknown(operands[1])
        self._write(operands[0], self._address(memory[3]))

    def push(self, operands: list[str]) -> None:
        """A register that was never set may be put by, and taken back, but not looked at."""
        name = operands[0]
        if name in _WHOLE and self.known.get(name) != _WORD:
            self.registers["rsp"] -= 8
            for i in range(8):
                self.stack.pop(self.registers["rsp"] + i, None)
            return
        self._push(self._read(name))

    def pop(self, operands: list[str]) -> None:
        """The other way."""
        at = self.registers["rsp"]
        if not any(at + i in self.stack for i in range(8)):
            self.known[operands[0]] = 0
            self.registers["rsp"] += 8
            return
        self._write(operands[0], self._pop())

    def leave(self, _: list[str]) -> None:
        """The end of a function with a frame pointer."""
        self.registers["rsp"] = self._register("rbp")
        self.pop(["rbp"])

    def ret(self, _: list[str]) -> None:
        """Back to who called it."""
        self.next = self._pop()

    def call(self, operands: list[str]) -> None:
        """A function of its own, that is followed too."""
        target = self._target(operands[0])
        self._push(self.next)
        self.next = target

    def jmp(self, operands: list[str]) -> None:
        """Elsewhere."""
        self.next = self._target(operands[0])

    def compare(self, operands: list[str]) -> None:
        """cmp: the flags of a difference."""
        size = self._size(operands)
        self.compared = self._read(operands[0], size), self._read(operands[1], size), size, "cmp"

    def test(self, operands: list[str]) -> None:
        """The flags of the bits that both have."""
        size = self._size(operands)
        self.compared = self._read(operands[0], size) & self._read(operands[1], size), 0, size, "logic"

    def _computed(self, operands: list[str], of: Callable[[int, int], int], logic: bool = False) -> None:
        size = self._size(operands)
        given = [self._read(operand, size) for operand in operands]
        value = of(given[0], given[1]) & ((1 << 8 * size) - 1)
        self._write(operands[0], value, size)
        self.compared = (value, 0, size, "logic" if logic else "result")

    def xor(self, operands: list[str]) -> None:
        """A register with itself is 0, whatever it was."""
        if operands[0] == operands[1] and operands[0] in _REGISTERS and self._size(operands) >= 4:
            self._write(operands[0], 0)
            self.compared = (0, 0, 8, "logic")
            return
        self._computed(operands, lambda a, b: a ^ b, True)

    def sub(self, operands: list[str]) -> None:
        """The flags are those of cmp."""
        size = self._size(operands)
        a, b = self._read(operands[0], size), self._read(operands[1], size)
        self._write(operands[0], a - b, size)
        self.compared = (a, b, size, "cmp")

    def shift(self, operands: list[str], of: Callable[[int, int], int]) -> None:
        """By a number; by one, where none is named."""
        size = self._size(operands[:1])
        by = self._read(operands[1], 1) if len(operands) == 2 else 1
        by &= 63 if size == 8 else 31
        value = of(self._read(operands[0], size), by) & ((1 << 8 * size) - 1)
        self._write(operands[0], value, size)
        if by:
            self.compared = (value, 0, size, "result")

    def sar(self, operands: list[str]) -> None:
        """Keeps the sign."""
        size = self._size(operands[:1])
        self.shift(operands, lambda a, by: _signed(a, size) >> by)

    def imul(self, operands: list[str]) -> None:
        """A product, of which the low half is kept; the forms with two and three operands."""
        if len(operands) < 2:
            raise Unknown("imul")
        size = self._size(operands[:1])
        product = _signed(self._read(operands[-2], size), size) * _signed(self._read(operands[-1], size), size)
        self._write(operands[0], product, size)
        self.compared = None

    def widened(self, operands: list[str], of: str = "rax", to: str = "rdx") -> None:
        """cqo and cdq: the sign of a number that is to be divided."""
        size = self._size([of])
        self._write(to, -1 if _signed(self._register(of), size) < 0 else 0)

    def div(self, operands: list[str], signed: bool = False) -> None:
        """A quotient and what is left of rdx:rax."""
        size = self._size(operands)
        if size < 4:
            raise Unknown("a division of small numbers")
        high, low = ("rdx", "rax") if size == 8 else ("edx", "eax")
        number = self._register(high) << 8 * size | self._register(low)
        by = self._read(operands[0], size)
        if signed:
            number, by = _signed(number, 2 * size), _signed(by, size)
        if not by:
            raise Unknown("a division by zero")
        quotient = abs(number) // abs(by) * (1 if (number < 0) == (by < 0) else -1)
        self._write(low, quotient)
        self._write(high, number - quotient * by)
        self.compared = None

    def neg(self, operands: list[str]) -> None:
        """0 minus the number."""
        size = self._size(operands)
        value = self._read(operands[0], size)
        self._write(operands[0], -value, size)
        self.compared = (0, value, size, "cmp")

    def invert(self, operands: list[str]) -> None:
        """Not: no flags change."""
        size = self._size(operands)
        self._write(operands[0], ~self._read(operands[0], size), size)


def _signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >> (8 * size - 1) & 1 else value


def _below(a: int, b: int, _: int, kind: str) -> bool:
    if kind == "result":
        raise Unknown("the carry of a result")
    return a < b if kind == "cmp" else False


def _less(a: int, b: int, size: int, kind: str) -> bool:
    if kind == "result":
        raise Unknown("the overflow of a result")
    return _signed(a, size) < _signed(b, size)


def _equal(a: int, b: int, _: int, __: str) -> bool:
    return a == b


def _negative(a: int, b: int, size: int, _: str) -> bool:
    return _signed((a - b) & ((1 << 8 * size) - 1), size) < 0


_Condition = Callable[[int, int, int, str], bool]


def _not(of: _Condition) -> _Condition:
    return lambda *flags: not of(*flags)


def _either(one: _Condition, other: _Condition) -> _Condition:
    return lambda *flags: one(*flags) or other(*flags)


_CONDITIONS: Mapping[str, _Condition] = {
    "e": _equal, "z": _equal, "ne": _not(_equal), "nz": _not(_equal),
    "b": _below, "c": _below, "ae": _not(_below), "nc": _not(_below),
    "be": _either(_below, _equal), "a": _not(_either(_below, _equal)),
    "l": _less, "ge": _not(_less), "le": _either(_less, _equal), "g": _not(_either(_less, _equal)),
    "s": _negative, "ns": _not(_negative),
}  # fmt: skip
_DO: Mapping[str, Callable[[_Run, list[str]], None]] = {
    "mov": _Run.mov, "movabs": _Run.mov, "movzx": _Run.movzx, "movsx": _Run.movsx, "movsxd": _Run.movsx,
    "cdqe": _Run.movsx, "lea": _Run.lea, "push": _Run.push, "pop": _Run.pop, "leave": _Run.leave, "ret": _Run.ret,
    "call": _Run.call, "jmp": _Run.jmp, "cmp": _Run.compare, "test": _Run.test, "xor": _Run.xor, "sub": _Run.sub,
    "and": lambda run, operands: run._computed(operands, lambda a, b: a & b, True),
    "or": lambda run, operands: run._computed(operands, lambda a, b: a | b, True),
    "add": lambda run, operands: run._computed(operands, lambda a, b: a + b),
    "shl": lambda run, operands: run.shift(operands, lambda a, by: a << by),
    "shr": lambda run, operands: run.shift(operands, lambda a, by: a >> by),
    "cqo": _Run.widened, "cdq": lambda run, operands: run.widened(operands, "eax", "edx"),
    "div": _Run.div, "idiv": lambda run, operands: run.div(operands, True),
    "sar": _Run.sar, "imul": _Run.imul, "neg": _Run.neg, "not": _Run.invert,
}  # fmt: skip
