"""The headers of model files, GGUF and folders of safetensors: metadata and tables of tensors, without their data.

The metadata of a GGUF file are kept as they lie in it, so that what is not looked at (a vocabulary, mostly) is copied
as it is. A file of safetensors begins with the length of its header (eight bytes) and the header, which is JSON; its
data follow. So the first megabytes of each file are enough.
"""

from __future__ import annotations

import errno
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.tensor import MAX_DIMS
from ggmltool.sources.llama.errors import CaptureError

MAGIC = b"GGUF"
ALIGNMENT = 32
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
"""The numbers of some types of metadata."""

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""How a number of each type lies in the file."""

_VERSIONS = (2, 3)
_SIZES = {kind: struct.calcsize("<" + format) for kind, format in FORMATS.items()}
_MAX_DEPTH = 8
_MAX_TENSORS, _MAX_VALUES, _MAX_TEXT, _MAX_ITEMS = 1 << 18, 1 << 16, 1 << 28, 1 << 28
_LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8
_LEAST_VALUE = 8 + 1 + 4 + 1
MAX_SIZE = 1 << 46
"""Bytes of a model, at most: 64 TiB."""


class Value(NamedTuple):
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

    def text(self) -> str:
        """A text, "" for anything else."""
        return self.raw[8:].decode("utf-8", "replace") if self.kind == STRING else ""


class GgufTensorInfo(NamedTuple):
    """A tensor of the table; `offset` counts from the start of the data."""

    name: bytes
    type_id: int
    ne: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        """Its bytes. Raises KeyError for a type that is not known."""
        rows = 1
        for n in self.ne[1:]:
            rows *= n
        return TYPES_BY_ID[self.type_id].row_size(self.ne[0] if self.ne else 1) * rows


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the data; `size` is how many bytes that takes."""

    values: Mapping[str, Value]
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
        return max((self.size + t.offset + padded(t.n_bytes, self.alignment) for t in self.tensors), default=self.size)

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
        return self.values[key].text() if key in self.values else ""


class CutError(CaptureError):
    """The header goes on behind the end of the file."""


class OddError(Exception):
    """The header is none that this reads; what is the matter is told better by llama.cpp."""


def read_header(path: Path) -> Header:
    """The header of a GGUF file. Raises CutError where the file ends too early, OddError for one that is damaged."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(path, content).header()
    except (OSError, ValueError):
        raise OddError from None


def padded(n: int, alignment: int) -> int:
    """A size, rounded up."""
    return -(-n // alignment) * alignment


class _Reader:
    """A walk through a header. `what` is said of the part that is being read, `later` bytes follow it at least."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self.path = path
        self.content = content
        self.end = len(content)
        self.at = len(MAGIC)
        self.what = "its first bytes"
        self.later = 0
        self.guess = 0

    def header(self) -> Header:
        if self._number("I") not in _VERSIONS:
            raise OddError
        n_tensors, n_values = self._number("Q"), self._number("Q")
        if n_tensors > _MAX_TENSORS or n_values > _MAX_VALUES:
            raise OddError
        values: dict[str, Value] = {}
        for i in range(n_values):
            self.what = f"{i} of its {n_values} key-value pairs"
            self.later = (n_values - i - 1) * _LEAST_VALUE + n_tensors * _LEAST_TENSOR
            key = self._text().decode("utf-8", "replace")
            kind = self._number("I")
            start = self.at
            self._skip(kind, 1, 0)
            values[key] = Value(kind, self.content[start : self.at])
        tensors = self._tensors(n_tensors)
        header = Header(values, tensors, 0)
        alignment = header.alignment
        if alignment < 8 or alignment & (alignment - 1):
            raise OddError
        return Header(values, tensors, padded(self.at, alignment))

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
                raise OddError
            ne = tuple(self._number("Q") for _ in range(n_dims))
            info = GgufTensorInfo(name, self._number("I"), ne, self._number("Q"))
            if info.type_id not in TYPES_BY_ID or info.offset > MAX_SIZE or info.n_bytes > MAX_SIZE:
                raise OddError
            out.append(info)
        return out

    def _number(self, format: str) -> int:
        at = self.at
        self._advance(struct.calcsize("<" + format))
        return int(struct.unpack_from("<" + format, self.content, at)[0])

    def _advance(self, n: int) -> None:
        self.at += n
        if self.at > self.end:
            raise self._cut()

    def _text(self) -> bytes:
        n = self._number("Q")
        if n > _MAX_TEXT:
            raise OddError
        start = self.at
        self._advance(n)
        return self.content[start : self.at]

    def _skip(self, kind: int, n: int, depth: int) -> None:
        """Pass over `n` values."""
        if n > _MAX_ITEMS:
            raise OddError
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
                    raise OddError
                at += 8 + size
            self.at = at
            self._advance(0)
        elif kind == ARRAY and depth < _MAX_DEPTH:
            for _ in range(n):
                inner = self._number("I")
                self._skip(inner, self._number("Q"), depth + 1)
        else:
            raise OddError

    def _cut(self) -> CutError:
        """What to say where the file ends: how much is there, and how much that needs at the least."""
        least = self.at + self.later
        more = f", about {self.guess} by those" if self.guess > least else ""
        first = padded(max(2 * least, self.guess + (1 << 20)), 16 << 20)
        return CutError(
            f"{self.path} ends in its header, after {self.end} bytes with {self.what}; it needs more than {least} "
            f"bytes{more}: get the first {first >> 20} MiB (curl -r 0-{first - 1})"
        )


def write_header(
    path: Path, values: Mapping[str, Value], tensors: Iterable[tuple[bytes, int, tuple[int, ...]]]
) -> None:
    """Write a GGUF file of these tensors (name, number of the type, ne) whose data are a hole. Raises OSError."""
    header = Header(values, [], 0)
    table: list[bytes] = []
    offset = 0
    for name, type_id, ne in tensors:
        dims = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        table.append(_text(name) + dims + struct.pack("<IQ", type_id, offset))
        offset += padded(GgufTensorInfo(name, type_id, ne, 0).n_bytes, header.alignment)
        if offset > MAX_SIZE:
            raise OSError(errno.EFBIG, "the model would have more than 64 TiB")
    pairs = [_text(key.encode()) + struct.pack("<I", value.kind) + value.raw for key, value in values.items()]
    content = b"".join([MAGIC, struct.pack("<IQQ", 3, len(table), len(pairs)), *pairs, *table])
    write_hole(path, content, padded(len(content), header.alignment) + offset)


def write_hole(path: Path, content: bytes, size: int) -> None:
    """Write a file of that size: the content, and a hole that takes no room on the disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def value_of(value: object, kind: int | None = None) -> Value:
    """A value of Python as one of the metadata: a text, a truth, a number (u32, f32, or of `kind`), a list of those."""
    match value:
        case str():
            return Value(STRING, _text(value.encode()))
        case bool():
            return Value(BOOL, struct.pack("<?", value))
        case int() | float():
            kind = (U32 if isinstance(value, int) else F32) if kind is None else kind
            return Value(kind, struct.pack("<" + FORMATS[kind], value))
        case list() if value:
            items = [value_of(item, kind) for item in value]
            return Value(ARRAY, struct.pack("<IQ", items[0].kind, len(items)) + b"".join(item.raw for item in items))
        case _:
            raise TypeError(f"{type(value).__name__} is no value of the metadata")


INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes of a header, at most: the format's own limit."""

MAX_CONFIG = 16 << 20
_MAX_EXTENT = 1 << 40
_MAX_DIMS = 8
_SHOWN = 3


class StoredTensor(NamedTuple):
    """A tensor as it is stored: its type by safetensors' name, and its shape, the slowest dimension first."""

    dtype: str
    shape: tuple[int, ...]


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of all files, by name. Raises CaptureError for what is missing, cut or damaged."""
    out: dict[str, StoredTensor] = {}
    for file in _files(folder):
        for name, tensor in _read_header(file):
            if name in out:
                raise CaptureError(f"{file}: there is a tensor {name[:100]!r} in another file, too")
            out[name] = tensor
            if len(out) > _MAX_TENSORS:
                raise CaptureError(f"{folder} has more than {_MAX_TENSORS} tensors")
    return out


def read_json(path: Path, most: int = MAX_CONFIG) -> dict[str, Any]:
    """A JSON object in a file. Raises CaptureError."""
    try:
        if path.stat().st_size > most:
            raise CaptureError(f"{path} has more than {most} bytes")
        return _object(path, path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CaptureError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", value)


def _files(folder: Path) -> list[Path]:
    """The files with the weights, all of which are there. Raises CaptureError."""
    index = folder / INDEX
    if index.is_file():
        names = read_json(index, MAX_HEADER).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise CaptureError(f"{index} has no weight_map of tensors to files")
        files = [folder / Path(name).name for name in sorted(set(names.values()))]
    else:
        files = sorted(folder.glob("model*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        raise CaptureError(
            f"{folder}: of {len(files)} files of safetensors {len(missing)} missing: {named}; the first megabytes of "
            "each are enough"
        )
    if not files:
        raise CaptureError(f"{folder} has no {INDEX} and no model.safetensors")
    return files


def _read_header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of one file. Raises CaptureError."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            if len(start) == 8 and size > MAX_HEADER:
                raise CaptureError(f"{path} is no file of safetensors: its header would have {size} bytes")
            content = file.read(size)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    if len(start) < 8 or len(content) < size:
        needed = 8 + size
        raise CaptureError(
            f"{path} ends in its header, after {len(start) + len(content)} bytes; it needs {needed} bytes "
            f"(curl -r 0-{needed - 1})"
        )
    for name, given in _object(path, content).items():
        match given:
            case _ if name == "__metadata__":
                pass
            case {"dtype": str(dtype), "shape": list(shape)} if len(shape) <= _MAX_DIMS and all(
                type(n) is int and 0 < n < _MAX_EXTENT for n in shape
            ):
                yield name, StoredTensor(dtype, tuple(shape))
            case _:
                raise CaptureError(f"{path}: the tensor {name[:100]!r} has no dtype and shape that safetensors knows")
