"""The operations of ggml: for each family one file with the constructors' rules beside the kernels.

`load()` registers them all; numpy is imported only when a kernel runs.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

FAMILIES = ("elementwise", "unary", "glu", "reduce", "softmax", "arrange", "upscale", "views", "matmul", "rows", "rope",
            "attention", "im2col", "conv", "windows", "optimize", "custom", "recurrent", "deepseek",
            "composites")  # fmt: skip
"""The modules of this package that declare ops."""


@cache
def load() -> None:
    """Register every constructor and kernel (`registry.CONSTRUCTORS`, `BY_OP`, `COMPOSITES`, `KERNELS`), once."""
    for name in FAMILIES:
        import_module(f"{__name__}.{name}")
