"""Structs as bytes: what is known of their fields, by name, in the layout of a ggml."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ggmltool.debugger.expressions.memory import Read
from ggmltool.structs.types import Array, CType, Enum, Int, Pointer, Struct, bare, size_of

Fields = Mapping[str, Any]
"""What stands in a struct, by field: numbers, bytes, an iterable of elements for an array, Fields for a struct.

A field that the layout does not have is left out; one that is not named is zero.
"""


def pack(struct: Struct, fields: Fields) -> bytes:
    """The bytes of a struct."""
    out = bytearray(struct.size)
    _pack_struct(out, 0, struct, fields)
    return bytes(out)


def pack_array(of: CType, elements: Iterable[Any], length: int) -> bytes:
    """The bytes of an array of so many elements."""
    out = bytearray(size_of(of) * length)
    _pack(out, 0, Array(of, length), elements)
    return bytes(out)


def _pack_struct(out: bytearray, at: int, struct: Struct, fields: Fields) -> None:
    members = struct.members or {}
    for name, value in fields.items():
        member = members.get(name)
        if member is not None:
            _pack(out, at + member.offset, member.type, value)


def _pack(out: bytearray, at: int, type: CType, value: Any) -> None:
    t = bare(type)
    match t:
        case Int() | Enum() | Pointer() if not isinstance(value, int):
            # What one ggml has in a field, another has elsewhere: its structs may be shown of this one's state.
            return
        case Struct() if isinstance(value, Mapping):
            _pack_struct(out, at, t, value)
        case Array(of, length) if isinstance(value, bytes):
            out[at : at + min(len(value), length)] = value[:length]
        case Array(of, length) if isinstance(value, Iterable):
            step = size_of(of)
            for i, element in zip(range(length), value, strict=False):
                if element:
                    _pack(out, at + i * step, of, element)
        case Int(size=size):
            out[at : at + size] = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        case Enum() | Pointer():
            size = size_of(t)
            out[at : at + size] = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def records(step: int, make: Callable[[int], bytes]) -> Read:
    """Reads of a row of records, `step` bytes each, that are made when somebody reads them first."""
    return fleeting(step, cache(make))


def fleeting(step: int, make: Callable[[int], bytes]) -> Read:
    """The same of records that are made anew for each read, as they may be others by then."""

    def read(offset: int, n: int) -> bytes:
        out = b""
        while len(out) < n:
            i, within = divmod(offset + len(out), step)
            out += make(i).ljust(step, b"\0")[within : within + n - len(out)]
        return out

    return read
