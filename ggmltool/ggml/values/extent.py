"""Where the elements of a tensor lie: the one check between strides and memory.

ggml checks strides nowhere. Here every array that is made from strides and an offset goes through this check first: a
tensor's memory in `memory` and `devices/gpu_arrays`, a part of an array in `strided`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.errors import GgmlOverrun
from ggmltool.ggml.version import SIZE_MAX


def signed(x: int) -> int:
    """A size_t as C adds it to a pointer: from 2^63 on it leads backwards."""
    x &= SIZE_MAX
    return x - (SIZE_MAX + 1) if x > SIZE_MAX >> 1 else x


def span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The first byte and the end of the elements, counted from where element 0 begins; `shape` has no zero."""
    low, end = 0, itemsize
    for n, stride in zip(shape, strides, strict=True):
        way = (n - 1) * stride
        if way < 0:
            low += way
        else:
            end += way
    return low, end


def check(what: str, low: int, end: int, size: int, verb: str = "reads", layout: str = "") -> None:
    """Raise GgmlOverrun where bytes `low` to `end` of what has `size` bytes are not all its own.

    `verb` is "reads" or "writes", `layout` says what led there.
    """
    if low >= 0 and end <= size:
        return
    n, where = (end - size, "beyond") if end > size else (-low, "before")
    silently = "overwrites what is there" if verb == "writes" else "reads whatever is there"
    raise GgmlOverrun(
        "ggml_graph_compute",
        f"ggml {verb} {n} bytes {where} {what}",
        f"bytes {low} to {end} of {size}{layout}: ggml does not check strides and offsets; it {silently}, or crashes",
    )


def strided(
    xp: Any, values: Any, shape: Sequence[int], strides: Sequence[int], offset: int, what: str, verb: str = "writes"
) -> Any:
    """A part of `values`, which lie without gaps: elements of their type, `strides` and `offset` in bytes.

    It is not copied, and may overlap itself. Raises GgmlOverrun if it leaves `what`, the memory of the values.
    """
    itemsize = values.dtype.itemsize
    if 0 in shape:
        return xp.empty(tuple(shape), dtype=values.dtype)
    low, end = span(shape, strides, itemsize)
    check(what, offset + low, offset + end, values.size * itemsize, verb)
    first = values.reshape(-1).view(xp.uint8)[offset : offset + itemsize].view(values.dtype)
    return xp.lib.stride_tricks.as_strided(first, shape=tuple(shape), strides=tuple(strides))
