"""Values of expressions, the operators that reach into them (*, [], ., ->), and arithmetic as gdb does it."""

from __future__ import annotations

import math
import operator as op
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.structs import types as c
from ggmltool.structs.declarations import ExpressionError

FLOATS = {2: "<e", 4: "<f", 8: "<d"}
MOST_BYTES = 1 << 26
"""What is read of one value at most."""


@dataclass(frozen=True, slots=True)
class CValue:
    """A value: an lvalue, or an rvalue with bytes of its own. `address` is where it lies (None: nowhere, a value that
    was computed), `own` are its bytes where they are not to be read there; `language` is that of the function it was
    asked for in."""

    type: c.CType
    memory: ImageMemory
    address: int | None = None
    own: bytes | None = None
    language: c.Language = "c"

    @property
    def bare(self) -> c.CType:
        """Its type behind typedefs and const."""
        return c.bare(self.type)

    @property
    def size(self) -> int:
        """Its bytes."""
        return c.size_of(self.type)

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
        if self.own is not None or isinstance(self.bare, (c.Void, c.Function)):
            return self
        return replace(self, own=self.raw())

    def part(self, type: c.CType, offset: int) -> Self:
        """What lies so many bytes into it."""
        if self.own is not None:
            address = None if self.address is None else self.address + offset
            return replace(self, type=type, address=address, own=self.own[offset : offset + c.size_of(type)])
        return replace(self, type=type, address=(self.address or 0) + offset)

    def integer(self) -> int:
        """The whole number that it is: of a pointer the address, of an array where it lies. Raises ExpressionError."""
        t = self.bare
        match t:
            case c.Int(signed=signed):
                return int.from_bytes(self.raw(), "little", signed=signed)
            case c.Pointer():
                return int.from_bytes(self.raw(), "little")
            case c.Enum():
                return int.from_bytes(self.raw(), "little", signed=True)
            case c.Float():
                number = self.floating()
                return int(number) if isfinite(number) else -(1 << 63)
            case c.Array() | c.Function():
                if self.address is None:
                    raise ExpressionError("Attempt to take address of value not located in memory.")
                return self.address
            case _:
                raise ExpressionError("Value can't be converted to integer.")

    def floating(self) -> float:
        """The number that it is. Raises ExpressionError."""
        t = self.bare
        if isinstance(t, c.Float):
            if t.size not in FLOATS:
                raise ExpressionError(f"No values of type {t.name} are kept.")
            return float(struct.unpack(FLOATS[t.size], self.raw())[0])
        return float(self.integer())

    def truth(self) -> bool:
        """Whether it is anything but zero."""
        return self.floating() != 0 if isinstance(self.bare, c.Float) else self.integer() != 0

    def type_name(self) -> str:
        """How gdb writes its type."""
        return c.type_name(self.type, language=self.language)


def whole(memory: ImageMemory, type: c.CType, number: int, language: c.Language = "c") -> CValue:
    """A number as a value of a type, cut to its bytes."""
    size = c.size_of(type)
    return CValue(type, memory, own=(number & ((1 << 8 * size) - 1)).to_bytes(size, "little"), language=language)


def fraction(memory: ImageMemory, type: c.CType, number: float, language: c.Language = "c") -> CValue:
    """A number as a value of a floating type."""
    t = c.bare(type)
    assert isinstance(t, c.Float)
    if t.size not in FLOATS:
        raise ExpressionError(f"No values of type {t.name} are kept.")
    try:
        own = struct.pack(FLOATS[t.size], number)
    except OverflowError:
        own = struct.pack(FLOATS[t.size], float("inf") if number > 0 else float("-inf"))
    return CValue(type, memory, own=own, language=language)


def is_whole(t: c.CType) -> bool:
    """Whether a value of a type is a whole number in arithmetic."""
    return isinstance(c.bare(t), (c.Int, c.Enum))


def is_struct(t: c.CType) -> bool:
    """Whether a type is a struct."""
    return isinstance(c.bare(t), c.Struct)


def pointed(value: CValue) -> c.CType | None:
    """What a pointer or an array is of; None of others."""
    t = value.bare
    match t:
        case c.Pointer(to):
            return to
        case c.Array(of):
            return of
        case _:
            return None


def field_of(value: CValue, name: str) -> CValue:
    """`value.name` of a struct or of a pointer to one."""
    if isinstance(value.bare, c.Pointer):
        value = dereferenced(value)
    t = value.bare
    if not isinstance(t, c.Struct):
        arrow = " pointer" if pointed(value) is None else ""
        raise ExpressionError(f"Attempt to extract a component of a value that is not a structure{arrow}.")
    member = (t.members or {}).get(name)
    if member is None:
        raise ExpressionError(f"There is no member named {name}.")
    return value.part(member.type, member.offset)


def optional_field(value: CValue, name: str) -> CValue | None:
    """The same of a field that not every ggml's struct has."""
    t = value.bare
    t = c.bare(t.to) if isinstance(t, c.Pointer) else t
    return field_of(value, name) if isinstance(t, c.Struct) and name in (t.members or {}) else None


def dereferenced(value: CValue) -> CValue:
    """`*value`. Raises ExpressionError."""
    of = pointed(value)
    if of is None:
        if isinstance(value.bare, c.Function):
            return value
        if is_whole(value.type):
            return CValue(c.LONG, value.memory, value.integer(), language=value.language)
        raise without_operator(value, "*", "Attempt to take contents of a non-pointer value.")
    if isinstance(c.bare(of), c.Void):
        raise ExpressionError("Attempt to take contents of a non-pointer value.")
    if value.own is not None and isinstance(value.bare, c.Array):
        return value.part(of, 0)
    return CValue(of, value.memory, value.integer(), language=value.language)


def without_operator(value: CValue, operator: str, otherwise: str) -> ExpressionError:
    """What is said of an operator that a value has not: a struct would have to have one of its own."""
    if isinstance(value.bare, c.Struct):
        return ExpressionError(f"Structure has no component named operator{operator}.")
    return ExpressionError(otherwise)


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": op.eq, "!=": op.ne, "<": op.lt, ">": op.gt, "<=": op.le, ">=": op.ge,
}  # fmt: skip
_BITS: dict[str, Callable[[int, int], int]] = {"&": op.and_, "|": op.or_, "^": op.xor}
_FLOATING: dict[str, Callable[[float, float], float]] = {"+": op.add, "-": op.sub, "*": op.mul}
_NO_NUMBER = "Argument to arithmetic operation not a number or boolean."


def truth_value(holds: bool, like: CValue) -> CValue:
    """What a comparison gives: an int in C, a bool in C++."""
    return whole(like.memory, c.BOOL if like.language == "c++" else c.INT, int(holds), like.language)


def promoted(t: c.CType) -> c.CType:
    """The type that arithmetic has for a value of a type: at least an int."""
    t = c.bare(t)
    if isinstance(t, c.Float):
        return t
    if isinstance(t, c.Int) and t.size >= 4:
        return {(4, True): c.INT, (4, False): c.UNSIGNED_INT, (8, True): c.LONG, (8, False): c.UNSIGNED_LONG}.get(
            (t.size, t.signed), t
        )
    return c.INT


def common(a: c.CType, b: c.CType) -> c.CType:
    """The type of the result of arithmetic on two numbers."""
    left, right = promoted(a), promoted(b)
    if isinstance(left, c.Float) or isinstance(right, c.Float):
        floats = [t for t in (left, right) if isinstance(t, c.Float)]
        return max(floats, key=lambda t: t.size) if len(floats) == 2 else floats[0] if floats else c.DOUBLE
    assert isinstance(left, c.Int)
    assert isinstance(right, c.Int)
    if left.size != right.size:
        return left if left.size > right.size else right
    return right if left.signed else left


def binary(operator: str, a: CValue, b: CValue) -> CValue:
    """The value of two operands. Raises ExpressionError."""
    for side in (a, b):
        if is_struct(side.type):
            raise ExpressionError(f"Structure has no component named operator{operator}.")
    if operator in _COMPARE:
        left, right = (v.floating() if isinstance(v.bare, c.Float) else v.integer() for v in (a, b))
        return truth_value(_COMPARE[operator](left, right), a)
    if pointed(a) is not None or pointed(b) is not None:
        return _with_pointers(operator, a, b)
    for side in (a, b):
        if not is_whole(side.type) and not isinstance(side.bare, c.Float):
            raise ExpressionError(_NO_NUMBER)
    type = common(a.type, b.type)
    if isinstance(type, c.Float):
        return fraction(a.memory, type, _floating(operator, a.floating(), b.floating()), a.language)
    if operator in ("<<", ">>"):
        type, number, by = promoted(a.type), a.integer(), b.integer()
        if not 0 <= by < 8 * c.size_of(type):
            number = -1 if operator == ">>" and number < 0 else 0
        else:
            number = number << by if operator == "<<" else number >> by
        return whole(a.memory, type, number, a.language)
    one, other = (whole(v.memory, type, v.integer()).integer() for v in (a, b))
    return whole(a.memory, type, _on_integers(operator, one, other), a.language)


def _floating(operator: str, a: float, b: float) -> float:
    if operator == "/":
        if b == 0:
            return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
        return a / b
    if operator not in _FLOATING:
        raise ExpressionError("Integer-only operation.")
    return _FLOATING[operator](a, b)


def _on_integers(operator: str, a: int, b: int) -> int:
    if operator in _BITS:
        return _BITS[operator](a, b)
    if operator in ("/", "%"):
        if b == 0:
            raise ExpressionError("Division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if operator == "/" else a - quotient * b
    return int(_FLOATING[operator](a, b))


def _with_pointers(operator: str, a: CValue, b: CValue) -> CValue:
    of, other = pointed(a), pointed(b)
    if of is not None and other is not None:
        if operator != "-":
            raise ExpressionError(_NO_NUMBER)
        size = c.size_of(of)
        if size != c.size_of(other):
            raise ExpressionError(
                "First argument of `-' is a pointer and second argument is neither\n"
                "an integer nor a pointer of the same type."
            )
        return whole(a.memory, c.LONG, (a.integer() - b.integer()) // size, a.language)
    if operator == "+" and of is None:
        a, b, of = b, a, other
    if operator not in ("+", "-") or of is None or not is_whole(b.type):
        raise ExpressionError(_NO_NUMBER)
    step = b.integer() * c.size_of(of)
    type = a.type if isinstance(a.bare, c.Pointer) else c.Pointer(of)
    return whole(a.memory, type, a.integer() + (step if operator == "+" else -step), a.language)


def unary(operator: str, v: CValue) -> CValue:
    """The value of `-v`, `+v`, `!v`, `~v`. Raises ExpressionError."""
    if operator == "!":
        if is_struct(v.type):
            raise ExpressionError("Structure has no component named operator!.")
        return truth_value(not v.truth(), v)
    if not is_whole(v.type) and not isinstance(v.bare, c.Float):
        raise ExpressionError(_NO_NUMBER)
    type = promoted(v.type)
    if isinstance(type, c.Float):
        if operator == "~":
            raise ExpressionError("Argument to complement operation not an integer, boolean.")
        return fraction(v.memory, type, 0 - v.floating() if operator == "-" else v.floating(), v.language)
    number = v.integer()
    return whole(v.memory, type, {"-": -number, "+": number, "~": ~number}[operator], v.language)


def cast(type: c.CType, v: CValue) -> CValue:
    """`(type) v`. Raises ExpressionError."""
    to = c.bare(type)
    match to:
        case c.Float() if is_whole(v.type) or isinstance(v.bare, c.Float):
            return fraction(v.memory, type, v.floating(), v.language)
        case c.Int(bool=True):
            return whole(v.memory, type, int(v.truth()), v.language)
        case c.Struct() if v.bare is to:
            return v
        case c.Struct() | c.Array() | c.Function():
            raise ExpressionError("Invalid cast.")
    if is_struct(v.type) or (isinstance(to, c.Pointer) and isinstance(v.bare, c.Float)):
        raise ExpressionError("Invalid cast.")
    return whole(v.memory, type, v.integer(), v.language)


def subscript(a: CValue, b: CValue) -> CValue:
    """`a[b]`. Raises ExpressionError."""
    of = pointed(a)
    if of is None:
        if pointed(b) is not None:
            return subscript(b, a)
        raise without_operator(a, "[]", f"cannot subscript something of type `{a.type_name()}'")
    if not is_whole(b.type):
        raise ExpressionError(_NO_NUMBER)
    i, t = b.integer(), a.bare
    if isinstance(t, c.Array) and 0 <= i < t.length:
        return a.part(of, i * c.size_of(of))
    if isinstance(t, c.Array) and a.address is None:
        raise ExpressionError("no such vector element")
    return dereferenced(binary("+", a, b))
