"""Use after free: what a computation reads and writes in buffers that were freed, and which bytes rest on that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggmltool.ggml.buffer import Buffer, Outgrown
from ggmltool.ggml.errors import UseAfterFree
from ggmltool.ggml.events import UsedAfterFree
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor, is_contiguous


REMEDY = (
    "allocate the graph anew after the reset (`alloc` builds it with new tensors), or reserve the largest graph first, "
    "so that no compute buffer grows"
)
"""How to keep tensors out of freed memory."""


def no_result(t: Tensor, freed: Outgrown) -> UseAfterFree:
    """What to raise in place of the values of a tensor that lies in freed memory, or was computed from it."""
    lies = "lies in freed memory" if t.buffer is not None and t.buffer.freed else "was computed from freed memory"
    return UseAfterFree(
        "ggml_backend_tensor_get",
        f"{t.label} {lies}: use after free",
        f"step {freed.step} freed the {freed.buft} compute buffer, which grew from {freed.size} to {freed.new_size} "
        f"bytes, while tensors of an older build still pointed into it; ggml does not check. To avoid it, {REMEDY}",
    )


class _Span(NamedTuple):
    """Bytes from address `start` up to `end` whose content rests on memory that was `freed`."""

    start: int
    end: int
    freed: Outgrown


class FreedMemory:
    """Which bytes of living buffers rest on freed memory, as far as was computed and written.

    `used` are the tensors of the last computation or access that lie in freed memory, each with the node that is
    computed from or into it ("": none); `results` what its nodes rest on, by index, of those that rest on freed memory.
    """

    def __init__(self) -> None:
        self._spans: dict[Buffer, list[_Span]] = {}
        self.used: list[UsedAfterFree] = []
        self.results: dict[int, Outgrown] = {}

    def freed(self, t: Tensor) -> Outgrown | None:
        """The freed memory that the bytes of `t` lie in or rest on; None for what is as ggml has it."""
        b = t.buffer
        if b is None:
            return None
        if b.freed is not None:
            return b.freed
        start, end = t.data, t.data + t.nbytes
        return next((s.freed for s in self._spans.get(b, ()) if s.start < end and start < s.end), None)

    def written(self, t: Tensor, freed: Outgrown | None = None) -> None:
        """All bytes of `t` are new; they rest on `freed`."""
        b = t.buffer
        if b is None or b.freed is not None or not (freed or b in self._spans):
            return
        start, end = t.data, t.data + t.nbytes
        spans = self._spans.pop(b, [])
        # The gaps of a view keep what they held.
        if is_contiguous(t):
            spans = [part for s in spans for part in _without(s, start, end)]
        if freed is not None:
            spans.append(_Span(start, end, freed))
        if spans:
            self._spans[b] = spans

    def accessed(self, t: Tensor) -> UsedAfterFree | None:
        """The program reads or writes `t`: what to tell where that lies in freed memory."""
        self.used = [use for use in (_use(t, ""),) if use]
        return self.used[0] if self.used else None

    def computes(self, s: Scheduler) -> None:
        """The scheduler's splits are computed, node by node. Listeners are told of what is used after it was freed."""
        self.used, self.results = [], {}
        seen: set[int] = set()
        for split in s.splits[: s.n_splits]:
            for t in split.inputs:
                self.written(s.copy_of(t, split.backend_id), self.freed(t))
            for n in split.nodes:
                if n.is_view_op or not n.op or not n.flags & FLAG_COMPUTE:
                    continue
                rests_on = None
                for t in _touched(n):
                    rests_on = rests_on or self.freed(t)
                    use = _use(t, n.label) if id(t) not in seen else None
                    seen.add(id(t))
                    if use is not None:
                        self.used.append(use)
                        if s.events:
                            s.events(use)
                if rests_on is not None:
                    self.results[n.index] = rests_on
                self.written(n, rests_on)


def _touched(n: Tensor) -> Iterator[Tensor]:
    """What computing a node reads, and itself. The destination of a copy is only written."""
    read = n.src[:1] if n.op == Op.CPY else n.src
    yield from (t for t in read if t is not None)
    yield n


def _use(t: Tensor, node: str) -> UsedAfterFree | None:
    freed = t.buffer.freed if t.buffer is not None else None
    return None if freed is None else UsedAfterFree(t.label, node, *freed)


def _without(s: _Span, start: int, end: int) -> Iterator[_Span]:
    if s.start < min(s.end, start):
        yield s._replace(end=min(s.end, start))
    if max(s.start, end) < s.end:
        yield s._replace(start=max(s.start, end))
