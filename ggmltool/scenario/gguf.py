"""The header of a GGUF file: its metadata and its table of tensors, read without their data, and written.

The metadata are kept as they lie in the file, so that what is not looked at (a vocabulary, mostly) is copied as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.tensor import MAX_DIMS
from ggmltool.ggml.version import pad
from ggmltool.scenario.errors import quoted

if TYPE_CHECKING:
    import mmap

MAGIC = b"GGUF"
ALIGNMENT = 32
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
"""The numbers of some types of metadata."""

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""How a number of each type lies in the file."""

_VERSIONS = (2, 3)
_SIZES = {kind: struct.calcsize("<" + format) for kind, format in FORMATS.items()}
_MAX_DEPTH = 8
MAX_TENSORS = 1 << 18
_MAX_VALUES, _MAX_TEXT, _MAX_ITEMS = 1 << 16, 1 << 28, 1 << 28
_LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8
_LEAST_VALUE = 8 + 1 + 4 + 1


class GgufValue(NamedTuple):
    """A value of the metadata: the number of its type, and its bytes."""

    kind: int
    raw: bytes

    def numbers(self, most: int | None = None) -> list[float]:
        """A number or the numbers of an array, at most so many; [] for anything else."""
        kind, raw, n = self.kind, self.raw, 1
        if kind == ARRAY:
            kind, n = struct.unpack_from("<IQ", raw)
            raw = raw[12:]
        if kind not in FORMATS:
            return []
        return list(struct.unpack_from(f"<{n if most is None else min(n, most)}{FORMATS[kind]}", raw))

    def texts(self) -> Iterator[str]:
        """A text, or the texts of an array; nothing for anything else."""
        kind, n, at = self.kind, 1, 0
        if kind == ARRAY:
            (kind, n), at = struct.unpack_from("<IQ", self.raw), 12
        for _ in range(n if kind == STRING else 0):
            (size,) = struct.unpack_from("<Q", self.raw, at)
            yield self.raw[at + 8 : at + 8 + size].decode("utf-8", "replace")
            at += 8 + size


class GgufTensorInfo(NamedTuple):
    """A tensor of the table; `offset` counts from the start of the data."""

    name: bytes
    type_id: int
    ne: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        """Its bytes. Raises KeyError for a type that is not known."""
        return TYPES_BY_ID[self.type_id].row_size(self.ne[0] if self.ne else 1) * prod(self.ne[1:])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before the data; `size` is how many bytes that takes."""

    values: Mapping[str, GgufValue]
    tensors: list[GgufTensorInfo]
    size: int

    @property
    def alignment(self) -> int:
        """The bytes that the data of every tensor is a multiple of."""
        found = self.values.get("general.alignment")
        return int(found.numbers()[0]) if found is not None and found.kind == U32 else ALIGNMENT

    @property
    def whole(self) -> int:
        """Bytes of the whole file."""
        return max((self.size + t.offset + pad(t.n_bytes, self.alignment) for t in self.tensors), default=self.size)

    @property
    def needed(self) -> int:
        """Bytes that a file has at least if all values are there."""
        return max((self.size + t.offset + t.n_bytes for t in self.tensors), default=self.size)

    def number(self, key: str, default: int = 0) -> int:
        """A whole number, the first one of an array; `default` if there is none."""
        found = self.values.get(key)
        numbers = found.numbers(1) if found is not None else []
        return int(numbers[0]) if numbers and isinstance(numbers[0], int) else default

    def text(self, key: str) -> str:
        """A text, "" if there is none."""
        found = self.values.get(key)
        return next(found.texts(), "") if found is not None and found.kind == STRING else ""


class GgufDamagedError(Exception):
    """The header is none that this reads; says why."""


class GgufCutError(GgufDamagedError):
    """The header goes on behind the end of the file: `end` bytes are there, with `what` of it, and it needs more than
    `least`, about `guess` (0: unknown)."""

    def __init__(self, end: int, what: str, least: int, guess: int) -> None:
        super().__init__("it ends too early")
        self.end, self.what, self.least, self.guess = end, what, least, guess


def gguf_header(content: mmap.mmap) -> GgufHeader:
    """The header of a file that begins with GGUF. Raises GgufCutError and GgufDamagedError."""
    return _Reader(content).header()


class _Reader:
    """A walk through a header. `what` is said of the part that is being read, `later` bytes follow it at least."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.end = len(content)
        self.at = len(MAGIC)
        self.what = "its first bytes"
        self.later = 0
        self.guess = 0

    def header(self) -> GgufHeader:
        version = self._number("I")
        if version not in _VERSIONS:
            raise GgufDamagedError(f"its version is {version}, not {' or '.join(map(str, _VERSIONS))}")
        n_tensors, n_values = self._number("Q"), self._number("Q")
        self._bounded(n_tensors, MAX_TENSORS)
        self._bounded(n_values, _MAX_VALUES)
        values: dict[str, GgufValue] = {}
        for i in range(n_values):
            self.what = f"{i} of its {n_values} key-value pairs"
            self.later = (n_values - i - 1) * _LEAST_VALUE + n_tensors * _LEAST_TENSOR
            key = self._text().decode("utf-8", "replace")
            kind = self._number("I")
            start = self.at
            self._skip(kind, 1, 0)
            values[key] = GgufValue(kind, self.content[start : self.at])
        tensors = self._tensors(n_tensors)
        header = GgufHeader(values, tensors, 0)
        alignment = header.alignment
        if alignment == 0 or alignment & (alignment - 1):
            raise GgufDamagedError(f"its alignment, {alignment}, is not a power of two")
        return GgufHeader(values, tensors, pad(self.at, alignment))

    def _tensors(self, n: int) -> list[GgufTensorInfo]:
        out: list[GgufTensorInfo] = []
        start = self.at
        for i in range(n):
            self.what = f"{i} of the {n} entries of its tensor table"
            self.later = (n - i - 1) * _LEAST_TENSOR
            self.guess = start + (self.at - start) * n // i if i else 0
            name = self._text()
            n_dims = self._number("I")
            if n_dims > MAX_DIMS:
                raise GgufDamagedError(f"{quoted(name.decode('utf-8', 'replace'))} has {n_dims} dimensions")
            ne = tuple(self._number("Q") for _ in range(n_dims))
            out.append(GgufTensorInfo(name, self._number("I"), ne, self._number("Q")))
        return out

    def _number(self, format: str) -> int:
        at = self.at
        self._advance(struct.calcsize("<" + format))
        return int(struct.unpack_from("<" + format, self.content, at)[0])

    def _advance(self, n: int) -> None:
        self.at += n
        if self.at > self.end:
            raise self._cut()

    def _cut(self) -> GgufCutError:
        return GgufCutError(self.end, self.what, self.at + self.later, self.guess)

    def _bounded(self, n: int, most: int) -> None:
        """Refuse a length that no file has."""
        if n > most:
            raise GgufDamagedError("it ends too early")

    def _text(self) -> bytes:
        n = self._number("Q")
        self._bounded(n, _MAX_TEXT)
        start = self.at
        self._advance(n)
        return self.content[start : self.at]

    def _skip(self, kind: int, n: int, depth: int) -> None:
        """Pass over `n` values."""
        self._bounded(n, _MAX_ITEMS)
        if kind in _SIZES:
            self._advance(_SIZES[kind] * n)
        elif kind == STRING:
            content, at, end, length = self.content, self.at, self.end, struct.Struct("<Q").unpack_from
            for i in range(n):
                if at + 8 > end:
                    self.at = at + 8 * (n - i)
                    raise self._cut()
                size = length(content, at)[0]
                if size > _MAX_TEXT:
                    self._bounded(size, _MAX_TEXT)
                at += 8 + size
            self.at = at
            self._advance(0)
        elif kind == ARRAY and depth < _MAX_DEPTH:
            for _ in range(n):
                inner = self._number("I")
                self._skip(inner, self._number("Q"), depth + 1)
        else:
            raise GgufDamagedError(f"its metadata has values of an unknown type, {kind}")


def gguf_bytes(
    values: Mapping[str, GgufValue], tensors: Iterable[tuple[bytes, int, tuple[int, ...]]]
) -> tuple[bytes, int]:
    """The header of a file of these tensors (name, number of the type, ne), up to their data, and the data's size."""
    alignment = GgufHeader(values, [], 0).alignment
    table: list[bytes] = []
    offset = 0
    for name, type_id, ne in tensors:
        dims = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        table.append(_text(name) + dims + struct.pack("<IQ", type_id, offset))
        offset += pad(GgufTensorInfo(name, type_id, ne, 0).n_bytes, alignment)
    pairs = [_text(key.encode()) + struct.pack("<I", value.kind) + value.raw for key, value in values.items()]
    content = b"".join([MAGIC, struct.pack("<IQQ", 3, len(table), len(pairs)), *pairs, *table])
    return content + bytes(-len(content) % alignment), offset


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def value_of(value: object, kind: int | None = None) -> GgufValue:
    """A value of Python as one of the metadata: a text, a truth, a number (u32, f32, or of `kind`), a list of those."""
    match value:
        case str():
            return GgufValue(STRING, _text(value.encode()))
        case bool():
            return GgufValue(BOOL, struct.pack("<?", value))
        case int() | float():
            kind = (U32 if isinstance(value, int) else F32) if kind is None else kind
            return GgufValue(kind, struct.pack("<" + FORMATS[kind], value))
        case list() if value:
            items = [value_of(item, kind) for item in value]
            raw = struct.pack("<IQ", items[0].kind, len(items)) + b"".join(item.raw for item in items)
            return GgufValue(ARRAY, raw)
        case _:
            raise TypeError(f"{type(value).__name__} is no value of the metadata")
