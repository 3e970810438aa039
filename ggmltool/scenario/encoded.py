"""Values as bytes: of a ggml type, and of a tensor in a GGUF file.

Of a GGUF file only the header is read; the tensors themselves are mapped into memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.bounds import BOUNDS, Bounds, check_memory
from ggmltool.ggml.dtypes import TYPES_BY_ID, DType
from ggmltool.ggml.tensor import MAX_DIMS, Dims, nbytes_of
from ggmltool.ggml.values import extent
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.gguf import MAGIC, GgufDamagedError, GgufHeader, gguf_header

if TYPE_CHECKING:
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
    if magic != MAGIC:
        raise Mistake(f"{quoted(file)} is not a GGUF file")


def read_gguf_tensor(path: Path, name: str) -> GgufTensor:
    """A tensor of a GGUF file by its name. Raises Mistake if there is none, or the file is damaged."""
    tensors = gguf_tensors(path)
    if name not in tensors:
        hint = did_you_mean(name, tensors)
        raise Mistake(f"{quoted(path.name)} has no tensor {quoted(name)}", hint)
    return tensors[name]


def gguf_tensors(path: Path) -> dict[str, GgufTensor]:
    """All tensors of a GGUF file whose types ggml knows, by name. Raises Mistake if the file is damaged."""
    return _gguf_tensors(path, path.stat().st_mtime_ns)


def gguf_texts(path: Path, keys: Iterable[str]) -> dict[str, list[str]]:
    """The metadata of a GGUF file under these keys, where it is text or a list of texts: always a list.

    Raises Mistake if the file is damaged.
    """
    values = _header(path)[0].values
    found = {key: list(values[key].texts()) for key in keys if key in values}
    return {key: texts for key, texts in found.items() if texts}


@lru_cache(maxsize=4)
def _gguf_tensors(path: Path, changed: int) -> dict[str, GgufTensor]:
    """The tensors of a GGUF file by name; `changed` keeps a stale file from being used."""
    header, whole = _header(path)
    out: dict[str, GgufTensor] = {}
    for info in header.tensors:
        name, offset = info.name.decode("utf-8", "replace"), header.size + info.offset
        if name in out:
            raise _damaged(path, f"it has two tensors {quoted(name)}")
        if info.type_id in TYPES_BY_ID:
            a, b, c, d = (*info.ne, *[1] * (MAX_DIMS - len(info.ne)))
            if a % TYPES_BY_ID[info.type_id].block_size:
                raise _damaged(
                    path, f"the rows of {quoted(name)} are not a multiple of {TYPES_BY_ID[info.type_id].block_size}"
                )
            if offset + info.n_bytes > whole:
                raise _damaged(path, "it ends too early")
            out[name] = GgufTensor(path, info.type_id, (a, b, c, d), offset, info.n_bytes)
    return out


def _header(path: Path) -> tuple[GgufHeader, int]:
    """A file's header, and the bytes of the file. Raises Mistake if the file is damaged."""
    import mmap

    size = path.stat().st_size
    if not size:
        raise _damaged(path, "it is empty")
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return gguf_header(content), size
    except GgufDamagedError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, why: object) -> Mistake:
    return Mistake(f"{quoted(path.name)} is a damaged GGUF file: {why}")
