"""The bytes of tensors as numpy arrays: what kernels on the host read and write (the `Arrays` of ops/registry.py)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ggmltool.ggml.bounds import check_memory
from ggmltool.ggml.buffer import USAGE_WEIGHTS, bounds_of
from ggmltool.ggml.dtypes import BF16, F32, DType
from ggmltool.ggml.errors import GgmlAssert, GgmlFailed, NotComputable
from ggmltool.ggml.op import SHARED
from ggmltool.ggml.tensor import Tensor, is_contiguous_rows, root_of
from ggmltool.ggml.values.converted import CONVERTED
from ggmltool.ggml.values.extent import check, signed, span
from ggmltool.ggml.values.quants import dequantize, part_of_a_block, quantize

if TYPE_CHECKING:
    from numpy.typing import NDArray


_NUMPY: dict[str, type[np.generic]] = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}

_MOST_ELEMENTS = 1 << 48

_FEW = 1 << 10
"""So many halves are faster cast by numpy."""

_HALF_EXPONENT = np.uint16(0x7C00)

_FLOAT_BITS = np.int32(~0x70000000)
"""All but the copies of the sign between it and the exponent of what was a half."""


@cache
def numpy_type(type: DType) -> np.dtype[Any]:
    """The numpy type of an element; uint8 for a quantized type, whose rows are bytes."""
    if type.quantized:
        return np.dtype(np.uint8)
    if type is BF16:
        import ml_dtypes

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    return np.dtype(_NUMPY[type.name])


def convert(values: Any, type: DType) -> Any:
    """Values in the numpy type of `type`, as C casts and ggml's rounding do: f16 and bf16 to the nearest even.

    Floats become integers by truncation; a double goes to a half through float32, as in ggml.
    """
    target = numpy_type(type)
    values = np.asarray(values)
    if values.dtype == target:
        return values
    with np.errstate(all="ignore"):
        if values.dtype == np.float64 and target.itemsize < 4:
            values = values.astype(np.float32)
        return values.astype(target)


def layout_of(t: Tensor) -> tuple[np.dtype[Any], tuple[int, ...], list[int]]:
    """The numpy type, the shape (`ne` reversed) and the strides of a tensor; of a quantized one in bytes.

    Raises NotComputable if the strides part the blocks of a quantized row.
    """
    ne, nb = t.ne, t.nb
    shape: tuple[int, ...] = (ne[3], ne[2], ne[1], ne[0])
    strides = [0 if n == 1 else b for n, b in zip(reversed(ne), reversed(nb), strict=True)]
    if t.nbytes >> 63:
        strides = [signed(b) for b in strides]
    if t.type.quantized:
        if not is_contiguous_rows(t):
            raise NotComputable(
                "ggml_get_rows",
                f"the rows of {t.name or t.id} ({t.type.name}) are not contiguous",
                explanation="the blocks of a quantized row lie apart, as after a transpose",
            )
        if ne[0] % t.type.block_size:
            raise part_of_a_block(t.type, ne[0])
        shape = (*shape[:3], t.type.row_size(ne[0]))
        strides[3] = 1
    return numpy_type(t.type), shape, strides


def check_extent(
    t: Tensor, dtype: np.dtype[Any], shape: tuple[int, ...], strides: list[int], offset: int, size: int, verb: str
) -> None:
    """Raise GgmlOverrun where the elements of `t`, `offset` bytes into a buffer of `size` bytes, leave the buffer.

    ggml_nbytes says where they end, unless a row's blocks overlap or a stride goes backwards: then it is too small, or
    far too large.
    """
    if 0 <= offset <= size - t.nbytes and (not t.type.quantized or t.nb[0] == t.type.type_size):
        return
    low, end = span(shape, strides, dtype.itemsize)
    layout = f", from {offset} on in {t.type.name} ne {list(t.ne)} with nb {list(t.nb)}"
    check(f"the buffer of {t.name or t.id}", offset + low, offset + end, size, verb, layout)


def empty_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor without elements, as numpy can hold it: it multiplies the extents that are not zero."""
    return shape if prod(n or 1 for n in shape) <= _MOST_ELEMENTS else tuple(min(n, 1) for n in shape)


def unusable(backend: str, t: Tensor) -> GgmlFailed:
    """What to raise where a backend's kernel meets memory that the backend cannot use."""
    return GgmlFailed(
        "ggml_backend_graph_compute",
        f"{backend} cannot read {t.name or t.id}, which lies in {t.buffer.buft.name if t.buffer else 'no buffer'}",
        None,
        "ggml makes no copy of a tensor that is assigned to the same backend, wherever its memory is. That "
        "happens to an in-place op on a tensor of another device (its result stays in that device's memory) "
        "and to a user assignment against the memory",
    )


def from_half(values: Any) -> Any:
    """Halves as float32. Numpy's cast goes element by element; moving bits and one multiplication is much faster.

    The exponent of a half counts from 15, that of a float from 127. Infinities and NaN are left to numpy.
    """
    if values.size < _FEW or ((values.view(np.uint16) & _HALF_EXPONENT) == _HALF_EXPONENT).any():
        return values.astype(np.float32)
    bits = values.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= _FLOAT_BITS
    out = bits.view(np.float32)
    out *= np.float32(2.0 ** (127 - 15))
    return out


class HostArrays:
    """Tensors in buffers of this process as numpy arrays of shape `ne` reversed.

    Of tensors in a GPU's memory it reads copies; `set_bytes` and `copy` write to them. `rules` are what kernels go by.
    """

    xp: Any = np
    on_host = True
    rules = SHARED

    def _start(self, t: Tensor) -> tuple[NDArray[np.uint8], int]:
        if t.buffer is not None and t.buffer.buft.gpu is not None:
            # What can be read here is a copy; writing to it is an error.
            copied = self.get_bytes(t)
            copied.flags.writeable = False
            return copied, 0
        return self._place(t)

    def _place(self, t: Tensor) -> tuple[NDArray[np.uint8], int]:
        # In the ggml of 2024 a view belongs to its own allocator's buffer, and its bytes still lie in its root's.
        buffer = t.buffer if t.view_src is None else root_of(t).buffer or t.buffer
        if buffer is None:
            raise GgmlAssert(
                "ggml_backend_tensor_get",
                'buf != NULL && "tensor buffer not set"',
                f"{t.name or t.id} has no memory yet: allocate its graph or its context first",
            )
        if buffer.mapped:
            start = t.data if t.view_src is None else t.view_src.data
            mapped = buffer.mapped.get(start)
            if mapped is not None:
                return mapped, t.data - start
        return buffer.memory, t.data - buffer.base

    def raw(self, t: Tensor, verb: str = "reads") -> Any:
        """A strided view of the tensor's memory in its own type; quantized types as bytes, [ne3, ne2, ne1, row bytes].

        Raises GgmlOverrun if the strides leave the buffer, NotComputable where they part the blocks of a quantized row.
        `verb` is what is done to it.
        """
        dtype, shape, strides = layout_of(t)
        if 0 in shape:
            return np.empty(empty_shape(shape), dtype=dtype)
        memory, offset = self._start(t)
        check_extent(t, dtype, shape, strides, offset, memory.size, verb)
        return np.ndarray(shape, dtype, memory, offset, strides)  # type: ignore[arg-type,unused-ignore]

    def f32(self, t: Tensor) -> Any:
        """The values as float32: a view of the memory for f32, else a converted or dequantized copy."""
        return self.decode(self.raw(t), t.type)

    def put(self, t: Tensor, values: Any) -> None:
        """Write values (shape `ne` reversed, or broadcastable to it), converted to the tensor's type as ggml does."""
        raw = self.raw(t, "writes")
        if t.type.quantized:
            values = np.broadcast_to(np.asarray(values), (*raw.shape[:3], t.ne[0]))
        raw[...] = self.encode(values, t.type)
        self.written(t)

    def kept(self, t: Tensor, part: Hashable, convert: Callable[[], Any]) -> Any:
        """What `convert` makes of a part of `t`, in float32: of weights it is kept, of other tensors made anew."""
        buffer = t.buffer
        if buffer is None or buffer.usage != USAGE_WEIGHTS or t.type is F32:
            return convert()
        return CONVERTED.get(buffer.memory, (t.data, t.type.name, t.ne, t.nb, part), convert)

    def written(self, t: Tensor) -> None:
        """The memory of `t` has been written to: what was kept of it is no longer true."""
        buffer = t.buffer
        if buffer is not None and buffer.usage == USAGE_WEIGHTS:
            gpu = buffer.buft.gpu
            (CONVERTED if gpu is None else gpu.kept).forget(buffer.memory)

    def decode(self, data: Any, type: DType) -> Any:
        """Elements as `raw` has them, or rows of quantized ones, as float32 (f32 itself is not copied)."""
        if type.quantized:
            return dequantize(data, type)
        return from_half(data) if data.dtype == np.float16 else data.astype(np.float32, copy=False)

    def encode(self, values: Any, type: DType) -> Any:
        """Values as elements of `type`, or as its quantized rows."""
        if type.quantized:
            return quantize(np.asarray(values, dtype=np.float32), type)
        return convert(values, type)

    def get_bytes(self, t: Tensor, offset: int = 0, size: int | None = None) -> NDArray[np.uint8]:
        """ggml_backend_tensor_get: a copy of `size` bytes (default: the rest) from `offset` on, gaps included."""
        memory, start = self.extent("ggml_backend_tensor_get", "read", t, offset, size)
        check_memory(start.stop - start.start, f"a copy of {t.name or t.id}", bounds_of(t), "ggml_backend_tensor_get")
        gpu = t.buffer.buft.gpu if t.buffer is not None else None
        if gpu is None or start.stop == start.start:
            return memory[start].copy()
        out = np.empty(start.stop - start.start, dtype=np.uint8)
        gpu.read(memory, start.start, out)
        return out

    def set_bytes(self, t: Tensor, data: bytes | bytearray | memoryview | NDArray[Any], offset: int = 0) -> None:
        """ggml_backend_tensor_set: write raw bytes at `offset` of the tensor."""
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
        array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory, start = self.extent("ggml_backend_tensor_set", "write", t, offset, array.size)
        gpu = t.buffer.buft.gpu if t.buffer is not None else None
        if gpu is None or not array.size:
            memory[start] = array
        else:
            gpu.write(memory, start.start, array)
        self.written(t)

    def copy(self, src: Tensor, dst: Tensor) -> None:
        """ggml_backend_tensor_copy between two tensors of the same layout: the bytes of `src`, gaps included."""
        if not src.nbytes:
            return
        a, b = src.buffer, dst.buffer
        one, other = (None if buffer is None else buffer.buft.gpu for buffer in (a, b))
        if a is None or b is None or one is None or other is None:
            self.set_bytes(dst, self.get_bytes(src))
            return
        function = "ggml_backend_tensor_copy"
        from_, start = self.extent(function, "read", src)
        to, end = self.extent(function, "write", dst, 0, src.nbytes)
        one.copy(from_, start.start, other, to, end.start, src.nbytes)
        self.written(dst)

    def to_host(self, values: Any) -> Any:
        """The values as an array of numpy."""
        return values

    def from_host(self, values: Any) -> Any:
        """The host's values as an array that kernels take."""
        return np.asarray(values)

    def extent(
        self, function: str, verb: str, t: Tensor, offset: int = 0, size: int | None = None
    ) -> tuple[NDArray[np.uint8], slice]:
        """The memory that `t` lies in, and which bytes of it are those from `offset` on. `verb` is "read" or "write".

        Raises GgmlAssert beyond the tensor, GgmlOverrun beyond its buffer.
        """
        size = t.nbytes - offset if size is None else size
        if size == 0:
            return np.empty(0, dtype=np.uint8), slice(0, 0)
        if offset < 0 or size < 0 or offset + size > t.nbytes:
            raise GgmlAssert(
                function,
                f'offset + size <= ggml_nbytes(tensor) && "tensor {verb} out of bounds"',
                f"bytes {offset} to {offset + size} of {t.name or t.id}, which has {t.nbytes}",
            )
        memory, start = self._place(t)
        low = start + offset
        check(f"the buffer of {t.name or t.id}", low, low + size, memory.size, f"{verb}s")
        return memory, slice(start + offset, start + offset + size)
