"""Words for tensors in the explanations of failed assertions."""

from __future__ import annotations

from ggmltool.ggml.tensor import Tensor, n_dims


def show(t: Tensor) -> str:
    """A tensor as a scenario writes it: its name, type and extents, `kq f32[64, 8]`."""
    text = f"{t.type.name}{list(t.ne[: n_dims(t)])}"
    return f"{t.label} {text}".lstrip()


def show_nb(t: Tensor) -> str:
    """`show` with the byte strides."""
    return f"{show(t)} (nb {list(t.nb)})"
