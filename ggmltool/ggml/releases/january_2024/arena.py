"""The context of the scheduler of January 2024: an array of fixed size in the scheduler, for copies and a graph."""

from __future__ import annotations

from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.errors import DebugAssert
from ggmltool.ggml.releases.january_2024.release import MAX_SPLIT_INPUTS, MAX_SPLITS, RELEASE
from ggmltool.ggml.sched.arena import AnyArena
from ggmltool.ggml.tensor import Tensor

CAPACITY = MAX_SPLITS * MAX_SPLIT_INPUTS * RELEASE.tensor_size + RELEASE.cgraph_size
"""sizeof(sched->context_buffer): as many tensors as there can be copies, without their headers, and a bare cgraph."""


class Arena(AnyArena):
    """The scheduler's context, made anew at every split in the same memory; tensors of an earlier split come again."""

    __slots__ = ("_graph",)

    def __init__(self, indices: IndexSpace) -> None:
        super().__init__(CAPACITY, indices, RELEASE)
        self._graph = 0

    @property
    def used(self) -> int:
        return self._next * self.overhead + self._graph

    def clear(self) -> None:
        self._next = 0
        self._graph = 0

    def described(self) -> str:
        return f"{len(self.made())} copies and a graph"

    def new_graph(self, size: int) -> None:
        """ggml_new_graph_custom: the scheduler's own graph of at most `size` nodes."""
        overhead = RELEASE.graph_overhead(size)
        if self.used + overhead > self.size:
            raise self._refusal(overhead, f"the scheduler's own graph of {size} nodes")
        self._graph = overhead

    def check_room(self, src: Tensor) -> None:
        """Raises DebugAssert if a copy of `src` would not fit."""
        if self.used + self.overhead > self.size:
            raise self._refusal(self.overhead, f"a copy of {src.label}")

    def _refusal(self, overhead: int, what: str) -> DebugAssert:
        """A debug build stops at assert(false), a release build writes to the address NULL."""
        return DebugAssert(
            "ggml_new_object",
            "false",
            "not enough space in the context's memory pool (needed "
            f"{self.used + overhead - RELEASE.object_size}, available {self.size}): {what} does not fit into the "
            "scheduler's context, whose size is fixed; fewer copies between backends, or a smaller graph, do",
        ).of("sched_context", self.used + overhead)
