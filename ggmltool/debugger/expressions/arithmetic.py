"""What operators do with numbers and pointers, as C says and gdb does it."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable

from ggmltool.debugger.expressions.values import (
    CValue,
    dereferenced,
    fraction,
    is_struct,
    is_whole,
    pointed,
    whole,
    without_operator,
)
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.types import (
    BOOL,
    DOUBLE,
    INT,
    LONG,
    UNSIGNED_INT,
    UNSIGNED_LONG,
    Array,
    CType,
    Float,
    Function,
    Int,
    Pointer,
    Struct,
    bare,
    size_of,
)  # fmt: skip

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": op.eq, "!=": op.ne, "<": op.lt, ">": op.gt, "<=": op.le, ">=": op.ge,
}  # fmt: skip
_BITS: dict[str, Callable[[int, int], int]] = {"&": op.and_, "|": op.or_, "^": op.xor}
_FLOATING: dict[str, Callable[[float, float], float]] = {"+": op.add, "-": op.sub, "*": op.mul}
_NO_NUMBER = "Argument to arithmetic operation not a number or boolean."


def truth_value(holds: bool, like: CValue) -> CValue:
    """What a comparison gives: an int in C, a bool in C++."""
    return whole(like.memory, BOOL if like.language == "c++" else INT, int(holds), like.language)


def promoted(t: CType) -> CType:
    """The type that arithmetic has for a value of a type: at least an int."""
    t = bare(t)
    if isinstance(t, Float):
        return t
    if isinstance(t, Int) and t.size >= 4:
        return {(4, True): INT, (4, False): UNSIGNED_INT, (8, True): LONG, (8, False): UNSIGNED_LONG}.get(
            (t.size, t.signed), t
        )
    return INT


def common(a: CType, b: CType) -> CType:
    """The type of the result of arithmetic on two numbers."""
    left, right = promoted(a), promoted(b)
    if isinstance(left, Float) or isinstance(right, Float):
        floats = [t for t in (left, right) if isinstance(t, Float)]
        return max(floats, key=lambda t: t.size) if len(floats) == 2 else floats[0] if floats else DOUBLE
    assert isinstance(left, Int)
    assert isinstance(right, Int)
    if left.size != right.size:
        return left if left.size > right.size else right
    return right if left.signed else left


def binary(operator: str, a: CValue, b: CValue) -> CValue:
    """The value of two operands. Raises ExpressionError."""
    for side in (a, b):
        if is_struct(side.type):
            raise ExpressionError(f"Structure has no component named operator{operator}.")
    if operator in _COMPARE:
        left, right = (v.floating() if isinstance(v.bare, Float) else v.integer() for v in (a, b))
        return truth_value(_COMPARE[operator](left, right), a)
    if pointed(a) is not None or pointed(b) is not None:
        return _with_pointers(operator, a, b)
    for side in (a, b):
        if not is_whole(side.type) and not isinstance(side.bare, Float):
            raise ExpressionError(_NO_NUMBER)
    type = common(a.type, b.type)
    if isinstance(type, Float):
        return fraction(a.memory, type, _floating(operator, a.floating(), b.floating()), a.language)
    if operator in ("<<", ">>"):
        type, number, by = promoted(a.type), a.integer(), b.integer()
        if not 0 <= by < 8 * size_of(type):
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
        size = size_of(of)
        if size != size_of(other):
            raise ExpressionError(
                "First argument of `-' is a pointer and second argument is neither\n"
                "an integer nor a pointer of the same type."
            )
        return whole(a.memory, LONG, (a.integer() - b.integer()) // size, a.language)
    if operator == "+" and of is None:
        a, b, of = b, a, other
    if operator not in ("+", "-") or of is None or not is_whole(b.type):
        raise ExpressionError(_NO_NUMBER)
    step = b.integer() * size_of(of)
    type = a.type if isinstance(a.bare, Pointer) else Pointer(of)
    return whole(a.memory, type, a.integer() + (step if operator == "+" else -step), a.language)


def unary(operator: str, v: CValue) -> CValue:
    """The value of `-v`, `+v`, `!v`, `~v`. Raises ExpressionError."""
    if operator == "!":
        if is_struct(v.type):
            raise ExpressionError("Structure has no component named operator!.")
        return truth_value(not v.truth(), v)
    if not is_whole(v.type) and not isinstance(v.bare, Float):
        raise ExpressionError(_NO_NUMBER)
    type = promoted(v.type)
    if isinstance(type, Float):
        if operator == "~":
            raise ExpressionError("Argument to complement operation not an integer, boolean.")
        return fraction(v.memory, type, 0 - v.floating() if operator == "-" else v.floating(), v.language)
    number = v.integer()
    return whole(v.memory, type, {"-": -number, "+": number, "~": ~number}[operator], v.language)


def cast(type: CType, v: CValue) -> CValue:
    """`(type) v`. Raises ExpressionError."""
    to = bare(type)
    match to:
        case Float() if is_whole(v.type) or isinstance(v.bare, Float):
            return fraction(v.memory, type, v.floating(), v.language)
        case Int(bool=True):
            return whole(v.memory, type, int(v.truth()), v.language)
        case Struct() if v.bare is to:
            return v
        case Struct() | Array() | Function():
            raise ExpressionError("Invalid cast.")
    if is_struct(v.type) or (isinstance(to, Pointer) and isinstance(v.bare, Float)):
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
    if isinstance(t, Array) and 0 <= i < t.length:
        return a.part(of, i * size_of(of))
    if isinstance(t, Array) and a.address is None:
        raise ExpressionError("no such vector element")
    return dereferenced(binary("+", a, b))
