"""Random tensors for property tests."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb


@st.composite
def contiguous_tensors(draw: st.DrawFn, types: Sequence[str] = tuple(TYPES)) -> Tensor:
    """New tensors: whole blocks in a row, up to four dimensions."""
    type = TYPES[draw(st.sampled_from(types))]
    ne0 = draw(st.integers(1, 5)) * type.block_size
    rest = draw(st.tuples(*[st.integers(1, 5)] * 3))
    return Tensor(type, (ne0, *rest))


@st.composite
def strided_tensors(
    draw: st.DrawFn, types: Sequence[str] = tuple(TYPES), extents: Sequence[int] = (0, 1, 1, 2, 3, 4)
) -> Tensor:
    """Tensors as views have them: permuted, with gaps, with odd strides, some empty."""
    type = TYPES[draw(st.sampled_from(types))]
    ne: Dims = (
        draw(st.sampled_from(extents)) * draw(st.sampled_from((1, type.block_size))),
        *draw(st.tuples(*[st.sampled_from(extents)] * 3)),
    )
    nb = list(contiguous_nb(type, ne))
    match draw(st.sampled_from(("plain", "gaps", "permuted", "odd"))):
        case "gaps":
            gap = draw(st.integers(1, 4)) * type.type_size
            nb[1] += gap
            nb[2] = nb[1] * ne[1]
            nb[3] = nb[2] * ne[2]
        case "permuted":
            order = draw(st.permutations(range(4)))
            ne = tuple(ne[i] for i in order)  # type: ignore[assignment]
            nb = [nb[i] for i in order]
        case "odd":
            at = draw(st.integers(0, 3))
            nb[at] += type.type_size * draw(st.integers(0, 3))
    return Tensor(type, ne, (nb[0], nb[1], nb[2], nb[3]))
