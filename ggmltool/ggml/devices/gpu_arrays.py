"""The bytes of tensors on a GPU as arrays of cupy: what kernels there read and write (the `Arrays` of ops/registry.py).

Half precision of the other kind, bf16, is a matter of integers here: not every cupy knows the type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from ggmltool.ggml.blocks import can_decode, can_encode, decode_blocks, encode_blocks
from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.memory import check_extent, empty_shape, layout_of, numpy_type, unusable
from ggmltool.ggml.op_rules import OpRules
from ggmltool.ggml.quants import dequantize, quantize
from ggmltool.ggml.tensor import Tensor

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu

_BF16_SHIFT = 16
_BF16_QUIET = 64


class GpuArrays:
    """Tensors in a GPU's buffers as arrays of shape `ne` reversed. What is done to them goes to the current stream."""

    on_host = False

    def __init__(self, gpu: Gpu, backend: str, usable: frozenset[BufferType], rules: OpRules) -> None:
        self.gpu = gpu
        self.xp = gpu.xp
        self.backend = backend
        self.usable = usable
        self.rules = rules

    def raw(self, t: Tensor, verb: str = "reads") -> Any:
        """As HostArrays.raw; bf16 as its bits, uint16.

        Raises NotComputable also where elements do not lie at multiples of their size, which no GPU reads.
        """
        dtype, shape, strides = layout_of(t)
        if t.type is BF16:
            dtype = np.dtype(np.uint16)
        if 0 in shape:
            return self.xp.empty(empty_shape(shape), dtype=dtype)
        buffer = t.buffer
        if buffer is None:
            raise GgmlAssert(
                "ggml_backend_tensor_get",
                'buf != NULL && "tensor buffer not set"',
                f"{t.name or t.id} has no memory yet: allocate its graph or its context first",
            )
        if buffer.buft not in self.usable or buffer.buft.gpu is not self.gpu:
            raise unusable(self.backend, t)
        memory: Any = buffer.memory
        offset = t.data - buffer.base
        check_extent(t, dtype, shape, strides, offset, buffer.size, verb)
        if any(at % dtype.itemsize for at in (offset, *strides)):
            raise NotComputable(
                "ggml_graph_compute",
                f"{t.name or t.id} is not aligned",
                explanation=f"its elements of {dtype.itemsize} bytes lie at offset {offset} with strides "
                f"{list(t.nb)}; a GPU reads them only at multiples of their size",
            )
        return self.xp.ndarray(shape, dtype=dtype, memptr=memory.data + offset, strides=tuple(strides))

    def f32(self, t: Tensor) -> Any:
        """The values as float32: a view of the memory for f32, else a converted or dequantized copy."""
        return self.decode(self.raw(t), t.type)

    def put(self, t: Tensor, values: Any) -> None:
        """Write values (shape `ne` reversed, or broadcastable to it), converted to the tensor's type as ggml does."""
        raw = self.raw(t, "writes")
        if t.type.quantized:
            values = self.xp.broadcast_to(values, (*raw.shape[:3], t.ne[0]))
        raw[...] = self.encode(values, t.type)
        self.written(t)

    def kept(self, t: Tensor, part: Hashable, convert: Callable[[], Any]) -> Any:
        """What `convert` makes of a part of `t`: of weights it is kept on the GPU, of other tensors made anew."""
        buffer = t.buffer
        if buffer is None or buffer.usage != USAGE_WEIGHTS or t.type in (F32, F16):
            return convert()
        return self.gpu.kept.get(buffer.memory, (t.data, t.type.name, t.ne, t.nb, part), convert)

    def written(self, t: Tensor) -> None:
        """The memory of `t` has been written to: what was kept of it is no longer true."""
        buffer = t.buffer
        if buffer is not None and buffer.usage == USAGE_WEIGHTS:
            self.gpu.kept.forget(buffer.memory)

    def decode(self, data: Any, type: DType) -> Any:
        """Elements as `raw` has them, or rows of quantized ones, as float32 (f32 itself is not copied).

        Types without a conversion in array code are converted by the host, for which it waits: weights, once.
        """
        if type.quantized:
            if can_decode(type):
                return decode_blocks(self.xp, data, type)
            return self.from_host(dequantize(self.to_host(data), type))
        if type is BF16:
            return (data.astype("uint32") << _BF16_SHIFT).view("float32")
        return data.astype("float32", copy=False)

    def encode(self, values: Any, type: DType) -> Any:
        """Values as elements of `type`, or as its quantized rows."""
        if type.quantized:
            values = values.astype("float32", copy=False)
            if can_encode(type):
                return encode_blocks(self.xp, values, type)
            return self.from_host(quantize(self.to_host(values), type))
        values = self.xp.asarray(values)
        if type is BF16:
            return self._bf16(values.astype("float32", copy=False))
        target = numpy_type(type)
        if values.dtype == np.float64 and target.itemsize < 4:
            values = values.astype("float32")
        return values.astype(target, copy=False)

    def _bf16(self, values: Any) -> Any:
        """ggml_compute_fp32_to_bf16: to the nearest even, NaN quiet."""
        xp = self.xp
        bits = xp.ascontiguousarray(values).view("uint32")
        rounded = (bits + (0x7FFF + ((bits >> _BF16_SHIFT) & 1))) >> _BF16_SHIFT
        quiet = (bits >> _BF16_SHIFT) | _BF16_QUIET
        return xp.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded).astype("uint16")

    def to_host(self, values: Any) -> Any:
        """The values as an array of numpy; the host waits for them."""
        return self.xp.asnumpy(values)

    def from_host(self, values: Any) -> Any:
        """The host's values as an array of the GPU."""
        return self.xp.asarray(values)
