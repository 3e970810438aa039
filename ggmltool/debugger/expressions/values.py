"""Values of expressions: made of numbers, and printed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ggmltool.debugger.expressions.held import FLOATS, Held
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.debugger.expressions.printing import printed
from ggmltool.debugger.expressions.wrapping import wrapped
from ggmltool.structs.errors import ExpressionError
from ggmltool.structs.types import Array, CType, Enum, Float, Int, Language, Pointer, Struct, bare, size_of


@dataclass(frozen=True, slots=True)
class CValue(Held):
    """A value of an expression."""

    def format(self, letter: str = "", width: int | None = None, indent: int = 0) -> str:
        """The value as gdb prints it, in a format of `print/FMT`; lines of at most `width` columns (None: one line),
        where `indent` are taken already. Raises ExpressionError.
        """
        return wrapped(printed(self, letter), width, indent)

    def brief(self) -> str:
        """The value as it stands among the arguments of a frame: a pointer without its type. Raises ExpressionError."""
        return wrapped(printed(self, typed=False))


def whole(memory: Memory, type: CType, number: int, language: Language = "c") -> CValue:
    """A number as a value of a type, cut to its bytes."""
    size = size_of(type)
    return CValue(type, memory, own=(number & ((1 << 8 * size) - 1)).to_bytes(size, "little"), language=language)


def fraction(memory: Memory, type: CType, number: float, language: Language = "c") -> CValue:
    """A number as a value of a floating type."""
    t = bare(type)
    assert isinstance(t, Float)
    if t.size not in FLOATS:
        raise ExpressionError(f"No values of type {t.name} are kept.")
    try:
        own = struct.pack(FLOATS[t.size], number)
    except OverflowError:
        own = struct.pack(FLOATS[t.size], float("inf") if number > 0 else float("-inf"))
    return CValue(type, memory, own=own, language=language)


def is_whole(t: CType) -> bool:
    """Whether a value of a type is a whole number in arithmetic."""
    return isinstance(bare(t), (Int, Enum))


def is_struct(t: CType) -> bool:
    """Whether a type is a struct."""
    return isinstance(bare(t), Struct)


def pointed(value: CValue) -> CType | None:
    """What a pointer or an array is of; None of others."""
    t = value.bare
    match t:
        case Pointer(to):
            return to
        case Array(of):
            return of
        case _:
            return None
