"""Words for tensors in the explanations of failed assertions."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.tensor import Tensor, n_dims


def show(t: Tensor) -> str:
    """A tensor as a scenario writes it: its name, type and extents, `kq f32[64, 8]`."""
    text = f"{t.type.name}{list(t.ne[: n_dims(t)])}"
    return f"{t.label} {text}".lstrip()


def show_nb(t: Tensor) -> str:
    """`show` with the byte strides."""
    return f"{show(t)} (nb {list(t.nb)})"


def requirer(function: str) -> Callable[..., None]:
    """The assertions of a ggml function, one call each: `require(holds, condition, words, *tensors)`.

    `condition` is ggml's text, `words` say what it means, with a {} for each tensor. Raises GgmlAssert.
    """

    def require(holds: bool, condition: str, words: str, *tensors: Tensor) -> None:
        if not holds:
            raise GgmlAssert(function, condition, words.format(*map(show_nb, tensors)))

    return require
