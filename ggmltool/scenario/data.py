"""What a scenario puts into a tensor: lists, generated values, files, raw bytes.

`Data.raw` makes the values, as the bytes of the tensor in its own type; numpy is imported only then. `parse_data` in
`read_data` makes a Data from what a scenario says.
"""

from __future__ import annotations

import base64
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.bounds import BOUNDS, Bounds, check_memory
from ggmltool.ggml.buffer import bounds_of
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb
from ggmltool.scenario.encoded import GgufTensor, decode, encode, read_gguf_tensor, strided
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.values import shape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ggml.events import Listener

_NPY_KINDS = "biuf"


def inside_folder(file: str, folder: Path | None) -> Path:
    """The file, links resolved. Raises Mistake if it lies outside of the folder or is no regular file."""
    base = (folder if folder is not None else Path.cwd()).resolve()
    try:
        path = (base / file).resolve()
        if not path.is_relative_to(base):
            raise Mistake(f"{quoted(file)} lies outside of the scenario's folder", "put it at or below the scenario")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise Mistake(f"there is no file {quoted(file)}", "paths start at the scenario's folder") from None
    except (OSError, ValueError, RuntimeError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else "this is not a file name"
        raise Mistake(f"{quoted(file)} cannot be read: {reason}") from None
    if not stat.S_ISREG(mode):
        raise Mistake(f"{quoted(file)} is not a regular file")
    return path


def check_npy_file(path: Path, file: str) -> tuple[int, ...]:
    """The shape of the array in an npy file of numbers. Raises Mistake for any other file."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as e:  # the header is read as Python: a tokenizer's and a parser's errors come out, too
        line = quoted(str(e).split("\n", 1)[0])
        raise Mistake(f"{quoted(file)} is not an npy file that can be read: {line}") from None
    if not isinstance(array, np.ndarray):
        raise Mistake(f"{quoted(file)} is an archive, not an npy file")
    if array.dtype.kind not in _NPY_KINDS:
        raise Mistake(f"the array in {quoted(file)} holds {quoted(array.dtype)}, not numbers")
    return tuple(int(n) for n in array.shape)


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an npy file that was checked before."""
    import numpy as np

    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


INTEGER_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
Number = int | float

_PER_ELEMENT = 16
"""Bytes that an element takes on its way: as a double, as a float, and in between."""


class Data(ABC):
    """The content of a tensor, independent of its type and shape."""

    __slots__ = ()

    @abstractmethod
    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        """The values before they are converted to `type`, as an array of shape `ne` reversed."""

    @abstractmethod
    def written(self) -> object:
        """The data as a scenario has it."""

    def raw(self, type: DType, ne: Dims, nb: Dims | None = None, bounds: Bounds = BOUNDS) -> bytes:
        """The tensor's bytes: ggml_nbytes of them, strides included (`nb` None: contiguous); gaps are zero.

        Floating values become float32 first, as ggml_backend_tensor_set would be given them.
        """
        check_memory(_PER_ELEMENT * prod(ne), f"data for {shape_text(type, ne)}", bounds, "ggml_backend_tensor_set")
        packed = encode(self.values(type, ne), type)
        return packed if nb is None or nb == contiguous_nb(type, ne) else strided(packed, type, ne, nb, bounds)

    def write(self, t: Tensor, events: Listener | None = None) -> None:
        """ggml_backend_tensor_set of the whole tensor, within the bounds of its memory."""
        from ggmltool.ggml.values.transfer import tensor_set

        tensor_set(t, self.raw(t.type, t.ne, t.nb, bounds_of(t)), 0, t.nbytes, events)


@dataclass(frozen=True, slots=True)
class ListData(Data):
    """Numbers, ne[0] fastest."""

    numbers: tuple[Number, ...]

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        import numpy as np

        if type.name in INTEGER_BITS:
            return np.array([int(v) for v in self.numbers], dtype=np.int64).reshape(ne[::-1])
        return np.array(self.numbers, dtype=np.float64).reshape(ne[::-1])

    def written(self) -> object:
        return list(self.numbers)


@dataclass(frozen=True, slots=True)
class FillData(Data):
    """The same value everywhere."""

    value: Number

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        import numpy as np

        integer = type.name in INTEGER_BITS
        return np.full(ne[::-1], int(self.value) if integer else self.value, dtype=np.int64 if integer else np.float64)

    def written(self) -> object:
        return {"fill": self.value}


@dataclass(frozen=True, slots=True)
class NormalData(Data):
    """numpy.random.default_rng(seed).normal(mean, std); rounded down for integers."""

    seed: int = 0
    mean: float = 0.0
    std: float = 1.0

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        import numpy as np

        return _floored(np.random.default_rng(self.seed).normal(self.mean, self.std, ne[::-1]), type)

    def written(self) -> object:
        return {"normal": {"seed": self.seed, "mean": self.mean, "std": self.std}}


@dataclass(frozen=True, slots=True)
class UniformData(Data):
    """numpy.random.default_rng(seed).uniform(low, high); rounded down for integers, so `high` itself never comes."""

    seed: int = 0
    low: float = -1.0
    high: float = 1.0

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        import numpy as np

        return _floored(np.random.default_rng(self.seed).uniform(self.low, self.high, ne[::-1]), type)

    def written(self) -> object:
        return {"uniform": {"seed": self.seed, "low": self.low, "high": self.high}}


@dataclass(frozen=True, slots=True)
class ArangeData(Data):
    """start, start + step, start + 2 step, …, ne[0] fastest."""

    start: Number = 0
    step: Number = 1

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        import numpy as np

        n = prod(ne)
        if type.name in INTEGER_BITS:
            start, step = np.int64(self.start), np.int64(self.step)
            return (start + np.arange(n, dtype=np.int64) * step).reshape(ne[::-1])
        with np.errstate(over="ignore", invalid="ignore"):
            return (float(self.start) + np.arange(n, dtype=np.float64) * float(self.step)).reshape(ne[::-1])

    def written(self) -> object:
        return {"arange": {"start": self.start, "step": self.step}}


@dataclass(frozen=True, slots=True)
class NpyData(Data):
    """An npy file with an array of shape `ne` reversed."""

    file: str
    path: Path = field(compare=False)

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        return _floored(read_npy(self.path).reshape(ne[::-1]), type)

    def written(self) -> object:
        return {"npy": self.file}


@dataclass(frozen=True, slots=True)
class GgufData(Data):
    """A tensor of a GGUF file, with the same number of elements."""

    file: str
    tensor: str
    path: Path = field(compare=False)

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        return _floored(read_gguf_tensor(self.path, self.tensor).values().reshape(ne[::-1]), type)

    def as_it_is(self, type: DType, ne: Dims, nb: Dims | None = None) -> GgufTensor | None:
        """The tensor in the file, where its bytes are those that a tensor of this type and layout has."""
        found = read_gguf_tensor(self.path, self.tensor)
        return found if found.type_id == type.id and (nb is None or nb == contiguous_nb(type, ne)) else None

    def raw(self, type: DType, ne: Dims, nb: Dims | None = None, bounds: Bounds = BOUNDS) -> bytes:
        found = self.as_it_is(type, ne, nb)
        return Data.raw(self, type, ne, nb, bounds) if found is None else found.raw()

    def written(self) -> object:
        return {"gguf": self.file, "tensor": self.tensor}


@dataclass(frozen=True, slots=True)
class BytesData(Data):
    """The tensor's own bytes, as many as ggml_nbytes of it laid out without gaps."""

    content: bytes

    def values(self, type: DType, ne: Dims) -> NDArray[Any]:
        return decode(self.content, type, ne)

    def raw(self, type: DType, ne: Dims, nb: Dims | None = None, bounds: Bounds = BOUNDS) -> bytes:
        if nb is None or nb == contiguous_nb(type, ne):
            return self.content
        return strided(self.content, type, ne, nb, bounds)

    def written(self) -> object:
        return {"base64": base64.b64encode(self.content).decode("ascii")}


def _floored(values: NDArray[Any], type: DType) -> NDArray[Any]:
    import numpy as np

    return np.floor(values) if type.name in INTEGER_BITS and values.dtype.kind == "f" else values
