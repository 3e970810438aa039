"""The structs, enums and type names of a ggml: data of `tables/`, a file for each ggml whose structs differ."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from ggmltool.data import load
from ggmltool.structs.declarations import STANDARD, ExpressionError, TokenCursor, declaration, read_type
from ggmltool.structs.types import CType, Enum, Struct, Typedef, lay_out

_PACKAGE = "ggmltool.structs.tables"
MAX_NAME = 64
"""GGML_MAX_NAME, unless a program was built with another."""
_NAME = f"char name[{MAX_NAME}]"
_DAYS = (1000,)
"""A first number from here on is a year: that of a day, not of a version."""
_FIRST = (0, 9, 1)
"""The first version. A ggml that says less counts its commits, or is on the way to this one."""


class TypesFile(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says besides that of the ggml that it is `like`; what is empty is gone. `cxx` are the functions whose
    source is C++, by what their names begin with. `since` is the first version that has these structs, or the day where
    ggml did not say its version yet; `exports` are functions without which a library of that version has not."""

    like: str = ""
    since: str = ""
    exports: tuple[str, ...] = ()
    cxx: tuple[str, ...] | None = None
    typedefs: dict[str, str] = {}
    enums: dict[str, tuple[str, ...]] = {}
    structs: dict[str, tuple[str, ...]] = {}


class Layout:
    """The types of one ggml. `constants` are the members of its enums, each with its enum and value."""

    def __init__(self, name: str, data: TypesFile) -> None:
        self.name = name
        self.cxx = data.cxx or ()
        self.enums = {tag: _enum(tag, members) for tag, members in data.enums.items() if members}
        self.structs = {tag: Struct(tag) for tag, fields in data.structs.items() if fields}
        self.constants = {m: (enum, value) for enum in self.enums.values() for m, value in enum.members.items()}
        self._opaque: dict[str, Struct] = {}
        self._typedefs: dict[str, CType] = dict(STANDARD)
        for alias, to in data.typedefs.items():
            self._typedefs[alias] = Typedef(alias, read_type(TokenCursor(to), self))
        # A struct that lies inside another has to be laid out before it: the files have them in that order.
        for tag, fields in data.structs.items():
            if fields:
                lay_out(self.structs[tag], [declaration(field, self) for field in fields])

    def struct(self, name: str) -> Struct:
        """A struct; one that is only pointed to has no members. Raises ExpressionError for a name never heard of."""
        found = self.structs.get(name) or self._opaque.get(name)
        if found is None:
            if not name.startswith("ggml_"):
                raise ExpressionError(f"No struct type named {name}.")
            found = self._opaque.setdefault(name, Struct(name))
        return found

    def enum(self, name: str) -> Enum:
        """An enum. Raises ExpressionError if there is none."""
        found = self.enums.get(name)
        if found is None:
            raise ExpressionError(f"No enum type named {name}.")
        return found

    def typedef(self, name: str) -> CType | None:
        """What a name stands for, None if it is no type."""
        return self._typedefs.get(name)


def layout(name: str, max_name: int = MAX_NAME) -> Layout:
    """The types of a ggml by its name: a release, or one of the days that has a file. `max_name` is its GGML_MAX_NAME.
    Raises ExpressionError."""
    if name not in layout_names():
        raise ExpressionError(f"There are no structs of {name!r}; there are those of {', '.join(layout_names())}.")
    return _known(name, max_name)


@cache
def _known(name: str, max_name: int) -> Layout:
    return fresh(name, max_name)


def fresh(name: str, max_name: int = MAX_NAME) -> Layout:
    """The same types anew, for somebody who knows better where some fields lie."""
    data = _merged(name)
    if max_name == MAX_NAME:
        return Layout(name, data)
    tensor = (f"char name[{max_name}]" if field == _NAME else field for field in data.structs["ggml_tensor"])
    return Layout(name, msgspec.structs.replace(data, structs={**data.structs, "ggml_tensor": tuple(tensor)}))


def layouts_of(version: str, exports: Container[str]) -> tuple[str, ...]:
    """The names of the layouts that a library may have, the likeliest first: it says this version ("" if it says none)
    and exports these functions. Of a version the first is that of its structs."""
    said = _number(version) if says_structs(version) else ()
    found = []
    for name in reversed(_in_order()):
        file = _own(name)
        since = _number(file.since)
        of_kind = bool(said) != (since >= _DAYS) and (not said or since <= said)
        if of_kind and all(function in exports for function in file.exports):
            found.append(name)
    return tuple(found)


def newest_first() -> tuple[str, ...]:
    """The names of all layouts, the newest first."""
    return tuple(reversed(_in_order()))


def exports_of(name: str) -> tuple[str, ...]:
    """The functions without which a library has not the structs of this layout."""
    return _own(name).exports


def says_structs(version: str) -> bool:
    """Whether a version tells the structs; else a library may have any of those before there were versions."""
    return _number(version) >= _FIRST


@cache
def _in_order() -> tuple[str, ...]:
    """The layouts, the oldest first: those of days, then those of versions; one with more exports is later."""

    def key(name: str) -> tuple[bool, tuple[int, ...], int]:
        since = _number(_own(name).since)
        return since < _DAYS, since, _told_by_exports(name)

    return tuple(sorted(layout_names(), key=key))


def _told_by_exports(name: str) -> int:
    """How many layouts that exports tell this one is like, itself included."""
    own = _own(name)
    return 1 + _told_by_exports(own.like) if own.exports else 0


def _number(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:[.-]\d+)*", version)
    return tuple(map(int, re.split("[.-]", found[0]))) if found else ()


@cache
def layout_names() -> tuple[str, ...]:
    """The ggmls whose structs are known."""
    names = (file.name for file in files(_PACKAGE).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


@cache
def _own(name: str) -> TypesFile:
    return load(f"{name}.toml", TypesFile, _PACKAGE)


@cache
def _merged(name: str) -> TypesFile:
    own = _own(name)
    if not own.like:
        return own
    base = _merged(own.like)
    return TypesFile(
        cxx=base.cxx if own.cxx is None else own.cxx,
        typedefs=base.typedefs | own.typedefs,
        enums=base.enums | own.enums,
        structs=base.structs | own.structs,
    )


def _enum(tag: str, members: Sequence[str]) -> Enum:
    values: dict[str, int] = {}
    value = -1
    for member in members:
        name, _, said = member.partition("=")
        value = int(said) if said else value + 1
        values[name.strip()] = value
    bits = 0
    flags = True
    for value in values.values():
        flags = flags and value > 0 and not value & bits
        bits |= value
    return Enum(tag, values, flags)
