"""The types of C as far as ggml's structs need them: their sizes on x86-64, and how gdb writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

Language = Literal["c", "c++"]
"""What the source of a function is written in: gdb writes types and symbols as that language does."""


class Void(msgspec.Struct, frozen=True):
    """void."""


class Int(msgspec.Struct, frozen=True):
    """A whole number of `size` bytes. `char`: printed with its character; `bool`: printed as true or false."""

    name: str
    size: int
    signed: bool = True
    char: bool = False
    bool: bool = False


class Float(msgspec.Struct, frozen=True):
    """A number with a fraction."""

    name: str
    size: int


class Enum(msgspec.Struct, frozen=True):
    """An enum, with its members by name. `flags`: its members are single bits, and a value may have several."""

    name: str
    members: Mapping[str, int]
    flags: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


class Member(NamedTuple):
    """A field of a struct: where it begins, in bytes."""

    name: str
    type: CType
    offset: int


@dataclass(slots=True, eq=False)
class Struct:
    """A struct; `members` are set when all structs are known, for one may point to another. Without members its fields
    are not known here, as those of one that is only ever pointed to."""

    name: str
    members: dict[str, Member] | None = None
    size: int = 0
    alignment: int = 1


class Pointer(msgspec.Struct, frozen=True):
    """A pointer."""

    to: CType


class Array(msgspec.Struct, frozen=True):
    """`length` elements."""

    of: CType
    length: int


class Function(msgspec.Struct, frozen=True):
    """A function."""

    result: CType
    parameters: tuple[CType, ...]


class Typedef(msgspec.Struct, frozen=True):
    """Another name of a type."""

    name: str
    to: CType


class Const(msgspec.Struct, frozen=True):
    """const."""

    to: CType


CType = Void | Int | Float | Enum | Struct | Pointer | Array | Function | Typedef | Const

VOID = Void()
CHAR = Int("char", 1, char=True)
SIGNED_CHAR = Int("signed char", 1, char=True)
UNSIGNED_CHAR = Int("unsigned char", 1, signed=False, char=True)
SHORT = Int("short", 2)
UNSIGNED_SHORT = Int("unsigned short", 2, signed=False)
INT = Int("int", 4)
UNSIGNED_INT = Int("unsigned int", 4, signed=False)
LONG = Int("long", 8)
UNSIGNED_LONG = Int("unsigned long", 8, signed=False)
BOOL = Int("_Bool", 1, signed=False, bool=True)
FLOAT = Float("float", 4)
DOUBLE = Float("double", 8)
INT128 = Int("__int128", 16)

POINTER_BYTES = 8


def bare(t: CType) -> CType:
    """The type behind typedefs and const."""
    while isinstance(t, (Typedef, Const)):
        t = t.to
    return t


def size_of(t: CType) -> int:
    """sizeof; 1 of void and of functions, as in GNU C."""
    t = bare(t)
    match t:
        case Int(size=size) | Float(size=size):
            return size
        case Enum():
            return 4
        case Pointer():
            return POINTER_BYTES
        case Array(of, length):
            return size_of(of) * length
        case Struct():
            return t.size
        case _:
            return 1


def alignment_of(t: CType) -> int:
    """_Alignof."""
    t = bare(t)
    match t:
        case Array(of):
            return alignment_of(of)
        case Struct():
            return t.alignment
        case _:
            return size_of(t)


def lay_out(struct: Struct, fields: Sequence[tuple[str, CType, int]]) -> None:
    """Give a struct its members, in order, each (name, type, least alignment) behind the one before."""
    members: dict[str, Member] = {}
    end, alignment = 0, 1
    for name, type, least in fields:
        step = max(alignment_of(type), least)
        offset = -(-end // step) * step
        members[name] = Member(name, type, offset)
        end = offset + size_of(type)
        alignment = max(alignment, step)
    struct.members = members
    struct.size = -(-end // alignment) * alignment
    struct.alignment = alignment


def type_name(t: CType, name: str = "", language: Language = "c") -> str:
    """How gdb writes a type: `struct ggml_tensor *[10]`; with a name, how a field of it is declared."""
    base, declarator = _declared(t, name, language)
    return f"{base} {declarator}" if declarator else base


def _declared(t: CType, inner: str, language: Language) -> tuple[str, str]:
    match t:
        case Pointer(to):
            inner = f"*{inner}"
            return _declared(to, f"({inner})" if isinstance(to, (Array, Function)) else inner, language)
        case Array(of, length):
            return _declared(of, f"{inner}[{length}]", language)
        case Function(result, parameters):
            said = ", ".join(type_name(p, language=language) for p in parameters) or "void"
            return _declared(result, f"{inner}({said})", language)
        case Const(Pointer() as to):
            return _declared(to, f"const {inner}".rstrip(), language)
        case Const(to):
            base, inner = _declared(to, inner, language)
            return f"const {base}", inner
        case _:
            return base_name(t, language), inner


def base_name(t: CType, language: Language = "c") -> str:
    """The name of a type that is no pointer, array or function."""
    match t:
        case Void():
            return "void"
        case Struct(name=name):
            return name if language == "c++" else f"struct {name}"
        case Enum(name=name):
            return name if language == "c++" else f"enum {name}"
        case Int(bool=True):
            return "bool" if language == "c++" else "_Bool"
        case Int(name=name) | Float(name=name) | Typedef(name=name):
            return name
        case _:
            return type_name(t, language=language)


def innermost(t: CType) -> CType:
    """What pointers, arrays and functions are of: the type whose name comes first in a declaration."""
    while True:
        match t:
            case Pointer(to) | Const(to):
                t = to
            case Array(of):
                t = of
            case Function(result):
                t = result
            case _:
                return t


def with_innermost(t: CType, base: CType) -> CType:
    """The same pointers, arrays and functions of another type."""
    match t:
        case Pointer(to):
            return Pointer(with_innermost(to, base))
        case Const(to):
            return Const(with_innermost(to, base))
        case Array(of, length):
            return Array(with_innermost(of, base), length)
        case Function(result, parameters):
            return Function(with_innermost(result, base), parameters)
        case _:
            return base
