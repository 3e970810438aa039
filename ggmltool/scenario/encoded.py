"""Values as bytes: of a ggml type, and of a tensor in a GGUF file.

Of a GGUF file only the header is read, and of its metadata only the alignment: a vocabulary of a quarter million tokens
is passed over. The tensors themselves are mapped into memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ggmltool.ggml.bounds import BOUNDS, Bounds, check_memory
from ggmltool.ggml.dtypes import TYPES_BY_ID, DType
from ggmltool.ggml.tensor import MAX_DIMS, Dims, nbytes_of
from ggmltool.ggml.values import extent
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted

if TYPE_CHECKING:
    import mmap

    from numpy import uint8
    from numpy.typing import NDArray

_PLAIN = {
    "f32": "<f4", "f16": "<f2", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
}  # fmt: skip
_QUANTIZED = frozenset(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4", "q1_0", "q2_0"))
_UNREADABLE = frozenset(("q8_1", "q8_K"))


def can_decode(type: DType) -> bool:
    """Whether there are values to be had from the bytes of the type."""
    return type.name not in _UNREADABLE


def can_encode(type: DType) -> bool:
    """Whether values can be converted to the type."""
    return type.name in _PLAIN or type.name == "bf16" or type.name in _QUANTIZED


def encode(values: NDArray[Any], type: DType) -> bytes:
    """The bytes of contiguous values; floats go through float32, as a program's data would."""
    import numpy as np

    if type.name in _PLAIN:
        dtype = np.dtype(_PLAIN[type.name])
        with np.errstate(over="ignore", invalid="ignore"):
            if dtype.kind == "f" and dtype.itemsize < 4:
                values = values.astype(np.float32)
            return np.ascontiguousarray(values.astype(dtype)).tobytes()
    from ggmltool.ggml.values.quants import quantize

    with np.errstate(over="ignore", invalid="ignore"):
        floats = np.ascontiguousarray(values.astype(np.float32))
    if type.name == "bf16":
        import ml_dtypes

        return floats.astype(ml_dtypes.bfloat16).tobytes()
    return quantize(floats, type).tobytes()


def decode(raw: bytes, type: DType, ne: Dims) -> NDArray[Any]:
    """The values of contiguous bytes, of shape `ne` reversed."""
    import numpy as np

    if type.name in _PLAIN:
        return np.frombuffer(raw, dtype=_PLAIN[type.name]).reshape(ne[::-1])
    if type.name == "bf16":
        import ml_dtypes

        return np.frombuffer(raw, dtype=ml_dtypes.bfloat16).astype(np.float32).reshape(ne[::-1])
    from ggmltool.ggml.values.quants import dequantize

    rows = np.frombuffer(raw, dtype=np.uint8).reshape(*ne[:0:-1], type.row_size(ne[0]))
    return dequantize(rows, type).reshape(ne[::-1])


def strided(packed: bytes, type: DType, ne: Dims, nb: Dims, bounds: Bounds = BOUNDS) -> bytes:
    """Contiguous bytes, laid out with other strides; what no element covers is zero."""
    import numpy as np

    size = nbytes_of(type, ne, nb)
    check_memory(2 * size, f"data with the strides {list(nb)}", bounds, "ggml_backend_tensor_set")
    out = np.zeros(size, dtype=np.uint8)
    if not out.size:
        return b""
    blocks = (ne[0] // type.block_size, ne[1], ne[2], ne[3])
    shape = (*blocks[::-1], type.type_size)
    part = extent.strided(np, out, shape, (*nb[::-1], 1), 0, f"a tensor of ne {list(ne)} and nb {list(nb)}")
    part[...] = np.frombuffer(packed, dtype=np.uint8).reshape(shape)
    return out.tobytes()


_VERSIONS = (2, 3)
_ALIGNMENT = 32
_UINT32, _STRING, _ARRAY = 4, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of the metadata, by the number of its type."""
_MAX_DEPTH = 8

T = TypeVar("T")


class _DamagedError(Exception):
    """The file is not a GGUF file that can be read; says why."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a GGUF file, `size` bytes from `offset` on; `type_id` is ggml's number of its type."""

    path: Path
    type_id: int
    ne: Dims
    offset: int
    size: int

    def part(self, mapped: NDArray[uint8]) -> NDArray[uint8]:
        """The bytes in a memory map of the file."""
        return mapped[self.offset : self.offset + self.size]

    def raw(self) -> bytes:
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            return stream.read(self.size)

    def values(self) -> NDArray[Any]:
        """The values, of shape `ne` reversed."""
        return decode(self.raw(), TYPES_BY_ID[self.type_id], self.ne)


def map_file(path: Path) -> NDArray[uint8]:
    """The file in memory, a page when it is first looked at: what is written there does not reach the file."""
    import numpy as np

    return np.memmap(path, dtype=np.uint8, mode="c")


def check_gguf_file(path: Path, file: str) -> None:
    """Raise Mistake unless the file starts as GGUF does."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as e:
        raise Mistake(f"{quoted(file)} cannot be read: {e.strerror}") from None
    if magic != b"GGUF":
        raise Mistake(f"{quoted(file)} is not a GGUF file")


def read_gguf_tensor(path: Path, name: str) -> GgufTensor:
    """A tensor of a GGUF file by its name. Raises Mistake if there is none, or the file is damaged."""
    tensors = gguf_tensors(path)
    if name not in tensors:
        hint = did_you_mean(name, tensors)
        raise Mistake(f"{quoted(path.name)} has no tensor {quoted(name)}", hint)
    return tensors[name]


def gguf_tensors(path: Path) -> dict[str, GgufTensor]:
    """All tensors of a GGUF file by name. Raises Mistake if the file is damaged."""
    return _gguf_tensors(path, path.stat().st_mtime_ns)


def gguf_texts(path: Path, keys: Iterable[str]) -> dict[str, list[str]]:
    """The metadata of a GGUF file under these keys, where it is text or a list of texts: always a list.

    Raises Mistake if the file is damaged.
    """
    wanted = frozenset(key.encode() for key in keys)
    return _read(path, lambda header: header.texts(wanted))


@lru_cache(maxsize=4)
def _gguf_tensors(path: Path, changed: int) -> dict[str, GgufTensor]:
    """The tensors of a GGUF file by name; `changed` keeps a stale file from being used."""
    return _read(path, lambda header: header.tensors(path))


def _read(path: Path, what: Callable[[_Header], T]) -> T:
    """What is wanted of a file's header. Raises Mistake if the file is damaged."""
    import mmap

    try:
        if not path.stat().st_size:
            raise _DamagedError("it is empty")
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return what(_Header(content))
    except (struct.error, OverflowError):
        raise Mistake(f"{quoted(path.name)} is a damaged GGUF file: it ends too early") from None
    except _DamagedError as e:
        raise Mistake(f"{quoted(path.name)} is a damaged GGUF file: {e}") from None


class _Header:
    """A walk through the header of a GGUF file, from its magic on. What leaves the file raises struct.error."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.at = 4
        self.alignment = _ALIGNMENT

    def tensors(self, path: Path) -> dict[str, GgufTensor]:
        """All tensors of types that ggml knows, by name."""
        n_tensors, n_values = self._counts()
        for _ in range(n_values):
            key = self._string()
            kind = self._number("<I", 4)
            if key == b"general.alignment" and kind == _UINT32:
                self.alignment = self._number("<I", 4)
            else:
                self._skip(kind, 1, 0)
        if self.alignment == 0 or self.alignment & (self.alignment - 1):
            raise _DamagedError(f"its alignment, {self.alignment}, is not a power of two")
        infos = []
        for _ in range(n_tensors):
            name = self._string().decode("utf-8", "replace")
            n = self._number("<I", 4)
            if n > MAX_DIMS:
                raise _DamagedError(f"{quoted(name)} has {n} dimensions")
            a, b, c, d = (*(self._number("<Q", 8) for _ in range(n)), *[1] * (MAX_DIMS - n))
            infos.append((name, self._number("<I", 4), (a, b, c, d), self._number("<Q", 8)))
        start = -(-self.at // self.alignment) * self.alignment
        out: dict[str, GgufTensor] = {}
        for name, type_id, ne, offset in infos:
            if name in out:
                raise _DamagedError(f"it has two tensors {quoted(name)}")
            if type_id in TYPES_BY_ID:
                out[name] = GgufTensor(path, type_id, ne, start + offset, self._size(name, type_id, ne, start + offset))
        return out

    def texts(self, wanted: frozenset[bytes]) -> dict[str, list[str]]:
        """The wanted values that are text, or lists of it."""
        out: dict[str, list[str]] = {}
        _, n_values = self._counts()
        for _ in range(n_values):
            key, kind = self._string(), self._number("<I", 4)
            n = 1
            if kind == _ARRAY and key in wanted:
                kind, n = self._number("<I", 4), self._number("<Q", 8)
            if kind == _STRING and key in wanted:
                out[key.decode()] = [self._string().decode("utf-8", "replace") for _ in range(n)]
            else:
                self._skip(kind, n, 0)
        return out

    def _counts(self) -> tuple[int, int]:
        """The numbers of tensors and of values. Raises _DamagedError for another version."""
        version = self._number("<I", 4)
        if version not in _VERSIONS:
            raise _DamagedError(f"its version is {version}, not {' or '.join(map(str, _VERSIONS))}")
        return self._number("<Q", 8), self._number("<Q", 8)

    def _size(self, name: str, type_id: int, ne: Dims, offset: int) -> int:
        """The bytes of a tensor, all of which the file has."""
        type = TYPES_BY_ID[type_id]
        if ne[0] % type.block_size:
            raise _DamagedError(f"the rows of {quoted(name)} are not a multiple of {type.block_size}")
        size = type.row_size(ne[0]) * ne[1] * ne[2] * ne[3]
        if offset + size > len(self.content):
            raise struct.error
        return size

    def _number(self, format: str, size: int) -> int:
        (value,) = struct.unpack_from(format, self.content, self.at)
        self.at += size
        return int(value)

    def _advance(self, n: int) -> None:
        self.at += n
        if self.at > len(self.content):
            raise struct.error

    def _string(self) -> bytes:
        n = self._number("<Q", 8)
        start = self.at
        self._advance(n)
        return self.content[start : self.at]

    def _skip(self, kind: int, n: int, depth: int) -> None:
        """Pass over `n` values of the metadata."""
        if kind in _SIZES:
            self._advance(_SIZES[kind] * n)
        elif kind == _STRING:
            content, at, length = self.content, self.at, struct.Struct("<Q").unpack_from
            for _ in range(n):
                at += 8 + length(content, at)[0]
            self.at = at
            self._advance(0)
        elif kind == _ARRAY and depth < _MAX_DEPTH:
            for _ in range(n):
                inner = self._number("<I", 4)
                self._skip(inner, self._number("<Q", 8), depth + 1)
        else:
            raise _DamagedError(f"its metadata has values of an unknown type, {kind}")
