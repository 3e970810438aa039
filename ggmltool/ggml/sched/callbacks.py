"""Nodes in the batches that an eval callback asks for (the loop in ggml_backend_sched_compute_splits)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor

EvalCallback = Callable[[Tensor, bool], bool]
"""ggml_backend_sched_eval_callback: asked (True) whether a node is wanted, called (False) once that is computed.

The answer to the call says whether to go on with the split.
"""


def batches(nodes: list[Tensor], callback: EvalCallback) -> Iterator[list[Tensor]]:
    """The nodes of one split (views too) in batches; each is to be computed and waited for before the next is taken.

    A batch ends with the first node that the callback wants, or with the split, also where it wants none of it. Where
    the callback, called with the node it wanted, answers no, the rest of this split is left out.
    """
    start = 0
    while start < len(nodes):
        last = start
        wanted = callback(nodes[last], True)
        while not wanted and last < len(nodes) - 1:
            last += 1
            wanted = callback(nodes[last], True)
        yield nodes[start : last + 1]
        if wanted and not callback(nodes[last], False):
            return
        start = last + 1


USED_EXPERTS = "used_experts"

COPY_CALLBACKS = {USED_EXPERTS: USED_EXPERTS}
"""The callbacks that a scenario can name: llama.cpp's."""


class CopyCallback(Protocol):
    """ggml_backend_sched_copy_callback, with what the program does before it has a graph computed."""

    def start(self) -> None:
        """Hear that a graph is going to be computed."""

    def __call__(self, split: Split, src: Tensor, dst: Tensor) -> bool:
        """Copy a weight, after the backend is done with what the copy held; False leaves it to the scheduler."""
