"""Passes 1 to 3 of the scheduler of January 2024: a backend, which is to say an allocator, for every tensor.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that touched it last, also where the rule had no backend to give). Nobody is asked whether a backend
can run an op. View ops are invisible to pass 2, and the sources of a node end at the first empty slot.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.events import Assigned, PassedOver
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024.state import SchedulerState
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Facts, Sweep, Why

SWEEPS = tuple(Sweep(down, skips_last) for skips_last in (True, False) for down in (False, True))
"""The sweeps of pass 2."""


def allocr_from_buffer(s: SchedulerState, t: Tensor, buffer: Buffer | None) -> int:
    """sched_allocr_from_buffer: the allocator whose own buffer it is, else the first backend that can use it.

    -1 without a buffer. Raises LineAssert where no backend can use the memory of `t`.
    """
    if buffer is None:
        return -1
    for b, tallocr in enumerate(s.tallocs):
        if tallocr.buffer is buffer:
            return b
    for b, usable in enumerate(s.usable_bufts):
        if buffer.buft in usable:
            return b
    raise LineAssert(
        "sched_allocr_from_buffer",
        "ggml-backend.c",
        851,
        'false && "tensor buffer type not supported by any backend"',
        f"{t.label} is in {buffer.buft.name}, which none of {', '.join(s.names)} can use; add the backend it belongs "
        "to, or place the tensor elsewhere",
    )


def assign_from_buffers(s: SchedulerState, graph: CGraph) -> None:
    """Pass 1: tensors that have memory, views of such, and ops with weights; the user's choices stay.

    A node that the user assigned is passed over, and so are its sources that are neither leafs nor nodes before it.
    """
    ids = s.ids
    for t in graph.leafs:
        if ids[t.index] == -1:
            ids[t.index] = _allocr_from_cur(s, t)
    for n in graph.nodes:
        if ids[n.index] != -1:
            continue
        ids[n.index] = _allocr_from_cur(s, n)
        for src in n.src:
            if src is None:
                break
            if ids[src.index] == -1:
                ids[src.index] = _allocr_from_cur(s, src)


def _allocr_from_cur(s: SchedulerState, t: Tensor) -> int:
    """sched_allocr_from_cur."""
    b = allocr_from_buffer(s, t, t.buffer)
    if b != -1:
        return _decided(s, t, b, "1.dst", Why.MEMORY, t.buffer, t)
    if s.events:
        s.events(PassedOver(t.label, 1, "1.dst", Why.NO_MEMORY))
    root = t.view_src
    if root is not None:
        b = allocr_from_buffer(s, t, root.buffer)
        if b != -1:
            return _decided(s, t, b, "1.vsrc", Why.MEMORY, root.buffer, root)
        if s.events:
            s.events(PassedOver(t.label, 1, "1.vsrc", Why.NO_MEMORY, facts=Facts(tensor=root.label)))
    for i, src in enumerate(t.src):
        if src is None:
            break
        if src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            b = allocr_from_buffer(s, src, src.buffer)
            return _decided(s, t, b, f"1.wgt{i}", Why.WEIGHT, src.buffer, src)
    if s.events and t.op:
        s.events(PassedOver(t.label, 1, "1.wgt", Why.NO_WEIGHT))
    return -1


def _decided(s: SchedulerState, t: Tensor, b: int, cause: str, why: Why, buffer: Buffer | None, by: Tensor) -> int:
    s.causes[t.index] = cause
    if s.events and buffer is not None:
        facts = Facts(buft=None if s.tallocs[b].buffer is buffer else buffer.buft.name)
        s.events(Assigned(t.label, s.names[b], 1, cause, why, by.label, facts))
    return b


def expand(s: SchedulerState, graph: CGraph) -> None:
    """Pass 2: neighbours take the backend of assigned nodes; first those of GPUs, up and down, then all.

    The last backend does not spread in 2.1 and 2.2, and ends a spread.
    """
    real = [n for n in graph.nodes if not n.is_view_op]
    last = len(s.names) - 1
    for number, sweep in enumerate(SWEEPS, 1):
        _sweep(s, real if sweep.down else real[::-1], last if sweep.skips_last else -2, f"2.{number}", sweep)


def _sweep(s: SchedulerState, nodes: list[Tensor], skipped: int, cause: str, sweep: Sweep) -> None:
    ids, causes, events = s.ids, s.causes, s.events
    cur = -1
    origin: Tensor | None = None
    for n in nodes:
        i = n.index
        b = ids[i]
        if b != -1:
            cur = b if b != skipped else -1
            origin = n
            continue
        ids[i] = cur
        causes[i] = cause
        if not events:
            continue
        if cur != -1:
            by = origin.label if origin is not None else ""
            events(Assigned(n.label, s.names[cur], 2, cause, Why.NEIGHBOR, by, Facts(sweep=sweep)))
        else:
            why, facts = _why_no_spread(s, origin, sweep)
            events(PassedOver(n.label, 2, cause, why, facts=facts))


def _why_no_spread(s: SchedulerState, origin: Tensor | None, sweep: Sweep) -> tuple[Why, Facts]:
    if origin is None:
        return Why.NO_NEIGHBOR, Facts(sweep=sweep)
    return Why.SPREADS_LAST, Facts(tensor=origin.label, backend=s.names[s.ids[origin.index]], sweep=sweep)


def assign_sources(s: SchedulerState, graph: CGraph) -> None:
    """Pass 3: views take their root's backend, sources without one their user's; there may be none to take."""
    ids, causes = s.ids, s.causes
    for n in graph.nodes:
        root = n.view_src
        if root is not None and ids[n.index] == -1:
            ids[n.index] = ids[root.index]
            causes[n.index] = "3.vsrc"
            _announce(s, n, "3.vsrc", Why.VIEW, root)
        cur = ids[n.index]
        for src in n.src:
            if src is None:
                break
            i = src.index
            if ids[i] != -1:
                continue
            root = src.view_src
            if root is not None:
                ids[i] = ids[root.index]
                causes[i] = "3.vsrc"
                _announce(s, src, "3.vsrc", Why.VIEW, root)
            else:
                ids[i] = cur
                causes[i] = "3.cur"
                _announce(s, src, "3.cur", Why.READER, n)


def _announce(s: SchedulerState, t: Tensor, cause: str, why: Why, by: Tensor) -> None:
    if not s.events:
        return
    b = s.ids[t.index]
    if b != -1:
        s.events(Assigned(t.label, s.names[b], 3, cause, why, by.label))
    else:
        s.events(PassedOver(t.label, 3, cause, Why.NO_BACKEND, facts=Facts(tensor=by.label)))


def no_backend(t: Tensor, line: int, condition: str, of: str) -> LineAssert:
    """A node, or a source, that is left without a backend when the graph is to be split."""
    return LineAssert(
        "sched_split_graph",
        "ggml-backend.c",
        line,
        condition,
        f"{t.label}{of} has no backend: it has no memory, nothing gave it a neighbour's, and inputs give none; "
        f"{advice('old_no_allocr')}",
    )
