"""The bytes of a tensor without the gaps that its strides leave, row after row."""

from __future__ import annotations

from math import prod

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of


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

    from ggmltool.ggml import extent

    shape = (*reversed((ne[0] // type.block_size, *ne[1:])), type.type_size)
    what = f"a tensor of ne {list(ne)} and nb {list(nb)}"
    return bytes(extent.strided(np, np.frombuffer(content, np.uint8), shape, (*nb[::-1], 1), 0, what).tobytes())
