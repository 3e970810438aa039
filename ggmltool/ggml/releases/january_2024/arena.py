"""The context of the scheduler of January 2024: an array of fixed size in the scheduler, for copies and a graph."""

from __future__ import annotations

from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.debug_assert import DebugAssert
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.sched.arena import Arena
from ggmltool.ggml.tensor import Tensor

_RELEASE = RELEASES["2024-01"]
CAPACITY = (_RELEASE.max_splits or 0) * _RELEASE.max_split_inputs * _RELEASE.tensor_size + _RELEASE.cgraph_size
"""sizeof(sched->context_buffer): as many tensors as there can be copies, without their headers, and a bare cgraph."""


class MeasuredArena(Arena):
    """The scheduler's context, made anew at every split in the same memory; tensors of an earlier split come again."""

    __slots__ = ("_graph",)

    def __init__(self, indices: IndexSpace) -> None:
        self.size = CAPACITY
        self.overhead = _RELEASE.tensor_overhead()
        self.capacity = CAPACITY // self.overhead
        self.indices = indices
        self.slots: list[Tensor] = []
        self._next = 0
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
        overhead = _RELEASE.graph_overhead(size)
        if self.used + overhead > self.size:
            raise self._refusal(overhead, f"the scheduler's own graph of {size} nodes")
        self._graph = overhead

    def _slot(self, src: Tensor) -> tuple[Tensor | None, int]:
        if self.used + self.overhead > self.size:
            raise self._refusal(self.overhead, f"a copy of {src.label}")
        self._next += 1
        if self._next <= len(self.slots):
            t = self.slots[self._next - 1]
            return t, t.index
        return None, self.indices.take()

    def _refusal(self, overhead: int, what: str) -> DebugAssert:
        """A debug build stops at assert(false), a release build writes to the address NULL."""
        return DebugAssert(
            "ggml_new_object",
            "false",
            "not enough space in the context's memory pool (needed "
            f"{self.used + overhead - _RELEASE.object_size}, available {self.size}): {what} does not fit into the "
            "scheduler's context, whose size is fixed; fewer copies between backends, or a smaller graph, do",
        ).of("sched_context", self.used + overhead)
