"""What a scenario puts into a tensor: lists, generated values, files, raw bytes.

`Data.raw` makes the values, as the bytes of the tensor in its own type; numpy is imported only then. `parse_data` in
`read_data` makes a Data from what a scenario says.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.bounds import BOUNDS, Bounds, check_memory
from ggmltool.ggml.buffer import bounds_of
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb
from ggmltool.scenario.data_files import read_npy
from ggmltool.scenario.encode import decode, encode, strided
from ggmltool.scenario.gguf_file import GgufTensor, read_gguf_tensor
from ggmltool.scenario.values import shape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ggml.events import Listener

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
        from ggmltool.ggml.transfer import tensor_set

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

        n = ne[0] * ne[1] * ne[2] * ne[3]
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
