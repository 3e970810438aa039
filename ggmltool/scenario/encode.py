"""Values to the bytes of a ggml type and back: integers, floats, and quantized types through gguf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggmltool.ggml import extent
from ggmltool.ggml.bounds import BOUNDS, Bounds, check_memory
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, nbytes_of

if TYPE_CHECKING:
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
    from ggmltool.ggml.quants import quantize

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
    from ggmltool.ggml.quants import dequantize

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
