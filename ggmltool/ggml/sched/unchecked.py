"""What ggml does not check when it computes: memory that was freed, and nodes that a device does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ggmltool.ggml.buffer import AddressSpace, Buffer, Outgrown
from ggmltool.ggml.device import NO
from ggmltool.ggml.errors import GgmlError, UseAfterFree
from ggmltool.ggml.events import Listener, UsedAfterFree
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import Tensor, is_computed, is_contiguous, op_desc

REMEDY = (
    "allocate the graph anew after the reset (`alloc` builds it with new tensors), or reserve the largest graph first, "
    "so that no compute buffer grows, and set the inputs again: another graph may have overwritten them"
)
"""How to keep tensors out of freed memory."""


def freed_buffer(t: Tensor) -> Outgrown | None:
    """Why the buffer that a tensor lies in was freed; None if it was not, or there is none."""
    return None if t.buffer is None else t.buffer.freed


def no_result(t: Tensor, freed: Outgrown) -> UseAfterFree:
    """What to raise in place of the values of a tensor that lies in freed memory, or was computed from it."""
    lies = "lies in freed memory" if freed_buffer(t) else "was computed from freed memory"
    return UseAfterFree(
        "ggml_backend_tensor_get",
        f"{t.label} {lies}: use after free",
        f"step {freed.step} freed the {freed.buft} compute buffer and made one of {freed.new_size} bytes in place of "
        f"{freed.size}, while tensors of an older build still pointed into it; ggml does not check. "
        f"To avoid it, {REMEDY}",
    )


class _Span(NamedTuple):
    """Bytes from address `start` up to `end` whose content rests on memory that was `freed`."""

    start: int
    end: int
    freed: Outgrown


class FreedUse(NamedTuple):
    """A step used memory that was freed: `tensors` lie in it, `results` were computed from it (or read), by label.

    `step` counts from 1, as that of `freed` does.
    """

    step: int
    tensors: tuple[str, ...]
    results: tuple[str, ...]
    freed: Outgrown


class FreedMemory:
    """What was used after it was freed (`uses`, in order), and which bytes of living buffers rest on that.

    `results` are the nodes of the last computation that rest on freed memory, by index.
    """

    def __init__(self, addresses: AddressSpace, events: Listener | None) -> None:
        self.addresses = addresses
        self.events = events
        self.uses: list[FreedUse] = []
        self.results: dict[int, Outgrown] = {}
        self._spans: dict[Buffer, list[_Span]] = {}

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

    def set(self, t: Tensor) -> bool:
        """The program writes all of `t`. True if that goes into freed memory."""
        used = self._used(t, ())
        if not used:
            self.written(t)
        return used

    def get(self, t: Tensor) -> None:
        """The program reads `t`. Raises UseAfterFree if its bytes rest on freed memory."""
        freed = self.freed(t)
        if freed is not None:
            if not self._used(t, (t.label,)):
                self._note((), (t.label,), freed)
            raise no_result(t, freed)

    def _note(self, tensors: Iterable[str], results: Iterable[str], freed: Outgrown) -> None:
        step = self.addresses.step
        if self.uses and (self.uses[-1].step, self.uses[-1].freed) == (step, freed):
            before = self.uses.pop()
            tensors, results = dict.fromkeys((*before.tensors, *tensors)), dict.fromkeys((*before.results, *results))
        self.uses.append(FreedUse(step, tuple(tensors), tuple(results), freed))

    def _used(self, t: Tensor, results: tuple[str, ...]) -> bool:
        freed = freed_buffer(t)
        if freed is None:
            return False
        self._note((t.label,), results, freed)
        if self.events:
            self.events(UsedAfterFree(t.label, "", *freed))
        return True

    def computes(self, splits: Iterable[Split], copy_of: Callable[[Tensor, int], Tensor]) -> None:
        """A scheduler's splits are computed, node by node, after inputs were copied to `copy_of(input, backend)`."""
        self.results = {}
        tensors: dict[Outgrown, dict[str, None]] = {}
        results: dict[Outgrown, dict[str, None]] = {}
        for split in splits:
            for t in split.inputs:
                self.written(copy_of(t, split.backend_id), self.freed(t))
            for n in split.nodes:
                if not is_computed(n):
                    continue
                rests_on = None
                # What computing a node reads, and itself. The destination of a copy is only written.
                read = n.src[:1] if n.op == Op.CPY else n.src
                for t in (*(s for s in read if s is not None), n):
                    rests_on = rests_on or self.freed(t)
                    freed = freed_buffer(t)
                    if freed is not None and t.label not in tensors.setdefault(freed, {}):
                        tensors[freed][t.label] = None
                        if self.events:
                            self.events(UsedAfterFree(t.label, n.label, *freed))
                if rests_on is not None:
                    self.results[n.index] = rests_on
                    results.setdefault(rests_on, {})[n.label] = None
                self.written(n, rests_on)
        for freed in dict.fromkeys((*tensors, *results)):
            self._note(tensors.get(freed, ()), results.get(freed, ()), freed)


def _without(s: _Span, start: int, end: int) -> Iterator[_Span]:
    if s.start < min(s.end, start):
        yield s._replace(end=min(s.end, start))
    if max(s.start, end) < s.end:
        yield s._replace(start=max(s.start, end))


USER = "usr"


def supported(s: AnyScheduler, b: int, nodes: Iterable[Tensor]) -> Iterator[Tensor]:
    """The nodes for backend `b` in turn. Raises GgmlError before the one at which ggml ends."""
    for n in nodes:
        error = _unsupported(s, b, n)
        if error is not None:
            raise error
        yield n


def check_supported(s: AnyScheduler) -> None:
    """Raise GgmlError if ggml ends when it computes the splits, since a backend has no kernel for one of its nodes."""
    causes = s.assigned_causes
    for split in s.splits[: s.n_splits]:
        table = s.backends[split.backend_id].device.table
        doubtful = [n for n in split.nodes if table[n.key] == NO or causes[n.index] == USER]
        for _ in supported(s, split.backend_id, doubtful):
            pass


def _unsupported(s: AnyScheduler, b: int, n: Tensor) -> GgmlError | None:
    device = s.backends[b].device
    assigned = s.assigned_causes[n.index] == USER
    if device.unsupported is None or not (assigned or device.table[n.key] == NO):
        return None
    if not is_computed(n):
        return None
    refusal = device.refusal(n)
    if refusal is None or not (assigned or refusal.lacks):
        return None
    error = device.unsupported.of(n, s.names[b], *refusal)
    if error is not None:
        name, op = s.names[b], op_desc(n)
        able = [other.name for other in s.backends if other.device.supports_op(n)]
        others = f"name a backend that supports it ({', '.join(able)})" if able else "give it to another device"
        why = f"{n.label} ({op}) is on {name}, which does not support it, and the scheduler did not ask; {others}"
        if assigned:
            why = (
                f"{n.label} ({op}) is assigned to {name} by the user, and {name} does not support it: the scheduler "
                f"does not ask (supports_op) where the user has chosen; leave out the assignment, or {others}"
            )
        error.explanation = "\n".join(filter(None, (why, error.explanation)))
    return error
