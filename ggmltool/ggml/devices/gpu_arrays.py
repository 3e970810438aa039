"""The bytes of tensors on a GPU as arrays of cupy: what kernels there read and write (the `Arrays` of ops/registry.py).

Quantized blocks are read as integers, and rows of them made of values. Half precision of the other kind, bf16, is a
matter of integers here: not every cupy knows the type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.dtypes import BF16, F16, F32, DType
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.op import OpRules
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import check_extent, empty_shape, layout_of, numpy_type, unusable
from ggmltool.ggml.values.quants import dequantize, quantize

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu

Convert = Callable[[Any, Any], Any]
"""(array library, blocks) to values, or (array library, values) to blocks."""

_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""kvalues_iq4nl."""


def can_decode(type: DType) -> bool:
    """Whether `decode_blocks` knows the type."""
    return type.name in _DECODE


def can_encode(type: DType) -> bool:
    """Whether `encode_blocks` knows the type."""
    return type.name in _ENCODE


def decode_blocks(xp: Any, rows: Any, type: DType) -> Any:
    """The values of quantized rows: uint8[..., row bytes] to float32[..., elements]."""
    n = rows.shape[-1] // type.type_size * type.block_size
    if not rows.size:
        return xp.empty((*rows.shape[:-1], n), dtype="float32")
    values = _DECODE[type.name](xp, rows.reshape(-1, type.type_size))
    return values.reshape(*rows.shape[:-1], n)


def encode_blocks(xp: Any, values: Any, type: DType) -> Any:
    """The bytes of quantized rows: float32[..., elements] to uint8[..., row bytes]."""
    n = values.shape[-1] // type.block_size * type.type_size
    if not values.size:
        return xp.empty((*values.shape[:-1], n), dtype="uint8")
    blocks = _ENCODE[type.name](xp, values.reshape(-1, type.block_size))
    return blocks.reshape(*values.shape[:-1], n)


def _half(xp: Any, blocks: Any, at: int) -> Any:
    """The half-precision number at byte `at` of each block, float32[blocks, 1]."""
    return xp.ascontiguousarray(blocks[:, at : at + 2]).view("float16").astype("float32")


def _parts(xp: Any, codes: Any, shifts: Sequence[int], mask: int) -> Any:
    """Several numbers of each byte: uint8[blocks, n] to uint8[blocks, shifts, n]."""
    return xp.stack([(codes >> shift) & mask for shift in shifts], axis=1)


def _nibbles(xp: Any, codes: Any, run: int) -> Any:
    """Numbers of 4 bits, uint8[blocks, elements]: of each `run` bytes first all low halves, then all high ones."""
    n = len(codes)
    groups = codes.reshape(-1, run)
    return _parts(xp, groups, (0, 4), 15).reshape(n, -1)


def _bits(xp: Any, codes: Any) -> Any:
    """The bits of each byte, the lowest first: uint8[blocks, n] to uint8[blocks, 8 n]."""
    return xp.stack([(codes >> i) & 1 for i in range(8)], axis=2).reshape(len(codes), -1)


def _float(codes: Any) -> Any:
    return codes.astype("float32")


def _q4_0(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * (_float(_nibbles(xp, b[:, 2:], 16)) - 8)


def _q4_1(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * _float(_nibbles(xp, b[:, 4:], 16)) + _half(xp, b, 2)


def _five_bits(xp: Any, b: Any, at: int) -> Any:
    """32 numbers of 5 bits: the high bits from byte `at` on, then the low halves."""
    return _float(_nibbles(xp, b[:, at + 4 :], 16) | (_bits(xp, b[:, at : at + 4]) << 4))


def _q5_0(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * (_five_bits(xp, b, 2) - 16)


def _q5_1(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * _five_bits(xp, b, 4) + _half(xp, b, 2)


def _q8_0(xp: Any, b: Any) -> Any:
    return _float(xp.ascontiguousarray(b[:, 2:]).view("int8")) * _half(xp, b, 0)


def _q1_0(xp: Any, b: Any) -> Any:
    return (2 * _float(_bits(xp, b[:, 2:])) - 1) * _half(xp, b, 0)


def _q2_0(xp: Any, b: Any) -> Any:
    codes = xp.stack([(b[:, 2:] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    return (_float(codes).reshape(len(b), -1) - 1) * _half(xp, b, 0)


def _q2_k(xp: Any, b: Any) -> Any:
    scales = b[:, :16]
    d = (_half(xp, b, 80) * _float(scales & 15))[:, :, None]
    m = (_half(xp, b, 82) * _float(scales >> 4))[:, :, None]
    codes = _parts(xp, b[:, 16:80].reshape(-1, 32), (0, 2, 4, 6), 3)
    return (d * _float(codes).reshape(len(b), 16, 16) - m).reshape(len(b), -1)


def _q3_k(xp: Any, b: Any) -> Any:
    n = len(b)
    low = _parts(xp, b[:, 96:104], (0, 4), 15).reshape(n, 16)
    high = _parts(xp, b[:, 104:108], (0, 2, 4, 6), 3).reshape(n, 16)
    d = (_half(xp, b, 108) * (_float(low | (high << 4)) - 32))[:, :, None]
    codes = _float(_parts(xp, b[:, 32:96].reshape(-1, 32), (0, 2, 4, 6), 3)).reshape(n, 16, 16)
    # The offset is taken off where the bit is not set.
    mask = _float(_parts(xp, b[:, :32], range(8), 1)).reshape(n, 16, 16)
    return (d * (codes - (1 - mask) * 4)).reshape(n, -1)


def _scales_and_mins(xp: Any, b: Any) -> tuple[Any, Any]:
    """get_scale_min_k4: d times the 8 scales and dmin times the 8 minima of q4_K and q5_K, float32[blocks, 8, 1]."""
    scales, mins, both = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    sc = xp.concatenate((scales & 63, (both & 15) | ((scales >> 2) & 48)), axis=1)
    m = xp.concatenate((mins & 63, (both >> 4) | ((mins >> 2) & 48)), axis=1)
    return (_half(xp, b, 0) * _float(sc))[:, :, None], (_half(xp, b, 2) * _float(m))[:, :, None]


def _q4_k(xp: Any, b: Any) -> Any:
    d, m = _scales_and_mins(xp, b)
    return (d * _float(_nibbles(xp, b[:, 16:], 32)).reshape(len(b), 8, 32) - m).reshape(len(b), -1)


def _q5_k(xp: Any, b: Any) -> Any:
    d, m = _scales_and_mins(xp, b)
    low = _nibbles(xp, b[:, 48:], 32).reshape(len(b), 8, 32)
    high = _parts(xp, b[:, 16:48], range(8), 1)
    return (d * _float(low | (high << 4)) - m).reshape(len(b), -1)


def _q6_k(xp: Any, b: Any) -> Any:
    n = len(b)
    scales = _float(xp.ascontiguousarray(b[:, 192:208]).view("int8"))
    low = _nibbles(xp, b[:, :128], 64)
    high = _parts(xp, b[:, 128:192].reshape(-1, 32), (0, 2, 4, 6), 3).reshape(n, -1)
    codes = (_float(low | (high << 4)) - 32).reshape(n, 16, 16)
    return ((_half(xp, b, 208) * scales)[:, :, None] * codes).reshape(n, -1)


def _iq4_values(xp: Any, codes: Any) -> Any:
    """kvalues_iq4nl of each code: the sum of the steps up to it, since no table need lie on the device for that."""
    values = xp.full(codes.shape, _IQ4_VALUES[0], dtype="float32")
    for i in range(1, len(_IQ4_VALUES)):
        values += _float(codes >= i) * (_IQ4_VALUES[i] - _IQ4_VALUES[i - 1])
    return values


def _iq4_nl(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * _iq4_values(xp, _nibbles(xp, b[:, 2:], 16))


def _iq4_xs(xp: Any, b: Any) -> Any:
    n = len(b)
    low = xp.stack([(b[:, 4:8] >> shift) & 15 for shift in (0, 4)], axis=2).reshape(n, 8)
    high = xp.stack([(b[:, 2:4] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(n, 8)
    d = (_half(xp, b, 0) * (_float(low | (high << 4)) - 32))[:, :, None]
    return (d * _iq4_values(xp, _nibbles(xp, b[:, 8:], 16)).reshape(n, 8, 32)).reshape(n, -1)


def _fp4_values(xp: Any, codes: Any) -> Any:
    """kvalues_mxfp4: twice the numbers with 1 bit of sign, 2 of exponent and 1 of mantissa."""
    size = codes & 7
    large = (4 + 2 * (size & 1)) << xp.maximum((size >> 1).astype("int8") - 2, 0)
    values = _float(xp.where(size < 4, size, large))
    return xp.where(codes >= 8, -values, values) + 0


def _mxfp4(xp: Any, b: Any) -> Any:
    e = b[:, :1].astype("uint32")
    # ggml_e8m0_to_fp32_half: the two smallest are no normal numbers.
    bits = xp.where(e < 2, 0x00200000 << xp.minimum(e, 1), (xp.maximum(e, 1) - 1) << 23).astype("uint32")
    return bits.view("float32") * _fp4_values(xp, _nibbles(xp, b[:, 1:], 16))


def _nvfp4(xp: Any, b: Any) -> Any:
    e = b[:, :4].astype("int32")
    exponent, mantissa = (e >> 3) & 15, _float(e & 7)
    large = (1 + mantissa / 8) * xp.exp2(_float(exponent) - 7)
    scale = xp.where(exponent == 0, mantissa * 2.0**-9, large) / 2
    scale = xp.where(e == 0x7F, xp.float32(0), scale).astype("float32")
    values = _fp4_values(xp, _nibbles(xp, b[:, 4:], 8)).reshape(len(b), 4, 16)
    return (scale[:, :, None] * values).reshape(len(b), -1)


_DECODE: dict[str, Convert] = {
    "q1_0": _q1_0,
    "q2_0": _q2_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "q2_K": _q2_k,
    "q3_K": _q3_k,
    "q4_K": _q4_k,
    "q5_K": _q5_k,
    "q6_K": _q6_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
}


def _bytes(xp: Any, half: Any) -> Any:
    """float32[blocks, 1] as the bytes of its half-precision numbers."""
    return half.astype("float16").view("uint8")


def _inverse(xp: Any, d: Any) -> Any:
    return xp.where(d == 0, 0, 1 / d).astype("float32")


def _low_halves(xp: Any, codes: Any) -> Any:
    """32 numbers, their lowest 4 bits: those of the first 16 in the low halves of the bytes."""
    return (codes[:, :16] & 15) | (codes[:, 16:] << 4)


def _high_bits(xp: Any, codes: Any) -> Any:
    """The fifth bits of 32 numbers in 4 bytes, the first in the lowest bit."""
    bits = (codes >> 4).reshape(-1, 4, 8)
    out = bits[:, :, 0]
    for i in range(1, 8):
        out = out | (bits[:, :, i] << i)
    return out


def _by_largest(xp: Any, v: Any, middle: int) -> tuple[Any, Any]:
    """The scale, so that the value of the largest size becomes 0, and the codes up to 2 * middle - 1."""
    first = xp.abs(v).argmax(axis=1)[:, None]
    d = v[xp.arange(len(v))[:, None], first] / xp.float32(-middle)
    codes = xp.trunc(v * _inverse(xp, d) + xp.float32(middle + 0.5))
    return d, xp.clip(codes, 0, 2 * middle - 1).astype("uint8")


def _by_range(xp: Any, v: Any, steps: int) -> tuple[Any, Any, Any]:
    """The scale and the minimum, so that values lie from 0 to `steps`, and the codes."""
    low = v.min(axis=1, keepdims=True)
    d = (v.max(axis=1, keepdims=True) - low) / xp.float32(steps)
    codes = xp.trunc((v - low) * _inverse(xp, d) + xp.float32(0.5))
    return d, low, xp.clip(codes, 0, steps).astype("uint8")


def _to_q4_0(xp: Any, v: Any) -> Any:
    d, codes = _by_largest(xp, v, 8)
    return xp.concatenate((_bytes(xp, d), _low_halves(xp, codes)), axis=1)


def _to_q4_1(xp: Any, v: Any) -> Any:
    d, m, codes = _by_range(xp, v, 15)
    return xp.concatenate((_bytes(xp, d), _bytes(xp, m), _low_halves(xp, codes)), axis=1)


def _to_q5_0(xp: Any, v: Any) -> Any:
    d, codes = _by_largest(xp, v, 16)
    return xp.concatenate((_bytes(xp, d), _high_bits(xp, codes), _low_halves(xp, codes)), axis=1)


def _to_q5_1(xp: Any, v: Any) -> Any:
    d, m, codes = _by_range(xp, v, 31)
    return xp.concatenate((_bytes(xp, d), _bytes(xp, m), _high_bits(xp, codes), _low_halves(xp, codes)), axis=1)


def _to_q8_0(xp: Any, v: Any) -> Any:
    d = xp.abs(v).max(axis=1, keepdims=True) / xp.float32(127)
    scaled = v * _inverse(xp, d)
    whole = xp.trunc(scaled)
    codes = whole + xp.copysign(_float(xp.abs(scaled - whole) >= 0.5), scaled)
    return xp.concatenate((_bytes(xp, d), codes.astype("int8").view("uint8")), axis=1)


_ENCODE: dict[str, Convert] = {
    "q4_0": _to_q4_0,
    "q4_1": _to_q4_1,
    "q5_0": _to_q5_0,
    "q5_1": _to_q5_1,
    "q8_0": _to_q8_0,
}


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
