"""Passes 1 to 3 of the scheduler of January 2024: a backend, which is to say an allocator, for every tensor.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that touched it last, also where the rule had no backend to give). Nobody is asked whether a backend
can run an op. View ops are invisible to pass 2, and the sources of a node end at the first empty slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024.state import SchedulerState
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Sweep

SWEEPS = tuple(Sweep(down, skips_last) for skips_last in (True, False) for down in (False, True))
"""The sweeps of pass 2."""


def allocr_from_buffer(s: SchedulerState, t: Tensor, buffer: Buffer | None) -> int:
    """sched_allocr_from_buffer: the allocator whose own buffer it is, else the first backend that can use it.

    -1 without a buffer. Raises LineAssert if no backend can use the memory of `t`.
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
    """Pass 1: tensors that have memory, views of such, and ops with weights; the user's choices stay."""
    for t in unassigned(s, graph):
        s.ids[t.index] = allocr_from_cur(s, t)


def unassigned(s: SchedulerState, graph: CGraph) -> Iterator[Tensor]:
    """The tensors that pass 1 comes to, each as long as it has no backend.

    A node that the user assigned is passed over, and so are its sources that are neither leafs nor nodes before it.
    """
    ids = s.ids
    for t in graph.leafs:
        if ids[t.index] == -1:
            yield t
    for n in graph.nodes:
        if ids[n.index] == -1:
            yield n
            for src in s.sources(n):
                if ids[src.index] == -1:
                    yield src


def allocr_from_cur(s: SchedulerState, t: Tensor) -> int:
    """sched_allocr_from_cur."""
    b = allocr_from_buffer(s, t, t.buffer)
    if b != -1:
        s.causes[t.index] = "1.dst"
        return b
    if t.view_src is not None:
        b = allocr_from_buffer(s, t, t.view_src.buffer)
        if b != -1:
            s.causes[t.index] = "1.vsrc"
            return b
    for i, src in enumerate(s.sources(t)):
        if src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            b = allocr_from_buffer(s, src, src.buffer)
            s.causes[t.index] = f"1.wgt{i}"
            return b
    return -1


def expand(s: SchedulerState, graph: CGraph) -> None:
    """Pass 2: neighbors take the backend of assigned nodes; first those of GPUs, up and down, then all."""
    for number in range(1, len(SWEEPS) + 1):
        expand_once(s, graph, number)


def expand_once(s: SchedulerState, graph: CGraph, number: int) -> None:
    """A sweep of pass 2, by its number. Where the last backend does not expand, it ends what another one does."""
    ids, causes = s.ids, s.causes
    sweep, cause = SWEEPS[number - 1], f"2.{number}"
    skipped = len(s.names) - 1 if sweep.skips_last else -2
    cur = -1
    for n in in_order(graph, sweep):
        b = ids[n.index]
        if b != -1:
            cur = b if b != skipped else -1
        else:
            ids[n.index] = cur
            causes[n.index] = cause


def in_order(graph: CGraph, sweep: Sweep) -> Iterator[Tensor]:
    """The nodes that a sweep looks at."""
    return (n for n in (graph.nodes if sweep.down else reversed(graph.nodes)) if not n.is_view_op)


def assign_sources(s: SchedulerState, nodes: Iterable[Tensor]) -> None:
    """Pass 3: views take their root's backend, sources without one their user's; there may be none to take."""
    ids, causes = s.ids, s.causes
    for n in nodes:
        root = n.view_src
        if root is not None and ids[n.index] == -1:
            ids[n.index] = ids[root.index]
            causes[n.index] = "3.vsrc"
        cur = ids[n.index]
        for src in s.sources(n):
            i = src.index
            if ids[i] != -1:
                continue
            root = src.view_src
            if root is not None:
                ids[i] = ids[root.index]
                causes[i] = "3.vsrc"
            else:
                ids[i] = cur
                causes[i] = "3.cur"


def no_backend(t: Tensor, line: int, condition: str, of: str) -> LineAssert:
    """A node, or a source, that is left without a backend when the graph is to be split."""
    return LineAssert(
        "sched_split_graph",
        "ggml-backend.c",
        line,
        condition,
        f"{t.label}{of} has no backend: it has no memory, no neighbor gave it one, and inputs give none; "
        f"{advice('old_no_allocr')}",
    )
