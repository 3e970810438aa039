"""Fields of a struct that are unpacked together, wherever they lie in the structs of a ggml."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from ggmltool.state.errors import NotAsLaidOut
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Array, CType, Enum, Int, Member, Pointer, Struct, bare, size_of

_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}


class StructFields:
    """Some fields of a struct, in the order in which they are named.

    A name may be a path (`addr.offset`), and several that are tried one after the other (`addr.offset|offset`); an
    empty one at the end says that it is 0 where no struct has it. Arrays are tuples, characters bytes; of a struct
    inside the struct comes its offset. Raises NotAsLaidOut where this ggml has no such field.
    """

    def __init__(self, layout: Layout, tag: str, names: Sequence[str]) -> None:
        found = layout.structs.get(tag)
        if found is None:
            raise NotAsLaidOut(f"ggml {layout.name} has no struct {tag}")
        self.size = found.size
        self._constants: list[tuple[int, int]] = []
        members = []
        for i, name in enumerate(names):
            member = _find(found, name, layout.name)
            inside = member is not None and isinstance(bare(member.type), Struct)
            if member is None or inside:
                self._constants.append((i, member.offset if member else 0))
            else:
                members.append((member.offset, i, member.type))
        text, slices, end, flat = "<", [], 0, 0
        for offset, i, type in sorted(members, key=lambda m: m[:2]):
            code, n, array = _code(type)
            text += f"{offset - end}x{code}"
            slices.append((i, flat, n, array))
            end = offset + size_of(type)
            flat += n
        self._struct = struct.Struct(text + f"{self.size - end}x")
        self._pick = _picking([(slice(at, at + n) if array else at) for _, at, n, array in sorted(slices)])

    def unpack(self, data: bytes, at: int = 0) -> list[Any]:
        """The values of the fields, of a struct that begins so many bytes from the first."""
        out = list(self._pick(self._struct.unpack_from(data, at)))
        for i, value in self._constants:
            out.insert(i, value)
        return out

    def pack(self, *values: Any) -> bytes:
        """A struct with these values, arrays laid flat, in the order of the fields in it; the rest is 0."""
        return self._struct.pack(*values)

    def flat(self, data: bytes) -> list[tuple[Any, ...]]:
        """The fields of an array of such structs, where none of them is an array itself."""
        if not self._constants:
            return [tuple(self._pick(f)) for f in self._struct.iter_unpack(data)]
        return [tuple(self.unpack(data, at)) for at in range(0, len(data), self.size)]


@lru_cache(256)
def record(layout: Layout, tag: str, names: tuple[str, ...]) -> StructFields:
    """The fields of a struct, found once for each ggml."""
    return StructFields(layout, tag, names)


def _picking(places: Sequence[int | slice]) -> Callable[[tuple[Any, ...]], Sequence[Any]]:
    """What takes these out of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]


def _find(found: Struct, names: str, version: str) -> Member | None:
    for name in names.split("|"):
        if not name:
            return None
        member = _member(found, name)
        if member is not None:
            return member
    raise NotAsLaidOut(f"struct {found.name} of ggml {version} has no field {names}")


def _member(found: Struct, path: str) -> Member | None:
    head, _, rest = path.partition(".")
    member = (found.members or {}).get(head)
    if member is None or not rest:
        return member
    inner = bare(member.type)
    deeper = _member(inner, rest) if isinstance(inner, Struct) else None
    return deeper and Member(deeper.name, deeper.type, member.offset + deeper.offset)


def _code(type: CType) -> tuple[str, int, bool]:
    """How struct calls a type, how many values it gives, and whether it is an array."""
    t = bare(type)
    if isinstance(t, Array):
        code, n, _ = _code(t.of)
        if isinstance(bare(t.of), Int) and size_of(t.of) == 1:
            return f"{t.length}s", 1, False
        return f"{t.length * n}{code[-1]}", t.length * n, True
    match t:
        case Pointer():
            return "Q", 1, False
        case Enum():
            return "i", 1, False
        case Int(size=size, signed=signed):
            code = _CODES[size, True]
            return code if signed else code.upper(), 1, False
        case _:
            raise NotAsLaidOut("a field that is neither a number nor a pointer")
