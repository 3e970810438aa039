"""What is wrong with an expression, in gdb's words."""

from __future__ import annotations


class ExpressionError(Exception):
    """An expression that has no value: its text is what gdb would say."""


class NoMemoryError(ExpressionError):
    """There is nothing at an address."""

    def __init__(self, address: int) -> None:
        super().__init__(f"Cannot access memory at address {address & 0xFFFF_FFFF_FFFF_FFFF:#x}")
        self.address = address
