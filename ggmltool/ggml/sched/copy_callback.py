"""A program's own way to copy weights in host memory to the backend of a split."""

from __future__ import annotations

from typing import Protocol

from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor

USED_EXPERTS = "used_experts"

COPY_CALLBACKS = {USED_EXPERTS: USED_EXPERTS}
"""The callbacks that a scenario can name: llama.cpp's."""


class CopyCallback(Protocol):
    """ggml_backend_sched_copy_callback, with what the program does before it has a graph computed."""

    def start(self) -> None:
        """Hear that a graph is going to be computed."""

    def __call__(self, split: Split, src: Tensor, dst: Tensor) -> bool:
        """Copy a weight, after the backend is done with what the copy held; False leaves it to the scheduler."""
