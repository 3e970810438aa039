"""A function of x86-64 that is followed: what its instructions, in Intel's syntax as gdb has it, do with numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.attach.followed import RETURN, STACK, Followed, Reads, Unknown

_WORD = (1 << 64) - 1
_WHOLE = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", *(f"r{i}" for i in range(8, 16)))
_GIVEN = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_MEMORY = re.compile(r"(?:(BYTE|WORD|DWORD|QWORD) PTR )?(?:(ds|ss|cs|es):)?\[([^\]]+)\]")
_TERM = re.compile(r"([+-]?)(?:(r?[a-z0-9]+)\*([1248])|(0x[0-9a-f]+|\d+)|([a-z][a-z0-9]*))")
_RESULTS = {1: "al", 4: "eax", 8: "rax"}
_SIZES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8}
_PREFIX = re.compile(r"^(?:(?:bnd|notrack|repz|repnz|cs|ds|data16) +)*")


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


class X8664(Followed):
    """One call: its registers, as far as their bits are known, and its flags."""

    def __init__(self, code: Reads, arguments: Sequence[int]) -> None:
        super().__init__(code)
        self.registers: dict[str, int] = {"rsp": STACK, **dict(zip(_GIVEN, arguments, strict=False))}
        self.known: dict[str, int] = dict.fromkeys(self.registers, _WORD)
        self.compared: tuple[int, int, int, str] | None = None

    def enter(self) -> None:
        self._push(RETURN)

    def returned(self, size: int) -> int:
        return self._register(_RESULTS[size])

    def step(self) -> None:
        text, length = self.code.instruction(self.at)
        self.next = self.at + length
        self._do(_PREFIX.sub("", text.split("#")[0].split("<")[0].strip()))

    def _do(self, text: str) -> None:
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
        value = self.load(address, size)
        if value is None:
            raise Unknown("a value of the stack that nobody wrote")
        return value

    def _write(self, operand: str, value: int, size: int = 8) -> None:
        found = _REGISTERS.get(operand)
        if found is None:
            memory = _MEMORY.fullmatch(operand)
            if memory is None:
                raise Unknown(operand)
            self.store(self._address(memory[3]), value, _SIZES[memory[1]] if memory[1] else size)
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
        self.store(self.registers["rsp"], value, 8)

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
            self.store(self.registers["rsp"], None, 8)
            return
        self._push(self._read(name))

    def pop(self, operands: list[str]) -> None:
        """The other way."""
        if self.load(self.registers["rsp"], 8) is None:
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
_DO: Mapping[str, Callable[[X8664, list[str]], None]] = {
    "mov": X8664.mov, "movabs": X8664.mov, "movzx": X8664.movzx, "movsx": X8664.movsx, "movsxd": X8664.movsx,
    "cdqe": X8664.movsx, "lea": X8664.lea, "push": X8664.push, "pop": X8664.pop, "leave": X8664.leave, "ret": X8664.ret,
    "call": X8664.call, "jmp": X8664.jmp, "cmp": X8664.compare, "test": X8664.test, "xor": X8664.xor, "sub": X8664.sub,
    "and": lambda run, operands: run._computed(operands, lambda a, b: a & b, True),
    "or": lambda run, operands: run._computed(operands, lambda a, b: a | b, True),
    "add": lambda run, operands: run._computed(operands, lambda a, b: a + b),
    "shl": lambda run, operands: run.shift(operands, lambda a, by: a << by),
    "shr": lambda run, operands: run.shift(operands, lambda a, by: a >> by),
    "cqo": X8664.widened, "cdq": lambda run, operands: run.widened(operands, "eax", "edx"),
    "div": X8664.div, "idiv": lambda run, operands: run.div(operands, True),
    "sar": X8664.sar, "imul": X8664.imul, "neg": X8664.neg, "not": X8664.invert,
}  # fmt: skip
