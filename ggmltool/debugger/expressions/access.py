"""What is in a value, or where it points to: fields, elements, targets of pointers."""

from __future__ import annotations

from ggmltool.debugger.expressions import arithmetic
from ggmltool.debugger.expressions.values import CValue, is_whole, pointed
from ggmltool.structs.errors import ExpressionError
from ggmltool.structs.types import LONG, Array, Function, Pointer, Struct, Void, bare, size_of


def field_of(value: CValue, name: str) -> CValue:
    """`value.name` of a struct or of a pointer to one."""
    if isinstance(value.bare, Pointer):
        value = dereferenced(value)
    t = value.bare
    if not isinstance(t, Struct):
        raise ExpressionError(f"Attempt to extract a component of a value that is not a structure{_arrow(value)}.")
    if t.members is None:
        raise ExpressionError(f"There is no member named {name}.")
    member = t.members.get(name)
    if member is None:
        raise ExpressionError(f"There is no member named {name}.")
    return value.part(member.type, member.offset)


def _arrow(value: CValue) -> str:
    return " pointer" if pointed(value) is None else ""


def dereferenced(value: CValue) -> CValue:
    """`*value`. Raises ExpressionError."""
    of = pointed(value)
    if of is None:
        if isinstance(value.bare, Function):
            return value
        if is_whole(value.type):
            return CValue(LONG, value.memory, value.integer(), language=value.language)
        raise _without_operator(value, "*", "Attempt to take contents of a non-pointer value.")
    if isinstance(bare(of), Void):
        raise ExpressionError("Attempt to take contents of a non-pointer value.")
    if value.own is not None and isinstance(value.bare, Array):
        return value.part(of, 0)
    return CValue(of, value.memory, value.integer(), language=value.language)


def subscript(a: CValue, b: CValue) -> CValue:
    """`a[b]`. Raises ExpressionError."""
    of = pointed(a)
    if of is None:
        if pointed(b) is not None:
            return subscript(b, a)
        raise _without_operator(a, "[]", f"cannot subscript something of type `{a.type_name()}'")
    if not is_whole(b.type):
        raise ExpressionError("Argument to arithmetic operation not a number or boolean.")
    i, t = b.integer(), a.bare
    if isinstance(t, Array) and a.address is None:
        if not 0 <= i < t.length:
            raise ExpressionError("no such vector element")
        return a.part(of, i * size_of(of))
    if isinstance(t, Array) and 0 <= i < t.length:
        return a.part(of, i * size_of(of))
    return dereferenced(arithmetic.binary("+", a, b))


def _without_operator(value: CValue, operator: str, otherwise: str) -> ExpressionError:
    """What is said of an operator that a value has not: a struct would have to have one of its own."""
    if isinstance(value.bare, Struct):
        return ExpressionError(f"Structure has no component named operator{operator}.")
    return ExpressionError(otherwise)
