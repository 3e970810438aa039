"""Values of tensors on the way to files: kept on disk as they come, each without gaps and in its own type."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping
from math import prod
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def packed_size(type: DType, ne: Dims) -> int:
    """Bytes of a tensor without gaps."""
    return type.row_size(ne[0]) * prod(ne[1:])


def packed(content: bytes, type: DType, ne: Dims, nb: Dims) -> bytes:
    """The elements in ggml's order, of the ggml_nbytes bytes that a tensor of these strides has.

    Raises ValueError for strides that lead out of them.
    """
    if len(content) != nbytes_of(type, ne, nb):
        raise ValueError(f"{len(content)} bytes are not a tensor of ne {list(ne)} and nb {list(nb)}")
    if nb == contiguous_nb(type, ne) or not content:
        return content
    import numpy as np

    from ggmltool.ggml.values import extent

    shape = (*reversed((ne[0] // type.block_size, *ne[1:])), type.type_size)
    what = f"a tensor of ne {list(ne)} and nb {list(nb)}"
    return bytes(extent.strided(np, np.frombuffer(content, np.uint8), shape, (*nb[::-1], 1), 0, what).tobytes())


ALIGNMENT = 32
_PIECE = 1 << 24
_GGUF = struct.Struct("<4sIQQ")


class Kept(NamedTuple):
    """A tensor's values in the store: `size` bytes at `offset`."""

    type: DType
    ne: Dims
    offset: int
    size: int


class ValueStore:
    """A temporary file with the values of tensors, by id; a context manager that ends with the file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is there as long as the store is
        self._kept: dict[str, Kept] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def kept(self) -> Mapping[str, Kept]:
        """What is there, in the order in which it came."""
        return self._kept

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return sum(k.size for k in self._kept.values())

    def keep(self, id: str, type: DType, ne: Dims, pieces: Iterable[bytes]) -> None:
        """Take a tensor's values, without gaps, piece by piece. Raises ValueError if these are not all of them."""
        offset = self._file.seek(0, 2)
        size = sum(self._file.write(piece) for piece in pieces)
        if size != packed_size(type, ne):
            raise ValueError(f"{size} bytes are not the values of {id}")
        self._kept[id] = Kept(type, ne, offset, size)

    def raw(self, id: str) -> bytes:
        """The bytes of a tensor."""
        kept = self._kept[id]
        self._file.seek(kept.offset)
        return self._file.read(kept.size)

    def values(self, id: str) -> NDArray[Any]:
        """The values of a tensor, of shape `ne` reversed: floats and quantized types as float32, integers as they are.

        Raises KeyError for a type that cannot be read.
        """
        import numpy as np

        from ggmltool.scenario.encoded import can_decode, decode

        kept = self._kept[id]
        if not can_decode(kept.type):
            raise KeyError(id)
        values = decode(self.raw(id), kept.type, kept.ne)
        return values.astype(np.float32, copy=False) if values.dtype.kind == "f" else values

    def write_gguf(self, write: Callable[[bytes], object]) -> None:
        """All of it as a GGUF file without metadata, every tensor in its own type."""
        infos, at = [], 0
        for id, kept in self._kept.items():
            name = id.encode("utf-8", "replace")
            infos.append(
                struct.pack("<Q", len(name)) + name + struct.pack("<I4QIQ", len(kept.ne), *kept.ne, kept.type.id, at)
            )
            at += _padded(kept.size)
        head = _GGUF.pack(b"GGUF", 3, len(infos), 0) + b"".join(infos)
        write(head + bytes(_padded(len(head)) - len(head)))
        for kept in self._kept.values():
            self._file.seek(kept.offset)
            left = kept.size
            while left:
                piece = self._file.read(min(left, _PIECE))
                write(piece)
                left -= len(piece)
            write(bytes(_padded(kept.size) - kept.size))


def _padded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
