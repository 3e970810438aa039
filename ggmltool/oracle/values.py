"""Values of tensors in the real library's memory, as numpy arrays."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.oracle.state import read_tensor
from ggmltool.oracle.structs import TypeTraits

if TYPE_CHECKING:
    import numpy as np

    from ggmltool.oracle.lib import Lib

_PLAIN = {"f32": "f4", "f16": "f2", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}

_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def read_values(lib: Lib, address: int) -> np.ndarray[Any, Any]:
    """The tensor's values: 4-d, shape is ne reversed; float32 for floating and quantized types, else the integers.

    Views are read through their strides.
    """
    import numpy as np

    t = read_tensor(address)
    dtype = TYPES_BY_ID[t.type]
    ne, nb = t.ne, t.nb
    if 0 in ne:
        lib.ggml_backend_tensor_get(address, None, 0, 0)
        return np.zeros(ne[::-1], dtype=np.float32)
    raw = lib.get(address)
    if dtype.name in _PLAIN:
        view = np.ndarray(ne[::-1], dtype="<" + _PLAIN[dtype.name], buffer=raw, strides=nb[::-1])
        return view.astype(np.float32) if view.dtype.kind == "f" else view.copy()
    if dtype.name == "bf16":
        halves = np.ndarray(ne[::-1], dtype="<u2", buffer=raw, strides=nb[::-1])
        return (halves.astype("<u4") << 16).view(np.float32)
    row_size = dtype.row_size(ne[0])
    rows = np.ndarray((*ne[:0:-1], row_size), dtype=np.uint8, buffer=raw, strides=(*nb[:0:-1], 1))
    packed = np.ascontiguousarray(rows)
    out = np.empty(ne[::-1], dtype=np.float32)
    traits = TypeTraits.from_address(lib.ggml_get_type_traits(t.type))
    if not traits.to_float:
        raise ValueError(f"ggml cannot turn {dtype.name} into floats")
    _TO_FLOAT(traits.to_float)(packed.ctypes.data, out.ctypes.data, out.size)
    return out
