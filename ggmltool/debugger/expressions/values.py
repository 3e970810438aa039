"""Values of expressions: lvalues and rvalues, and the operators that reach into them (*, [], ., ->)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.types import (
    LONG,
    Array,
    CType,
    Enum,
    Float,
    Function,
    Int,
    Language,
    Pointer,
    Struct,
    Void,
    bare,
    size_of,
    type_name,
)

FLOATS = {2: "<e", 4: "<f", 8: "<d"}
MOST_BYTES = 1 << 26
"""What is read of one value at most."""


@dataclass(frozen=True, slots=True)
class CValue:
    """A value: an lvalue, or an rvalue with bytes of its own.

    `address` is where it lies (None: nowhere, a value that was computed), `own` are its bytes where they are not to be
    read there; `language` is that of the function it was asked for in.
    """

    type: CType
    memory: ImageMemory
    address: int | None = None
    own: bytes | None = None
    language: Language = "c"

    @property
    def bare(self) -> CType:
        """Its type behind typedefs and const."""
        return bare(self.type)

    @property
    def size(self) -> int:
        """Its bytes."""
        return size_of(self.type)

    def raw(self, offset: int = 0, n: int | None = None) -> bytes:
        """Its bytes, or some of them. Raises NoMemoryError where nothing is."""
        n = self.size - offset if n is None else n
        if n > MOST_BYTES:
            raise ExpressionError(
                f"value of type `{self.type_name()}' requires {n} bytes, which is more than max-value-size"
            )
        if self.own is not None:
            return self.own[offset : offset + n]
        return self.memory.read((self.address or 0) + offset, n)

    def fetched(self) -> Self:
        """The same value, which stays as it is when the state changes: what the value history keeps."""
        if self.own is not None or isinstance(self.bare, (Void, Function)):
            return self
        return replace(self, own=self.raw())

    def part(self, type: CType, offset: int) -> Self:
        """What lies so many bytes into it."""
        if self.own is not None:
            address = None if self.address is None else self.address + offset
            return replace(self, type=type, address=address, own=self.own[offset : offset + size_of(type)])
        return replace(self, type=type, address=(self.address or 0) + offset)

    def integer(self) -> int:
        """The whole number that it is: of a pointer the address, of an array where it lies. Raises ExpressionError."""
        t = self.bare
        match t:
            case Int(signed=signed):
                return int.from_bytes(self.raw(), "little", signed=signed)
            case Pointer():
                return int.from_bytes(self.raw(), "little")
            case Enum():
                return int.from_bytes(self.raw(), "little", signed=True)
            case Float():
                number = self.floating()
                return int(number) if isfinite(number) else -(1 << 63)
            case Array() | Function():
                if self.address is None:
                    raise ExpressionError("Attempt to take address of value not located in memory.")
                return self.address
            case _:
                raise ExpressionError("Value can't be converted to integer.")

    def floating(self) -> float:
        """The number that it is. Raises ExpressionError."""
        t = self.bare
        if isinstance(t, Float):
            if t.size not in FLOATS:
                raise ExpressionError(f"No values of type {t.name} are kept.")
            return float(struct.unpack(FLOATS[t.size], self.raw())[0])
        return float(self.integer())

    def truth(self) -> bool:
        """Whether it is anything but zero."""
        return self.floating() != 0 if isinstance(self.bare, Float) else self.integer() != 0

    def type_name(self) -> str:
        """How gdb writes its type."""
        return type_name(self.type, language=self.language)


def whole(memory: ImageMemory, type: CType, number: int, language: Language = "c") -> CValue:
    """A number as a value of a type, cut to its bytes."""
    size = size_of(type)
    return CValue(type, memory, own=(number & ((1 << 8 * size) - 1)).to_bytes(size, "little"), language=language)


def fraction(memory: ImageMemory, type: CType, number: float, language: Language = "c") -> CValue:
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


def field_of(value: CValue, name: str) -> CValue:
    """`value.name` of a struct or of a pointer to one."""
    if isinstance(value.bare, Pointer):
        value = dereferenced(value)
    t = value.bare
    if not isinstance(t, Struct):
        arrow = " pointer" if pointed(value) is None else ""
        raise ExpressionError(f"Attempt to extract a component of a value that is not a structure{arrow}.")
    member = (t.members or {}).get(name)
    if member is None:
        raise ExpressionError(f"There is no member named {name}.")
    return value.part(member.type, member.offset)


def optional_field(value: CValue, name: str) -> CValue | None:
    """The same of a field that not every ggml's struct has."""
    t = value.bare
    t = bare(t.to) if isinstance(t, Pointer) else t
    return field_of(value, name) if isinstance(t, Struct) and name in (t.members or {}) else None


def dereferenced(value: CValue) -> CValue:
    """`*value`. Raises ExpressionError."""
    of = pointed(value)
    if of is None:
        if isinstance(value.bare, Function):
            return value
        if is_whole(value.type):
            return CValue(LONG, value.memory, value.integer(), language=value.language)
        raise without_operator(value, "*", "Attempt to take contents of a non-pointer value.")
    if isinstance(bare(of), Void):
        raise ExpressionError("Attempt to take contents of a non-pointer value.")
    if value.own is not None and isinstance(value.bare, Array):
        return value.part(of, 0)
    return CValue(of, value.memory, value.integer(), language=value.language)


def without_operator(value: CValue, operator: str, otherwise: str) -> ExpressionError:
    """What is said of an operator that a value has not: a struct would have to have one of its own."""
    if isinstance(value.bare, Struct):
        return ExpressionError(f"Structure has no component named operator{operator}.")
    return ExpressionError(otherwise)
