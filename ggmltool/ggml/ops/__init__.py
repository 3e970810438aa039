"""The operations of ggml: for each family one file with the constructors' rules beside the kernels.

Who asks the registry for a constructor gets the families imported that it takes to find it; `load()` registers all of
them. numpy is imported only when a kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

FAMILIES = ("elementwise", "views", "matmul", "rows", "softmax", "unary", "glu", "rope", "arrange", "attention",
            "reduce", "recurrent", "deepseek", "im2col", "conv", "upscale", "windows", "optimize", "custom",
            "composites")  # fmt: skip
"""The modules of this package that declare ops, each all constructors of its ops; those of language models first."""


def families() -> Iterator[None]:
    """Import one family after the other."""
    for name in FAMILIES:
        import_module(f"{__name__}.{name}")
        yield


@cache
def load() -> None:
    """Register every constructor and kernel (`registry.CONSTRUCTORS`, `BY_OP`, `COMPOSITES`, `KERNELS`), once."""
    for _ in families():
        pass
