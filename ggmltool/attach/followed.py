"""A call of a function of a dead program that is followed: what every machine has in common, the stack and the end."""

from __future__ import annotations

from typing import Protocol

MOST = 4096
"""Instructions that are followed at most for one answer."""
STACK = 0x7FFF_F000_0000_0000
"""Where the stack of a followed function lies: an address that no program has."""
RETURN = 0x7FFF_E000_0000_0000
"""Where it returns to."""
_DEPTH = 1 << 20


class Unknown(Exception):  # noqa: N818 - what it is
    """A value, an instruction or memory that is not known."""


class Reads(Protocol):
    """Who knows the program's memory and instructions."""

    def memory(self, address: int, size: int) -> int:
        """A number of some bytes. Raises Unknown."""

    def instruction(self, address: int) -> tuple[str, int]:
        """The instruction at an address as gdb writes it, and its length in bytes. Raises Unknown."""


class Followed:
    """One call. Its methods raise Unknown where something is not known, and where it would write elsewhere than to its
    own stack."""

    def __init__(self, code: Reads) -> None:
        self.code = code
        self.at = 0
        self.next = 0
        self._stack: dict[int, int] = {}

    def enter(self) -> None:
        """Have it return to RETURN."""
        raise NotImplementedError

    def step(self) -> None:
        """Do the instruction at `at`; `next` is the one behind it, or where it goes."""
        raise NotImplementedError

    def returned(self, size: int) -> int:
        """What has come back, so many bytes of it."""
        raise NotImplementedError

    def follow(self, function: int, size: int) -> int:
        """What a function returns, so many bytes of it."""
        self.enter()
        self.at = function
        for _ in range(MOST):
            if self.at == RETURN:
                return self.returned(size)
            self.step()
            self.at = self.next
        raise Unknown("it does not end")

    def load(self, address: int, size: int) -> int | None:
        """A number in memory; None of a place on the stack whose value is not known."""
        there = [self._stack.get(address + i) for i in range(size)]
        known = bytes(byte for byte in there if byte is not None)
        if len(known) == size:
            return int.from_bytes(known, "little")
        if abs(address - STACK) < _DEPTH:
            return None
        return self.code.memory(address, size)

    def store(self, address: int, value: int | None, size: int) -> None:
        """Write a number to the stack; None: one that is not known."""
        if abs(address - STACK) >= _DEPTH:
            raise Unknown("it writes")
        for i in range(size):
            if value is None:
                self._stack.pop(address + i, None)
            else:
                self._stack[address + i] = value >> 8 * i & 255


def signed(value: int, bits: int) -> int:
    """A number of so many bits with a sign."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value
