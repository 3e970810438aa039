"""ggml's structs as ctypes classes, made of its declarations: for a library, whose structs lie in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ggmltool.structs.declarations import declaration
from ggmltool.structs.layout import Layout, exports_of, layout, layout_names, layouts_of
from ggmltool.structs.types import Array, Const, CType, Enum, Float, Function, Int, Pointer, Struct, bare


class Mirrors:
    """The structs of one ggml as ctypes classes, by tag, each made when it is asked for first. A pointer is an address,
    but for `T **` and pointers to numbers, which can be read as arrays, and text. So is one to a function: `prototype`
    is what it is called, or made, with."""

    def __init__(self, types: Layout) -> None:
        self.types = types
        self._made: dict[str, Any] = {}

    def __getitem__(self, tag: str) -> Any:
        """The class of a struct. Raises ExpressionError if there is none."""
        if tag not in self._made:
            members = self.types.struct(tag).members or {}
            self._made[tag] = self._class(tag, [(m.name, m.type) for m in members.values()])
        return self._made[tag]

    def declared(self, tag: str, *fields: str) -> Any:
        """The class of a struct that is not among the types, of its fields' declarations."""
        return self._class(tag, [declaration(field, self.types)[:2] for field in fields])

    def prototype(self, tag: str, field: str) -> Any:
        """The ctypes function type of a field that points to a function."""
        pointer = bare((self.types.struct(tag).members or {})[field].type)
        assert isinstance(pointer, Pointer)
        function = bare(pointer.to)
        assert isinstance(function, Function)
        result = bare(function.result)
        return ctypes.CFUNCTYPE(_scalar(result), *map(_scalar, map(bare, function.parameters)))

    def _class(self, tag: str, fields: Sequence[tuple[str, CType]]) -> Any:
        content = {"_fields_": [(name, self._field(type)) for name, type in fields], "__doc__": f"{tag}."}
        return type(tag, (ctypes.Structure,), content)

    def _field(self, type: CType) -> Any:
        type = bare(type)
        match type:
            case Struct(name=tag):
                return self[tag]
            case Array(of, length):
                return ctypes.c_char * length if _is_text(of) else self._field(of) * length
            case Pointer(Const() as to) if _is_text(to):
                return ctypes.c_char_p
            case Pointer(to) if isinstance(bare(to), (Int, Float)) and not _is_text(to):
                return ctypes.POINTER(_scalar(bare(to)))
            case Pointer(to) if isinstance(bare(to), Pointer):
                return ctypes.POINTER(ctypes.c_void_p)
            case _:
                return _scalar(type)


def _is_text(type: CType) -> bool:
    bared = bare(type)
    return isinstance(bared, Int) and bared.name == "char"


def _scalar(type: CType) -> Any:
    """A type that fits into a register, None for void; every pointer is an address."""
    match type:
        case Int(bool=True):
            return ctypes.c_bool
        case Int(size=size, signed=signed):
            return getattr(ctypes, f"c_{'' if signed else 'u'}int{8 * size}")
        case Float(size=size):
            return ctypes.c_float if size == 4 else ctypes.c_double
        case Enum():
            return ctypes.c_int
        case Pointer():
            return ctypes.c_void_p
        case _:
            return None


@cache
def mirrors(name: str) -> Mirrors:
    """The structs of a ggml by its name. Raises ExpressionError."""
    return Mirrors(layout(name))


def mirrors_of(version: str, exports: Callable[[str], bool]) -> Mirrors:
    """The structs of a library that says this version and exports these functions."""
    told_by = {function for name in layout_names() for function in exports_of(name)}
    return mirrors(layouts_of(version, set(filter(exports, told_by)))[0])
